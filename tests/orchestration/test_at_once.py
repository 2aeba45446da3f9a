"""What is written together stands or falls together, and what goes out side by side rings for each."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents import budget, model_api
from agents.budget import settled, within_budget
from agents.exceptions import BudgetExhausted, ModelError
from agents.model_api import Ask, Reply
from agents.models import Budget, Decision, Reservation
from agents.orchestration import coordinator
from agents.pricing import Usage
from agents.prompts import Prompt
from tasks import delegation
from tasks.delegation import StepDraft, SubPlanDraft
from tasks.models import Subtask, Task
from tasks.services import cancel_task
from tests.orchestration.script import DIAMOND, answer, part, plan, says, triage, writes
from tests.support import messages_api
from tests.support.cast import ALICE

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]

GOAL = "Find out all about it and write a report"
ASK = Ask("claude-haiku-5-5", Prompt("", "Well?"), 10)


@pytest.fixture
def cancel_after(monkeypatch):
    """cancel_after(3): the mission is canceled between the third answer of the model and what is written of it."""

    def after(number: int) -> None:
        converse, asked = budget.converse, []

        def ask_and_cancel(turn, ask):
            reply = converse(turn, ask)
            asked.append(ask)
            if len(asked) == number:
                cancel_task(ALICE, turn.mission_id)
            return reply

        monkeypatch.setattr(budget, "converse", ask_and_cancel)

    return after


@pytest.mark.parametrize(("calls", "lost"), [(1, "clarify"), (2, "plan"), (3, "step")])
def test_what_a_call_took_counts_though_its_answer_does_not(settle, model, cancel_after, calls, lost):
    model.add(triage(needs_plan=True), plan(part("facts")), writes("facts"), answer())
    cancel_after(calls)
    mission = settle(GOAL)
    assert mission.state == "canceled"
    assert (Budget.objects.get().calls, Reservation.objects.count()) == (calls, 0)
    assert not Decision.objects.filter(point=lost).exists()
    assert not Subtask.objects.exclude(state="pending").exists()


def test_a_call_that_is_under_way_counts_at_its_worst(begin, settings, monkeypatch):
    settings.BUREAU_BUDGET_CALLS = 1
    turn = begin("assistant", GOAL)

    def ask_again(turn, ask):
        with pytest.raises(BudgetExhausted):
            within_budget(turn, ask)
        return Reply("", "end_turn", ask.model, Usage(1, 1))

    monkeypatch.setattr(budget, "converse", ask_again)
    within_budget(turn, ASK)
    assert Reservation.objects.count() == 1
    with settled(turn):
        pass
    assert (Budget.objects.get().calls, Reservation.objects.count()) == (1, 0)


def test_what_a_killed_worker_reserved_is_free_when_its_task_has_ended(begin, settings, monkeypatch):
    settings.BUREAU_BUDGET_CALLS = 2
    turn = begin("assistant", GOAL)
    monkeypatch.setattr(budget, "converse", lambda turn, ask: Reply("", "end_turn", ask.model, Usage(1, 1)))
    with settled(turn):
        within_budget(turn, ASK)
    gone = Task.objects.create(
        **{name: getattr(turn.task, name) for name in ("context", "agent", "owner", "created_at")},
        **{"parent": turn.task, "root": turn.task, "state": "canceled", "status_at": timezone.now()},
    )
    Reservation.objects.create(budget_id=turn.mission_id, task=gone, epoch=1, tokens=10, usd=0)
    # Its worker may be about to hear of it.
    with pytest.raises(BudgetExhausted):
        within_budget(turn, ASK)
    Task.objects.filter(pk=gone.pk).update(status_at=timezone.now() - timedelta(seconds=settings.BUREAU_LEASE_SECONDS))
    with settled(turn):
        within_budget(turn, ASK)
    assert (Budget.objects.get().calls, Reservation.objects.count()) == (2, 0)


def test_a_budget_is_raised_as_far_as_its_columns_reach(begin, settings):
    settings.BUREAU_BUDGET_TOKENS = 2**31 - 1
    turn = begin("assistant", GOAL)
    budget._open(turn.mission_id)
    budget.raise_budget(turn.mission_id, "m-1")
    found = Budget.objects.get()
    assert found.tokens_limit == 2**31 - 2
    assert found.calls_limit == 2 * settings.BUREAU_BUDGET_CALLS


def test_what_is_tried_again_is_within_the_budget_as_well(begin, model, settings, monkeypatch):
    monkeypatch.setattr(model_api, "FIRST_PAUSE", 0.01)
    settings.BUREAU_BUDGET_CALLS = 3
    turn = begin("assistant", GOAL)
    model.add(
        messages_api.Reply(status=529, times=2),
        messages_api.Reply(text="Well."),
        messages_api.Reply(status=529, times=0),
    )
    with settled(turn):
        assert within_budget(turn, ASK).calls == 3
    budget_now = Budget.objects.get()
    assert (budget_now.calls, budget_now.reservations.count()) == (3, 0)
    with pytest.raises(BudgetExhausted):
        within_budget(turn, ASK)
    Budget.objects.update(calls_limit=5)
    # Two more, of the four that it would have been tried.
    with pytest.raises(ModelError), settled(turn):
        within_budget(turn, ASK)
    assert (Budget.objects.get().calls, len(model.requests), Reservation.objects.count()) == (5, 5, 0)


def test_the_next_reservation_settles_the_call_before_it(begin, settings, monkeypatch):
    settings.BUREAU_BUDGET_CALLS = 2
    turn = begin("assistant", GOAL)
    monkeypatch.setattr(budget, "converse", lambda turn, ask: Reply("", "end_turn", ask.model, Usage(1, 1)))
    within_budget(turn, ASK)
    within_budget(turn, ASK)
    assert (Budget.objects.get().calls, Reservation.objects.count()) == (1, 1)
    with pytest.raises(BudgetExhausted), settled(turn):
        within_budget(turn, ASK)
    assert (Budget.objects.get().calls, Reservation.objects.count()) == (2, 0)


def test_each_of_those_that_go_out_together_rings(settle, model, monkeypatch):
    rung: list[str] = []
    monkeypatch.setattr(coordinator, "doorbell", SimpleNamespace(ring_again=rung.append))
    model.add(triage(needs_plan=True), plan(*DIAMOND), says("step", text="Done.", times=0), answer())
    assert settle(GOAL).state == "completed"
    assert rung == ["default", "default"]


def test_a_plan_is_stored_in_as_many_statements_whatever_its_size(begin):
    def statements(count: int) -> int:
        turn = begin("assistant", GOAL)
        drafts = [
            SubPlanDraft(f"p{n}", "A part", "writer", (StepDraft("Write"),) * 3, (f"p{n - 1}",) if n else ())
            for n in range(count)
        ]
        with CaptureQueriesContext(connection) as captured:
            delegation.store_plan(turn.claim, drafts)
        mission = Task.objects.get(pk=turn.claim.task_id)
        assert mission.sub_plans.count() == count
        assert Subtask.objects.filter(sub_plan__mission=mission).count() == 3 * count
        assert mission.sub_plans.filter(depends_on=None).count() == 1
        return len(captured)

    assert statements(2) == statements(5)
