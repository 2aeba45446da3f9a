"""A remote agent as the specialist of one sub-plan of a mission: a real server of the SDK."""

import pytest

from agents.models import Decision
from directory.enrolment import add_remote_agent
from directory.health import success_rate
from directory.models import Agent
from directory.services import forget_agents
from tasks.models import SubPlan, Task
from tests.orchestration.far import Failing, Translator, settled, translates
from tests.orchestration.script import answer, part, plan, says, triage, writes
from tests.support.remote_agents import Asker, remote_agent

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]

GOAL = "Find out all about it and have it translated"
PARTS = (
    part("facts"),
    {**part("french", role="translator", needs=("facts",)), "goal": "Translate the report into French"},
    part("report", role="writer", needs=("french",)),
)


@pytest.fixture(autouse=True)
def loopback_allowed(settings):
    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8", "::1")
    forget_agents()


def planned(model, *more) -> None:
    model.add(triage(needs_plan=True), plan(*PARTS))
    model.add(writes("facts"), *more, writes("report"), answer("All of it, in French."))


def of(key: str) -> Task:
    return SubPlan.objects.select_related("task__agent").get(key=key).task


def prompt_about(model, words: str) -> str:
    return next(prompt for prompt in model.prompts if words in prompt)


def test_its_result_goes_into_the_next_part_and_the_answer(settle, seeded, model):
    translator = Translator()
    with remote_agent(translator, name="Lingo", skills=[translates()]) as remote:
        lingo = add_remote_agent(remote.url)
        planned(model)
        mission = settle(GOAL)
        assert (mission.state, mission.lease_owner, mission.due_at) == ("working", "", None)
        mission = settled(mission)
    assert (mission.state, mission.artifacts.get().parts) == ("completed", [{"text": "All of it, in French."}])
    assert of("french").agent == lingo
    assert of("facts").agent.slug == "researcher"
    # The envelope tells it what came before, and what it made goes on from there.
    assert "Result of facts." in translator.told[0]
    assert "Le Translate the report into French" in prompt_about(model, "Work on report")
    assert "Le Translate the report into French" in prompt_about(model, "put their results together")
    assert Decision.objects.get(point="allocate", key="allocate:french:0").choice == {"agent": "lingo"}
    # No agent was made for a role that somebody out there has.
    assert not Agent.objects.filter(options__has_key="mission").exists()
    assert (success_rate(lingo).succeeded, success_rate(lingo).failed) == (1, 0)


def test_its_question_is_the_missions(settle, seeded, model):
    with remote_agent(Asker(), name="Lingo", skills=[translates()]) as remote:
        add_remote_agent(remote.url)
        planned(model, says("follow-up", {"decision": "handle"}))
        mission = settled(settle(GOAL))
        assert mission.state == "input-required"
        assert "Lingo asks, for “Translate the report into French”" in mission.status_message["parts"][0]["text"]
        there = of("french").remote_leg.remote_task_id
        mission = settled(settle("Ada", task=mission.pk))
        assert of("french").remote_leg.remote_task_id == there
    assert mission.state == "completed"
    assert "Hello, Ada!" in prompt_about(model, "Work on report")


def test_what_it_fails_at_goes_to_another(settle, seeded, model):
    Agent.objects.create(slug="scribe", name="Scribe", role="translator", handler="specialist")
    with remote_agent(Failing(), name="Lingo", skills=[translates()]) as remote:
        lingo = add_remote_agent(remote.url)
        Agent.objects.filter(pk=lingo.pk).update(role="translator")
        planned(model, says("allocate", {"agent": "lingo"}, times=0), says("recover", {"strategy": "alternative"}))
        model.add(writes("french", "Le rapport."))
        mission = settled(settle(GOAL))
    assert mission.state == "completed"
    attempts = Task.objects.filter(metadata__subPlan="french").order_by("created_at")
    assert [(task.agent.slug, task.state) for task in attempts] == [("lingo", "failed"), ("scribe", "completed")]
    assert Decision.objects.get(point="recover").inputs["error"] == "No ink."
    assert "Le rapport." in prompt_about(model, "Work on report")
    assert (success_rate(lingo).succeeded, success_rate(lingo).failed) == (0, 1)


def test_when_it_is_forbidden_meanwhile_the_policy_gives_the_part_to_another(settle, seeded, model):
    Agent.objects.create(slug="scribe", name="Scribe", role="translator", handler="specialist")
    with remote_agent(Failing(), name="Lingo", skills=[translates()]) as remote:
        lingo = add_remote_agent(remote.url)
        Agent.objects.filter(pk=lingo.pk).update(role="translator")
        planned(model, says("allocate", {"agent": "lingo"}, times=0), writes("french"))
        mission = settle(GOAL)
        Agent.objects.filter(pk=lingo.pk).update(quarantined_at=mission.created_at)
        mission = settled(mission)
    assert mission.state == "completed"
    row = Decision.objects.get(point="recover")
    assert (row.brain, row.inputs["kind"], row.choice["strategy"]) == ("rules", "agent unavailable", "alternative")
