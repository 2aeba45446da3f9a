"""A task delegates, waits, and is woken; all of it under its claim, and each thing once."""

import threading

import pytest
from django.db import connection

from tasks import delegation, results
from tasks.claims import claim_next
from tasks.content import Incoming
from tasks.delegation import StepDraft, SubPlanDraft
from tasks.exceptions import Superseded, Unread
from tasks.models import SubPlan, Subtask, Task
from tasks.results import finish, plain, wait
from tasks.services import cancel_task, send_message
from tests.support.cast import ALICE, snapshot

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]

DRAFTS = (
    SubPlanDraft("first", "The first", "writer", (StepDraft("Do it", "echo", {"text": "a"}), StepDraft("Do more"))),
    SubPlanDraft("second", "The second", "writer", (StepDraft("Go on"),), ("first",)),
)


@pytest.fixture
def plan(claim):
    delegation.store_plan(claim, DRAFTS)
    return SubPlan.objects.get(key="first")


@pytest.fixture
def child(claim, plan, agent):
    return delegation.delegate(claim, plan, agent, Incoming.from_text("Please do it"))


def test_a_plan_is_kept_once(claim, plan):
    delegation.store_plan(claim, DRAFTS)
    assert list(SubPlan.objects.values_list("key", flat=True)) == ["first", "second"]
    assert Subtask.objects.count() == 3
    assert list(SubPlan.objects.get(key="second").depends_on.all()) == [plan]


def test_delegating_again_finds_the_same_task(claim, plan, child, agent):
    before = snapshot(child)
    assert delegation.delegate(claim, plan, agent, Incoming.from_text("Again")) == child
    assert snapshot(child) == before
    task = Task.objects.get(pk=child)
    assert (task.parent_id, task.root_id, task.owner) == (claim.task_id, claim.task_id, claim.owner)
    assert (task.context_id, task.metadata, task.last_seq) == (claim.context_id, {"subPlan": "first", "attempt": 0}, 1)


def test_who_has_lost_the_claim_changes_nothing(claim, plan, agent):
    cancel_task(ALICE, claim.task_id)
    for write in (
        lambda: delegation.delegate(claim, plan, agent, Incoming.from_text("Too late")),
        lambda: delegation.store_plan(claim, DRAFTS),
        lambda: delegation.retry(claim, plan),
        lambda: delegation.drop(claim, [plan], "Too late"),
        lambda: wait(claim),
    ):
        with pytest.raises(Superseded):
            write()
    assert Task.objects.count() == 1
    plan.refresh_from_db()
    assert (plan.attempt, plan.is_dropped, plan.task) == (0, False, None)


def test_who_waits_is_not_due_until_something_ends_below(claim, child):
    wait(claim)
    parent = Task.objects.get(pk=claim.task_id)
    assert (parent.state, parent.lease_owner, parent.due_at) == ("working", "", None)
    below = claim_next("default", "w")
    assert (below.task_id, below.parent_id) == (child, claim.task_id)
    assert claim_next("default", "w") is None
    finish(below, Task.State.COMPLETED, message=plain("Done."))
    assert claim_next("default", "w").task_id == claim.task_id


def test_who_is_at_work_hears_of_it_before_it_settles(claim, child):
    finish(claim_next("default", "w"), Task.State.INPUT_REQUIRED, message=plain("Which?"))
    for settle in (lambda: wait(claim), lambda: finish(claim, Task.State.COMPLETED)):
        with pytest.raises(Unread):
            settle()
    assert Task.objects.get(pk=claim.task_id).state == "working"


def test_a_late_end_wakes_nobody(claim, child):
    below = claim_next("default", "w")
    cancel_task(ALICE, child)
    Task.objects.filter(pk=claim.task_id).update(unread=False)
    with pytest.raises(Superseded):
        finish(below, Task.State.COMPLETED)
    assert not Task.objects.get(pk=claim.task_id).unread


def test_a_canceled_child_wakes_its_parent(claim, child):
    wait(claim)
    cancel_task(ALICE, child)
    assert claim_next("default", "w").task_id == claim.task_id


def test_cancel_reaches_every_leg(claim, child):
    below = claim_next("default", "w")
    cancel_task(ALICE, claim.task_id)
    assert set(Task.objects.values_list("state", flat=True)) == {"canceled"}
    with pytest.raises(Superseded):
        finish(below, Task.State.COMPLETED)


def test_an_answer_goes_down_once(claim, child):
    finish(claim_next("default", "w"), Task.State.INPUT_REQUIRED, message=plain("Which?"))
    answer = Incoming([{"text": "That one"}], message_id="m-1")
    assert delegation.tell(claim, child, answer)
    assert Task.objects.get(pk=child).state == "submitted"
    assert not delegation.tell(claim, child, answer)
    assert Task.objects.get(pk=child).messages.filter(message_id="m-1").count() == 1


def test_an_answer_goes_down_once_for_each_question(claim, child):
    answer = Incoming([{"text": "That one"}], message_id="m-1")
    for question in (plain("Which?"), plain("And which then?")):
        finish(claim_next("default", "w"), Task.State.INPUT_REQUIRED, message=question)
        assert delegation.tell(claim, child, answer, question=question["messageId"])
    finish(claim_next("default", "w"), Task.State.INPUT_REQUIRED, message=plain("And then?"))
    before = snapshot(child)
    assert not delegation.tell(claim, child, answer, question=question["messageId"])
    assert snapshot(child) == before


def test_the_next_attempt_keeps_what_is_done(claim, plan, child):
    first, second = plan.subtasks.all()
    delegation.settle_step(claim, first, Subtask.State.DONE, {"text": "a"})
    delegation.settle_step(claim, second, Subtask.State.FAILED, {"error": "no"})
    delegation.settle_step(claim, first, Subtask.State.FAILED, {"error": "late"})
    delegation.retry(claim, plan, hint="Otherwise")
    delegation.retry(claim, plan, hint="A second time")
    plan.refresh_from_db()
    assert (plan.attempt, plan.task, plan.hint) == (1, None, "Otherwise")
    assert list(plan.subtasks.values_list("state", flat=True)) == ["done", "pending"]


@pytest.mark.django_db(transaction=True)
def test_who_was_just_answered_does_not_look_before_the_end_below_is_there(claim, child, agent, monkeypatch):
    finish(claim, Task.State.INPUT_REQUIRED, message=plain("Which?"))
    below = claim_next("default", "test-worker")
    assert below.task_id == child
    send_message(ALICE, agent, Incoming.from_text("That one"), task_id=claim.task_id)
    seen: list[str] = []

    def look() -> None:
        if claim_next("default", "another"):
            seen.append(Task.objects.get(pk=child).state)

    looking = threading.Thread(target=lambda: (look(), connection.close()))
    write = results._finish

    def interrupted(*arguments):
        looking.start()
        if connection.vendor == "postgresql":
            # SQLite has it wait for the end of this transaction.
            looking.join(60)
        return write(*arguments)

    monkeypatch.setattr(results, "_finish", interrupted)
    finish(below, Task.State.COMPLETED)
    looking.join(60)
    look()
    assert seen == ["completed"]


@pytest.mark.parametrize("end", [Task.State.FAILED, Task.State.REJECTED])
def test_what_goes_on_below_a_task_that_fails_is_canceled_with_it(claim, child, end):
    below = claim_next("default", "test-worker")
    assert below.task_id == child
    finish(claim, end, message=plain("Enough."))
    task = Task.objects.get(pk=child)
    assert (task.state, task.stop.worker, task.stop.stopped_at) == ("canceled", "test-worker", None)
    before = snapshot(child)
    with pytest.raises(Superseded):
        finish(below, Task.State.COMPLETED)
    assert snapshot(child) == before
