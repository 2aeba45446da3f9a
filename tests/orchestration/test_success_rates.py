"""How attempts at sub-plans end is counted once each, and the next allocation goes by it."""

import pytest

from agents import runtime
from agents.models import Decision
from directory import health
from directory.models import Agent, DelegationCount
from tasks.models import SubPlan, Task
from tasks.services import cancel_task
from tests.orchestration.script import answer, part, plan, says, step, triage, writes
from tests.support.cast import ALICE

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]

GOAL = "Find out all about it and write a report"


def rate(slug: str) -> tuple[int, int]:
    found = health.success_rate(Agent.objects.get(slug=slug))
    return found.succeeded, found.failed


def planned(model, *parts) -> None:
    model.add(triage(needs_plan=True), plan(*parts))


def test_completions_and_failures_are_counted(settle, model):
    planned(model, part("facts"), part("report", role="writer", needs=("facts",)))
    model.add(writes("facts", status=529, times=4), writes("facts"), writes("report"), answer())
    assert settle(GOAL).state == "completed"
    assert (rate("researcher"), rate("writer")) == ((1, 1), (1, 0))
    assert set(SubPlan.objects.values_list("counted", flat=True)) == {1, 2}


def test_an_attempt_is_counted_once_however_often_its_end_is_looked_at(settle, model):
    planned(model, part("facts"), part("asker", step("Read", "read_file"), step("Work on asker")))
    model.add(writes("facts"))
    mission = settle(GOAL)
    assert (mission.state, rate("researcher")) == ("input-required", (1, 0))
    # Looked at again, and again by a turn that knew nothing of the first look.
    Task.objects.filter(pk=mission.pk).update(due_at=mission.created_at)
    runtime.drain("default")
    assert rate("researcher") == (1, 0)


def test_the_loser_of_two_counts_counts_nothing(settle, model):
    from tasks.delegation import count_attempt

    planned(model, part("facts"))
    model.add(writes("facts"), answer())
    settle(GOAL)
    stale = SubPlan.objects.select_related("task__agent").get()
    stale.counted = 0
    count_attempt(stale, ok=True)
    assert rate("researcher") == (1, 0)


def test_what_a_person_stopped_or_refused_is_no_failure(settle, model, project):
    path = str(project / "notes.md")
    planned(model, part("file", step("Write it", "write_file", path=path, text="Hello"), step("Work on file")))
    mission = settle(GOAL)
    assert settle("no", task=mission.pk).state == "failed"
    planned(model, part("asker", step("Read", "read_file"), step("Work on asker")))
    mission = settle(GOAL)
    cancel_task(ALICE, mission.children.get().pk)
    model.add(says("recover", {"strategy": "abandon"}))
    runtime.drain("default")
    assert DelegationCount.objects.count() == 0


def test_the_one_that_succeeded_gets_the_next(settle, model, settings):
    settings.BUREAU_POINTS_OFF = ("allocate",)
    other = Agent.objects.create(slug="a-scout", name="Scout", role="researcher", handler="specialist")
    for _ in range(3):
        health.record_delegation(other, "", ok=False, seconds=1.0)
        health.record_delegation(Agent.objects.get(slug="researcher"), "", ok=True, seconds=1.0)
    planned(model, part("facts"))
    model.add(writes("facts"), answer())
    mission = settle(GOAL)
    assert mission.children.get().agent.slug == "researcher"
    candidates = Decision.objects.get(point="allocate").candidates
    assert [one["agent"] for one in candidates] == ["researcher", "a-scout"]
    assert "succeeded in 100%" in candidates[0]["why"]
    assert "succeeded in 0%" in candidates[1]["why"]
