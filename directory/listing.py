"""Which agents somebody is told of, and by which address. (docs/adr/0042)"""

from collections.abc import Iterable, Mapping

from django.conf import settings

from directory.identity import Caller
from directory.models import Agent
from directory.rules import Verdict, verdicts


def known_to(caller: Caller) -> list[Agent]:
    """The enabled agents that this caller is told of, by slug, with their skills.

    A person here: all that they may give work to. A program: what is published, and beside it the remote agents
    that its key is good for. A remote agent in quarantine, or that a rule keeps from everybody, is shown to nobody.
    """
    agents = Agent.objects.filter(is_enabled=True).prefetch_related("skills").order_by("slug")
    return shown_to(caller, agents)


def shown_to(caller: Caller, agents: Iterable[Agent]) -> list[Agent]:
    """Those of these agents that the caller is told of, in their order. Prefetch `skills`."""
    agents = list(agents)
    allowed = verdicts(None, [agent for agent in agents if agent.is_remote])
    return [agent for agent in agents if _is_shown(caller, agent, allowed)]


def _is_shown(caller: Caller, agent: Agent, allowed: Mapping[int, Verdict]) -> bool:
    if not agent.is_enabled or (agent.is_remote and not allowed[agent.pk].is_allowed):
        return False
    if caller.is_person or agent.is_published:
        return True
    return agent.is_remote and bool(caller.scopes) and caller.may_call(agent.slug)


def address_for(caller: Caller, agent: Agent) -> str:
    """Where this caller may speak to the agent: its own address, or ours, from which we pass it on.

    The address of a remote agent is told to people, and to strangers where it is published; one inside our network
    to operators alone. Whoever gets ours speaks with our credential, and needs none of the agent's.
    """
    ours = f"{settings.BUREAU_PUBLIC_URL}/a2a/{agent.slug}/"
    if not agent.is_remote:
        return ours
    is_told = caller.is_operator if agent.is_internal else caller.is_person or agent.is_published
    return agent.url if is_told else ours
