"""Ending one turn and claiming the next are one commit on PostgreSQL; what they come to is the same on SQLite."""

import threading
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from tasks.content import Incoming
from tasks.exceptions import Superseded, Unread
from tasks.models import Event, Task
from tasks.results import ArtifactDraft, finish_and_claim_next
from tasks.services import cancel_task, send_message
from tasks.snapshots import read_messages
from tests.support.cast import ALICE
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]


@pytest.fixture
def next_id(claim, agent):
    """A task that is due while the first is being worked on."""
    return send_message(ALICE, agent, Incoming.from_text("And this")).task_id


def events(task_id):
    return [
        (seq, kind, payload.get("state"))
        for seq, kind, payload in Event.objects.filter(task_id=task_id).values_list("seq", "kind", "payload")
    ]


def untouched(task_id):
    task = Task.objects.get(pk=task_id)
    return (task.state, task.epoch, task.attempts, task.last_seq) == ("submitted", 0, 0, 1)


def test_both_are_done(claim, next_id):
    artifact = ArtifactDraft("a", [{"text": "x"}])
    following = finish_and_claim_next(claim, Task.State.COMPLETED, artifacts=[artifact])

    assert (following.task_id, following.epoch, following.attempt) == (next_id, 1, 1)
    assert (following.worker, following.queue, following.owner) == ("test-worker", "default", ALICE.principal)
    assert events(claim.task_id)[2:] == [(3, "artifact", None), (4, "status", "completed")]
    assert events(next_id) == [(1, "status", "submitted"), (2, "status", "working")]
    task = Task.objects.get(pk=next_id)
    assert (task.state, task.lease_owner, task.unread) == ("working", "test-worker", False)
    assert task.due_at > timezone.now()


def test_nothing_else_is_due(claim):
    assert finish_and_claim_next(claim, Task.State.COMPLETED) is None
    assert Task.objects.get().state == "completed"


def test_its_own_lease_that_ran_out_is_no_reason_to_take_it_again(claim):
    Task.objects.update(due_at=timezone.now() - timedelta(seconds=1))
    assert finish_and_claim_next(claim, Task.State.COMPLETED) is None
    assert (Task.objects.get().state, len(events(claim.task_id))) == ("completed", 3)


def test_a_turn_that_was_canceled_claims_nothing(claim, next_id):
    cancel_task(ALICE, claim.task_id)
    with pytest.raises(Superseded):
        finish_and_claim_next(claim, Task.State.COMPLETED, artifacts=[ArtifactDraft("a", [{"text": "x"}])])
    assert Task.objects.get(pk=claim.task_id).state == "canceled"
    assert untouched(next_id)


def test_a_turn_that_has_not_seen_a_message_claims_nothing(claim, agent, next_id):
    send_message(ALICE, agent, Incoming.from_text("wait"), task_id=claim.task_id)
    with pytest.raises(Unread):
        finish_and_claim_next(claim, Task.State.COMPLETED)
    assert Task.objects.get(pk=claim.task_id).state == "working"
    assert untouched(next_id)


def test_a_next_task_that_was_tried_too_often_is_failed_and_the_one_behind_it_taken(claim, agent, next_id, settings):
    Task.objects.filter(pk=next_id).update(attempts=settings.BUREAU_MAX_ATTEMPTS)
    behind = send_message(ALICE, agent, Incoming.from_text("a third")).task_id
    assert finish_and_claim_next(claim, Task.State.COMPLETED).task_id == behind
    assert Task.objects.get(pk=next_id).state == "failed"


def test_a_claim_brings_its_messages(claim, next_id):
    following = finish_and_claim_next(claim, Task.State.COMPLETED)
    if connection.vendor == "postgresql":
        assert [message["parts"] for message in following.messages] == [[{"text": "And this"}]]
        assert following.messages == read_messages(next_id)
    else:
        assert following.messages is None


def test_a_message_that_is_committed_while_the_statement_runs_is_not_overlooked(claim, agent, next_id):
    """It is not in the statement's snapshot, but the claim takes `unread` back on the row as it is then."""
    found: list = []

    def work():
        found.append(finish_and_claim_next(claim, Task.State.COMPLETED))
        connection.close()

    worker = threading.Thread(target=work)
    with transaction.atomic():
        # The statement begins, and then waits for this row.
        Task.objects.select_for_update().get(pk=claim.task_id)
        send_message(ALICE, agent, Incoming.from_text("one more thing"), task_id=next_id)
        worker.start()
        wait_until(is_waiting, what="the statement to begin")
    worker.join(PATIENCE)

    (following,) = found
    assert following.task_id == next_id
    messages = read_messages(next_id) if following.messages is None else following.messages
    assert [message["parts"][0]["text"] for message in messages] == ["And this", "one more thing"]
    assert not Task.objects.get(pk=next_id).unread


def is_waiting():
    """Whether somebody waits for this transaction; on SQLite whoever writes does."""
    if connection.vendor != "postgresql":
        return True
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))")
        return cursor.fetchone()[0] > 0
