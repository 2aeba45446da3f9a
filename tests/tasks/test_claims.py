from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from tasks import doorbell
from tasks.claims import claim_next, find_lost, release, release_all, renew, sweep
from tasks.content import Incoming
from tasks.delegation import wake
from tasks.exceptions import Superseded
from tasks.models import Task
from tasks.results import finish, hold, plain, resume, wait
from tasks.services import cancel_task, send_message
from tests.support.cast import ALICE, snapshot

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


def expire(task_id):
    Task.objects.filter(pk=task_id).update(due_at=timezone.now() - timedelta(seconds=1))


def test_it_takes_the_one_that_waited_longest(agent):
    first, second = (send_message(ALICE, agent, Incoming.from_text(text)) for text in "ab")
    Task.objects.filter(pk=second.task_id).update(due_at=timezone.now() - timedelta(hours=1))

    assert [claim_next("default", "w").task_id for _ in range(2)] == [second.task_id, first.task_id]
    assert claim_next("default", "w") is None


def test_it_makes_the_task_working_and_leases_it(claim, settings):
    task = Task.objects.get(pk=claim.task_id)
    assert (task.state, task.lease_owner, task.epoch, task.attempts) == ("working", "test-worker", 1, 1)
    assert task.due_at > timezone.now() + timedelta(seconds=settings.BUREAU_LEASE_SECONDS / 2)
    assert task.events.last().payload == {"state": "working"}
    assert claim.waited >= 0


def test_it_leaves_other_queues_and_later_tasks(sent):
    assert claim_next("other", "w") is None
    Task.objects.update(due_at=timezone.now() + timedelta(minutes=1))
    assert claim_next("default", "w") is None


def test_an_expired_lease_goes_to_another_and_the_first_loses(claim):
    expire(claim.task_id)

    second = claim_next("default", "second")

    assert (second.task_id, second.epoch, second.attempt) == (claim.task_id, claim.epoch + 1, 2)
    before = snapshot(claim.task_id)
    with pytest.raises(Superseded):
        finish(claim, Task.State.COMPLETED)
    assert snapshot(claim.task_id) == before


def test_it_gives_up_with_the_reason_after_the_last_attempt(claim, settings):
    for _ in range(settings.BUREAU_MAX_ATTEMPTS - 1):
        expire(claim.task_id)
        assert claim_next("default", "again") is not None
    expire(claim.task_id)

    assert claim_next("default", "last") is None

    task = Task.objects.get(pk=claim.task_id)
    assert task.state == "failed"
    assert "after 3 attempts" in task.status_message["parts"][0]["text"]


def test_renewing_moves_the_end_of_the_lease(claim):
    expire(claim.task_id)
    renew(claim)
    assert claim_next("default", "other") is None


def test_releasing_hands_the_task_to_the_next(claim):
    release(claim)
    task = Task.objects.get(pk=claim.task_id)
    assert (task.lease_owner, task.attempts, task.state) == ("", 0, "working")
    assert claim_next("default", "next").task_id == claim.task_id


def test_releasing_loses_to_cancel(claim):
    cancel_task(ALICE, claim.task_id)
    before = snapshot(claim.task_id)
    with pytest.raises(Superseded):
        release(claim)
    assert snapshot(claim.task_id) == before


def test_lost_claims_are_found(claim, agent):
    send_message(ALICE, agent, Incoming.from_text("other"))
    kept = claim_next("default", "w")
    cancel_task(ALICE, claim.task_id)
    assert find_lost([claim, kept]) == [claim]


def test_the_sweep_clears_dead_leases_and_rings(claim, monkeypatch):
    rung: list[str] = []
    monkeypatch.setattr(doorbell, "ring_again", rung.append)
    expire(claim.task_id)

    assert sweep() == {"default": 1}

    assert rung == ["default"]
    assert Task.objects.get(pk=claim.task_id).lease_owner == ""


def test_the_sweep_leaves_a_lease_that_holds(claim, monkeypatch):
    rung: list[str] = []
    monkeypatch.setattr(doorbell, "ring_again", rung.append)
    before = snapshot(claim.task_id)

    assert sweep() == {}

    assert (rung, snapshot(claim.task_id)) == ([], before)


def test_leases_of_a_dead_fleet_can_be_released_at_once(claim):
    assert release_all() == 1
    assert claim_next("default", "w").task_id == claim.task_id


@pytest.fixture
def asking(claim):
    """A task that waits for a person, and below which something has happened."""
    finish(claim, Task.State.INPUT_REQUIRED, message=plain("Which?"))
    with transaction.atomic():
        wake(claim.task_id, even_asking=True)
    return Task.objects.get(pk=claim.task_id)


def test_one_that_waits_for_a_person_is_claimed_aside_and_goes_on_waiting(asking):
    before = snapshot(asking.pk)
    claim = claim_next("default", "worker-1")
    assert (claim.task_id, claim.is_aside, claim.state) == (asking.pk, True, "input-required")
    task = Task.objects.get(pk=asking.pk)
    assert (task.state, task.status_message, task.status_at) == (asking.state, asking.status_message, asking.status_at)
    assert (task.lease_owner, task.last_seq) == ("worker-1", asking.last_seq)
    assert find_lost([claim]) == []
    renew(claim)
    wait(claim)
    task.refresh_from_db()
    assert (task.state, task.lease_owner, task.due_at) == ("input-required", "", None)
    assert snapshot(asking.pk)[1:] == before[1:]


def test_nothing_else_wakes_one_that_waits_for_a_person(claim):
    finish(claim, Task.State.INPUT_REQUIRED, message=plain("Which?"))
    with transaction.atomic():
        wake(claim.task_id)
    assert claim_next("default", "worker-1") is None


def test_the_answer_overtakes_a_claim_aside(asking):
    claim = claim_next("default", "worker-1")
    send_message(ALICE, asking.agent, Incoming.from_text("That one"), task_id=asking.pk)
    before = snapshot(asking.pk)
    for write in (wait, resume, renew, release, hold):
        with pytest.raises(Superseded):
            write(claim)
    assert snapshot(asking.pk) == before
    assert find_lost([claim]) == [claim]
    # At once, and not when the lease of the other one would have run out.
    assert not claim_next("default", "worker-2").is_aside


def test_a_question_that_is_closed_is_worked_on_again(asking):
    resume(claim_next("default", "worker-1"))
    task = Task.objects.get(pk=asking.pk)
    assert (task.state, task.status_message, task.lease_owner) == ("working", None, "")
    assert task.events.last().payload == {"state": "working"}
    assert not claim_next("default", "worker-1").is_aside


def test_who_has_asked_writes_nothing_any_more(claim):
    """Its claim was for a task that worked; the epoch is still the same."""
    finish(claim, Task.State.INPUT_REQUIRED, message=plain("Which?"))
    before = snapshot(claim.task_id)
    for write in (wait, hold, release):
        with pytest.raises(Superseded):
            write(claim)
    assert snapshot(claim.task_id) == before
