from datetime import timedelta

import pytest
from django.utils import timezone

from tasks.claims import claim_next, release, renew
from tasks.content import Incoming
from tasks.exceptions import Superseded, Unread
from tasks.models import Artifact, Task
from tasks.queries import fetch_task
from tasks.results import ArtifactDraft, finish, plain, say, stream_chunk
from tasks.services import send_message
from tests.support.cast import ALICE, snapshot

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


def test_finishing_writes_state_message_and_artifacts_together(claim):
    seq = finish(
        claim, Task.State.COMPLETED, message=plain("Done."), artifacts=[ArtifactDraft("report", [{"text": "All well"}])]
    )

    view = fetch_task(ALICE, claim.task_id)
    assert (view.state, view.last_seq, seq) == ("completed", 4, 4)
    assert view.status_message["parts"] == [{"text": "Done."}]
    assert [m["role"] for m in view.history] == ["user", "agent"]
    assert [(a["name"], a["parts"]) for a in view.artifacts] == [("report", [{"text": "All well"}])]


def test_a_message_in_the_meantime_keeps_the_result_from_standing(agent, claim):
    send_message(ALICE, agent, Incoming.from_text("wait, also this"), task_id=str(claim.task_id))
    before = snapshot(claim.task_id)

    with pytest.raises(Unread):
        finish(claim, Task.State.COMPLETED, artifacts=[ArtifactDraft("report", [{"text": "without it"}])])

    assert snapshot(claim.task_id) == before
    release(claim)
    again = claim_next("default", "w")
    finish(again, Task.State.COMPLETED)
    assert Task.objects.get(pk=claim.task_id).state == "completed"


def test_a_turn_that_is_run_again_replaces_its_half_done_artifact(claim):
    stream_chunk(claim, "answer", "The first att", is_first=True)
    Task.objects.update(due_at=timezone.now() - timedelta(seconds=1))
    second = claim_next("default", "second")

    stream_chunk(second, "answer", "Better ", is_first=True)
    stream_chunk(second, "answer", "this time", is_first=False)
    finish(
        second,
        Task.State.COMPLETED,
        artifacts=[ArtifactDraft("answer", [{"text": "Better this time"}], is_streamed=True)],
    )

    artifact = Artifact.objects.get()
    assert (artifact.parts, artifact.is_complete, artifact.version) == ([{"text": "Better this time"}], True, 1)


def test_a_growing_artifact_can_be_read(claim):
    for number, text in enumerate(["One, ", "two, ", "three"]):
        stream_chunk(claim, "count", text, is_first=number == 0)
    assert fetch_task(ALICE, claim.task_id).artifacts[0]["parts"] == [{"text": "One, two, three"}]


def test_a_new_version_keeps_the_name_and_gets_a_new_id(agent, claim):
    finish(claim, Task.State.COMPLETED, artifacts=[ArtifactDraft("logo", [{"text": "red"}])])
    send_message(ALICE, agent, Incoming.from_text("Blue", references=[str(claim.task_id)]))
    finish(claim_next("default", "w"), Task.State.COMPLETED, artifacts=[ArtifactDraft("logo", [{"text": "blue"}])])

    first, second = Artifact.objects.order_by("version")
    assert (first.name, first.version, second.name, second.version) == ("logo", 1, "logo", 2)
    assert first.pk != second.pk


def test_progress_leaves_the_task_working(claim):
    say(claim, plain("Half way."))
    task = Task.objects.get(pk=claim.task_id)
    assert task.state == "working"
    assert task.events.last().payload["message"]["parts"] == [{"text": "Half way."}]
    assert task.messages.last().role == "agent"


def test_what_no_database_can_keep_is_replaced_in_what_agents_write(claim):
    finish(claim, Task.State.COMPLETED, artifacts=[ArtifactDraft("odd", [{"text": "a\x00b\ud800c"}])])
    assert Artifact.objects.get().parts == [{"text": "a\ufffdb\ufffdc"}]


def test_a_turn_that_has_ended_writes_nothing_more(agent, claim):
    finish(claim, Task.State.INPUT_REQUIRED, message=plain("Which?"))
    before = snapshot(claim.task_id)
    for write in (lambda: say(claim, plain("late")), lambda: renew(claim), lambda: release(claim)):
        with pytest.raises(Superseded):
            write()
    assert snapshot(claim.task_id) == before

    # Handed in again, the task still has the epoch of the old claim until the next worker takes it.
    send_message(ALICE, agent, Incoming.from_text("This"), task_id=str(claim.task_id))
    before = snapshot(claim.task_id)
    with pytest.raises(Superseded):
        renew(claim)
    assert snapshot(claim.task_id) == before
