"""What a remote agent asks goes up to the mission that it works for, and the answer down to the same remote task."""

import pytest
from django.utils import timezone

from agents import runtime
from agents.following import follow_due
from agents.models import RemoteLeg
from directory import calls
from directory.enrolment import add_remote_agent
from directory.models import Agent
from tasks.models import Task
from tests.orchestration.script import answer, part, plan, says, triage, writes
from tests.support.remote_agents import Asker, Guard, remote_agent
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]

GOAL = "Find out all about it and write a report"


@pytest.fixture(autouse=True)
def loopback_allowed(settings):
    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8", "::1")


def hired(remote) -> Agent:
    agent = add_remote_agent(remote.url)
    agent.role = "translator"
    agent.save()
    return agent


def asked(mission: Task) -> Task:
    """The mission once what happens there has come up to it."""

    def is_settled() -> bool:
        RemoteLeg.objects.filter(due_at__isnull=False).update(due_at=timezone.now())
        follow_due()
        runtime.drain("default")
        mission.refresh_from_db()
        return mission.state not in Task.RUNNING

    wait_until(is_settled)
    return mission


def said(mission: Task) -> str:
    return mission.status_message["parts"][0]["text"]


@pytest.mark.parametrize(("executor", "state"), [(Guard, "auth-required"), (Asker, "input-required")])
def test_it_comes_up_and_the_answer_goes_down(settle, model, executor, state):
    with remote_agent(executor()) as remote:
        hired(remote)
        model.add(triage(needs_plan=True), plan(part("french", role="translator")), answer("Voila."))
        mission = asked(settle(GOAL))
        assert mission.state == state
        assert ("badge" if executor is Guard else "name") in said(mission)
        there = RemoteLeg.objects.get().remote_task_id
        model.add(says("follow-up", {"decision": "handle"}))
        mission = asked(settle("Ada 7", task=mission.pk))
        assert mission.state == "completed"
        assert RemoteLeg.objects.get().remote_task_id == there
        child = Task.objects.get(parent=mission)
        assert "Ada 7" in child.artifacts.get().parts[0]["text"]


def test_it_ends_by_itself_and_the_mission_goes_on(settle, model):
    """Nobody has answered: the question is not asked any more, here and above."""
    with remote_agent(Asker()) as remote:
        agent = hired(remote)
        parts = [part("french", role="translator"), part("maps")]
        model.add(triage(needs_plan=True), plan(*parts), writes("maps"), answer("Half of it."))
        model.add(says("recover", {"strategy": "abandon", "reason": "It gave up.", "confidence": 0.9}))
        mission = asked(settle(GOAL))
        assert mission.state == "input-required"
        calls.cancel_task(agent, RemoteLeg.objects.get().remote_task_id)
        RemoteLeg.objects.update(due_at=timezone.now())
        follow_due()
        mission.refresh_from_db()
        assert (mission.state, mission.status_message) == ("submitted", None)
        asked(mission)
        assert mission.children.get(agent=agent).state == "failed"
        assert "name" not in said(mission)


def test_a_mission_that_asks_something_else_is_left_alone(settle, model):
    with remote_agent(Asker()) as remote:
        agent = hired(remote)
        model.add(triage(needs_plan=True), plan(part("french", role="translator")), answer())
        mission = asked(settle(GOAL))
        message = mission.status_message
        message["metadata"]["asks"]["task"] = "another"
        Task.objects.filter(pk=mission.pk).update(status_message=message)
        before = Task.objects.values().get(pk=mission.pk)
        calls.cancel_task(agent, RemoteLeg.objects.get().remote_task_id)
        RemoteLeg.objects.update(due_at=timezone.now())
        follow_due()
        assert Task.objects.values().get(pk=mission.pk) == before
        assert mission.children.get(agent=agent).state == "submitted"
