"""Remote agents among those who may be given a part of a mission."""

import pytest
from django.utils import timezone

from agents.conversation import Conversation
from agents.orchestration import allocation
from agents.turn import Turn
from directory.identity import Caller
from directory.models import Agent, DelegationRule, Health, Skill
from directory.services import create_api_client, revoke_api_client
from tasks import delegation
from tasks.claims import claim_next
from tasks.content import Incoming
from tasks.delegation import StepDraft, SubPlanDraft
from tasks.models import SubPlan
from tasks.services import send_message
from tests.support.cast import ALICE

pytestmark = pytest.mark.django_db(transaction=True)

GOAL = "Translate the report into French"


@pytest.fixture
def remote(seeded):
    agent = Agent.objects.create(
        slug="lingo", name="Lingo", kind="remote", url="http://127.0.0.1:9/", binding="JSONRPC"
    )
    Skill.objects.create(agent=agent, skill_id="translate", name="Translate", examples=[GOAL])
    Health.objects.create(agent=agent)
    return agent


def allocated(*steps: StepDraft, caller: Caller = ALICE) -> str:
    assistant = Agent.objects.get(slug="assistant")
    send_message(caller, assistant, Incoming.from_text("Do it"))
    claim = claim_next("default", "test-worker")
    turn = Turn(claim, assistant)
    delegation.store_plan(claim, [SubPlanDraft("part", GOAL, "translator", steps or (StepDraft("Translate"),))])
    return allocation.allocate(turn, Conversation(turn), SubPlan.objects.get()).slug


def test_one_whose_examples_mean_it_gets_it(remote):
    assert allocated() == "lingo"


def test_a_step_with_a_tool_of_ours_stays_here(remote):
    assert allocated(StepDraft("Write", "write_file", {"path": "a.md", "text": "x"})) != "lingo"


@pytest.mark.parametrize("change", ["disabled", "quarantined", "open", "denied"])
def test_one_that_may_not_be_asked_does_not(remote, change):
    now = timezone.now()
    match change:
        case "disabled":
            Agent.objects.filter(pk=remote.pk).update(is_enabled=False)
        case "quarantined":
            Agent.objects.filter(pk=remote.pk).update(quarantined_at=now)
        case "open":
            Health.objects.update(opened_at=now)
        case "denied":
            DelegationRule.objects.create(target_agent=remote, effect="deny")
    assert allocated() != "lingo"


def limited(kind: str, agents: list[str]) -> Caller:
    if kind == "token":
        return Caller("token:peer", "peer", agents=frozenset(agents))
    client, _ = create_api_client("limited", agents=agents)
    if kind == "revoked key":
        revoke_api_client(client)
    return Caller.from_client(client)


@pytest.mark.parametrize("kind", ["key", "revoked key", "token"])
def test_a_caller_for_certain_agents_reaches_no_other_by_a_part(remote, kind):
    assert allocated(caller=limited(kind, ["assistant"])) != "lingo"


@pytest.mark.parametrize("kind", ["key", "token"])
def test_a_caller_for_this_agent_does(remote, kind):
    assert allocated(caller=limited(kind, ["assistant", "lingo"])) == "lingo"
