"""A new plan that a person is asked about, while the rest of the old one goes on."""

import pytest

from agents import runtime
from agents.models import Budget, Decision
from directory.models import Agent
from tasks import delegation
from tasks.claims import claim_next
from tasks.content import Incoming
from tasks.exceptions import Superseded
from tasks.models import SubPlan, Task
from tasks.services import cancel_task, send_message
from tests.orchestration.script import answer, part, plan, says, step, triage, writes
from tests.support.cast import ALICE, BOB

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]

GOAL = "Find out all about it and write a report"


def reads(key: str, path: str, **more):
    """A sub-plan that costs nothing, and is given to somebody."""
    return part(key, *(step(f"Read {path}", "read_file", path=path) for _ in range(2)), **more)


def of(key: str) -> Task | None:
    return SubPlan.objects.select_related("task").get(key=key).task


def due(key: str, when: str | None = "2026-01-01T00:00:00Z") -> None:
    Task.objects.filter(pk=of(key).pk).update(due_at=when)


def turn():
    """The next due turn, whatever it is."""
    claim = claim_next("default", "w")
    assert claim is not None
    runtime.run_turn(claim)
    return claim


def earlier_step() -> None:
    """What a step took so far: two of them are more than half of a budget."""
    sent = send_message(BOB, Agent.objects.get(slug="echo"), Incoming.from_text("Earlier"))
    cancel_task(BOB, sent.task_id)
    usage = {"input_tokens": 200_000, "output_tokens": 120_000}
    Decision.objects.create(
        task_id=sent.task_id, point="step", brain="claude", attempts=1, model="claude-sonnet-5-5", **usage
    )


@pytest.fixture
def asking(settle, model, project):
    """`facts` failed, and a new plan is asked about; `slow` is being worked on, and `later` waits for it."""
    earlier_step()
    slow = reads("slow", "main.py")
    model.add(
        triage(needs_plan=True), plan(reads("facts", "gone.md"), slow, reads("later", "main.py", needs=("slow",)))
    )
    model.add(says("recover", {"strategy": "replan"}), plan(part("maps"), part("atlas", needs=("slow",))))
    model.add(writes("maps"), writes("atlas"), answer())
    sent = send_message(ALICE, Agent.objects.get(slug="assistant"), Incoming.from_text(GOAL))
    assert turn().task_id == sent.task_id
    due("slow", None)
    assert turn().task_id == of("facts").pk
    assert turn().task_id == sent.task_id
    mission = Task.objects.get(pk=sent.task_id)
    assert (mission.state, mission.status_message["metadata"]["asks"]["kind"]) == ("input-required", "confirm")
    assert "Carry out a plan of 2 parts" in said(mission)
    return mission


def said(mission) -> str:
    return mission.status_message["parts"][0]["text"]


def say(mission, text: str) -> Task:
    send_message(ALICE, mission.agent, Incoming.from_text(text), task_id=mission.pk)
    runtime.drain("default")
    return Task.objects.get(pk=mission.pk)


def dropped() -> set[str]:
    return set(SubPlan.objects.filter(is_dropped=True).values_list("key", flat=True))


def slow_ends() -> None:
    due("slow")
    assert turn().task_id == of("slow").pk


def test_what_is_worked_on_goes_on_and_the_question_stands(asking, model):
    question, asked = asking.status_message, len(model.requests)
    slow_ends()
    claim = turn()
    assert (claim.task_id, claim.is_aside) == (asking.pk, True)
    asking.refresh_from_db()
    assert (asking.state, asking.status_message, asking.due_at) == ("input-required", question, None)
    # No model was asked for yet another plan, and nothing was begun that the new one would take the place of.
    assert len(model.requests) == asked
    assert of("later") is None
    assert Decision.objects.filter(task=asking, point="confirm").count() == 1


@pytest.mark.parametrize("before", [True, False])
def test_yes_carries_out_the_new_plan(asking, before):
    if before:
        slow_ends()
        turn()
    else:
        due("slow")
    mission = say(asking, "yes")
    assert mission.state == "completed"
    assert dropped() == {"facts", "later"}
    assert {of(key).state for key in ("slow", "maps-anew", "atlas-anew")} == {"completed"}
    numbers = list(mission.events.order_by("seq").values_list("seq", flat=True))
    assert numbers == list(range(1, mission.last_seq + 1))


@pytest.mark.parametrize("before", [True, False])
def test_no_leaves_out_only_what_failed(asking, before):
    if before:
        slow_ends()
        turn()
    else:
        due("slow")
    mission = say(asking, "no")
    assert mission.state == "completed"
    assert dropped() == {"facts"}
    assert (of("later").state, SubPlan.objects.count()) == ("completed", 3)


def test_a_new_plan_may_be_changed(asking, model):
    slow_ends()
    turn()
    digest = asking.status_message["metadata"]["asks"]["digest"]
    model.add(plan(part("maps", step("Work on old maps"), step("Work on new maps"))))
    mission = say(asking, "Only maps, but old ones first")
    assert (mission.state, "- Work on old maps" in said(mission)) == ("input-required", True)
    assert mission.status_message["metadata"]["asks"]["digest"] != digest
    model.add(writes("old maps"), writes("new maps"))
    assert say(mission, "yes").state == "completed"
    assert dropped() == {"facts", "later"}


def test_the_question_of_a_part_stands_before_it(settle, model, project):
    """The new plan waits its turn: the person is about to answer something else."""
    earlier_step()
    asker = part("asker", step("Read", "read_file"), step("Read on", "read_file", path="main.py"))
    model.add(
        triage(needs_plan=True), plan(asker, reads("facts", "gone.md"), reads("later", "main.py", needs=("facts",)))
    )
    model.add(says("recover", {"strategy": "replan"}), plan(part("maps"), part("atlas")))
    model.add(writes("maps"), writes("atlas"), answer(), says("follow-up", {"decision": "handle"}))
    sent = send_message(ALICE, Agent.objects.get(slug="assistant"), Incoming.from_text(GOAL))
    turn()
    due("facts", None)
    assert turn().task_id == of("asker").pk
    turn()
    question = Task.objects.get(pk=sent.task_id).status_message
    due("facts")
    runtime.drain("default")
    mission = Task.objects.get(pk=sent.task_id)
    assert (mission.state, mission.status_message) == ("input-required", question)
    mission = say(mission, "main.py")
    assert (mission.state, mission.status_message["metadata"]["asks"]["kind"]) == ("input-required", "confirm")
    assert say(mission, "yes").state == "completed"
    assert of("asker").state == "completed"


def test_a_worker_that_dies_between_the_plans_loses_neither(asking, monkeypatch):
    slow_ends()
    turn()
    drop = delegation.drop

    def die(*arguments):
        monkeypatch.setattr(delegation, "drop", drop)
        raise Superseded

    monkeypatch.setattr(delegation, "drop", die)
    send_message(ALICE, asking.agent, Incoming.from_text("yes"), task_id=asking.pk)
    runtime.run_turn(claim_next("default", "dies"))
    assert (dropped(), SubPlan.objects.count()) == (set(), 5)
    Task.objects.filter(pk=asking.pk).update(due_at="2026-01-01T00:00:00Z")
    runtime.drain("default")
    assert Task.objects.get(pk=asking.pk).state == "completed"
    assert dropped() == {"facts", "later"}


def test_a_cancel_ends_it_all(asking):
    slow_ends()
    aside = claim_next("default", "w")
    assert aside.is_aside
    cancel_task(ALICE, asking.pk)
    runtime.run_turn(aside)
    states = set(Task.objects.filter(root=asking).values_list("state", flat=True))
    assert states == {"failed", "completed"}
    assert (Task.objects.get(pk=asking.pk).state, SubPlan.objects.count()) == ("canceled", 3)
    assert asking.stop.stopped_at is not None


def test_who_agrees_to_more_than_is_left_doubles_the_budget_once(asking):
    Budget.objects.filter(pk=asking.pk).update(tokens_limit=300_000)
    slow_ends()
    turn()
    # As it was asked: within the budget of that moment.
    assert "is_over" not in Task.objects.get(pk=asking.pk).status_message["metadata"]["asks"]
    assert say(asking, "yes").state == "completed"
    assert Budget.objects.get(pk=asking.pk).tokens_limit == 300_000
