from dataclasses import replace

import pytest

from tasks.claims import claim_next, note_stopped, renew
from tasks.exceptions import Superseded, TaskNotFound, TaskNotInState
from tasks.models import Stop, Task
from tasks.results import ArtifactDraft, finish, plain, say, stream_chunk
from tasks.services import cancel_task
from tests.support.cast import ALICE, BOB, OLGA, snapshot

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


def test_it_ends_a_task_that_nobody_has_begun(sent):
    cancel_task(ALICE, str(sent.task_id), reason="Changed my mind.")

    task = Task.objects.get(pk=sent.task_id)
    assert (task.state, task.due_at, task.epoch) == ("canceled", None, 1)
    assert task.status_message["parts"] == [{"text": "Changed my mind."}]
    assert claim_next("default", "w") is None


def test_it_ends_the_right_of_the_worker(claim):
    cancel_task(ALICE, claim.task_id)
    before = snapshot(claim.task_id)

    for write in (
        lambda: finish(claim, Task.State.COMPLETED, artifacts=[ArtifactDraft("a", [{"text": "late"}])]),
        lambda: say(claim, plain("late")),
        lambda: stream_chunk(claim, "a", "late", is_first=True),
        lambda: renew(claim),
    ):
        with pytest.raises(Superseded):
            write()

    assert snapshot(claim.task_id) == before


def test_it_loses_to_completion(claim):
    finish(claim, Task.State.COMPLETED)
    before = snapshot(claim.task_id)

    with pytest.raises(TaskNotInState):
        cancel_task(ALICE, claim.task_id)

    assert snapshot(claim.task_id) == before


def test_it_does_not_find_the_task_of_somebody_else(sent):
    before = snapshot(sent.task_id)

    with pytest.raises(TaskNotFound):
        cancel_task(BOB, sent.task_id)

    assert snapshot(sent.task_id) == before


def test_an_operator_may_cancel_anything(sent):
    cancel_task(OLGA, sent.task_id)
    assert Task.objects.get(pk=sent.task_id).state == "canceled"


def test_it_cancels_what_lives_below_and_leaves_what_has_ended(sent, agent):
    mission = Task.objects.get(pk=sent.task_id)

    def below(parent, state):
        now = mission.created_at
        fields = {"context": mission.context, "agent": agent, "owner": mission.owner, "status_at": now}
        return Task.objects.create(parent=parent, root=mission, state=state, created_at=now, **fields)

    ended = below(mission, "completed")
    live = below(ended, "working")

    cancel_task(ALICE, mission.pk)

    assert [Task.objects.get(pk=t.pk).state for t in (mission, ended, live)] == ["canceled", "completed", "canceled"]


def test_it_is_noted_until_the_worker_lets_go(claim):
    cancel_task(ALICE, claim.task_id)
    stop = Stop.objects.get(task_id=claim.task_id)
    assert (stop.worker, stop.epoch, stop.stopped_at) == (claim.worker, claim.epoch, None)
    note_stopped(claim)
    first = Stop.objects.get().stopped_at
    assert first >= stop.asked_at
    note_stopped(claim)
    note_stopped(replace(claim, epoch=claim.epoch + 1))
    assert Stop.objects.get().stopped_at == first


def test_what_no_worker_holds_leaves_nothing_to_stop(sent):
    cancel_task(ALICE, sent.task_id)
    assert not Stop.objects.exists()


def test_a_refused_cancel_notes_nothing(claim):
    finish(claim, Task.State.COMPLETED)
    with pytest.raises(TaskNotInState):
        cancel_task(ALICE, claim.task_id)
    assert not Stop.objects.exists()
