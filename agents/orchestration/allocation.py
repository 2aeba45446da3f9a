"""Who gets a sub-plan: by role, then skills, then how well it went lately, load, and who works here already."""

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from agents.brain import get_brain
from agents.conversation import Conversation
from agents.matching import similarities
from agents.orchestration.points import ALLOCATE, AllocateCase
from agents.registry import takes_sub_plans
from agents.turn import Turn
from directory import health
from directory.models import Agent
from directory.rules import verdicts
from directory.services import forget_agents
from tasks.models import SubPlan, Task

ROLE = 1.0
SKILL = 0.3
HERE = 0.2
SUCCESS = 0.1
LOAD = 0.05
# A remote agent knows nothing of our roles: it has one that its examples are so near to.
MEANT = 0.55


@dataclass(frozen=True, slots=True)
class Template:
    """What an agent is made from when none has the role: what it is told, and the tools that it may use."""

    system: str
    tools: tuple[str, ...]


LOOKS: tuple[str, ...] = ("list_files", "read_file", "list_agents", "summarize", "answer")
TEMPLATES = {
    "writer": Template("You write for readers in a hurry: plain, exact, complete.", (*LOOKS, "write_file")),
    "researcher": Template("You gather what is known from the material at hand, and name your sources.", LOOKS),
    "librarian": Template("You find and show what is there, and judge nothing.", LOOKS),
    "critic": Template("You look for what is wrong, missing or unproven, and say how it could be mended.", LOOKS),
}
ANY_ROLE = Template("You are a {role}, and do what a good {role} would do.", (*LOOKS, "write_file"))


@dataclass(frozen=True, slots=True)
class Fit:
    """How well an agent fits a sub-plan, in plain values. `nearness` and `success` are 0 to 1."""

    slug: str
    has_role: bool
    nearness: float
    success: float | None
    load: int
    is_here: bool

    @property
    def score(self) -> float:
        success = 0.5 if self.success is None else self.success
        found = ROLE * self.has_role + SKILL * self.nearness + SUCCESS * success - LOAD * min(self.load, 4)
        return max(found + HERE * self.is_here, 0.0)

    @property
    def why(self) -> str:
        words = ["has the role" if self.has_role else "another role"]
        if self.nearness >= 0.005:
            words.append(f"skills fit by {self.nearness:.0%}")
        if self.success is not None:
            words.append(f"succeeded in {self.success:.0%}")
        if self.load:
            words.append(f"{self.load} at work")
        if self.is_here:
            words.append("works on this mission")
        return ", ".join(words)


def rank(fits: Sequence[Fit]) -> list[Fit]:
    """Best first; those with the role only, where there are any."""
    with_role = [fit for fit in fits if fit.has_role]
    return sorted(with_role or fits, key=lambda fit: (-fit.score, fit.slug))


class Field:
    """Who could take part in a mission at this moment, and how they do; read once for all that is given out now."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.agents = candidates(turn)
        below = list(Task.objects.filter(root_id=turn.mission_id).values_list("agent_id", "state"))
        self.here = {agent_id for agent_id, _ in below}
        self.load = Counter(agent_id for agent_id, state in below if state in Task.LIVE)
        self.rates = health.rates(self.agents)

    def without(self, avoid: Sequence[str]) -> list[Agent]:
        return [agent for agent in self.agents if agent.slug not in avoid]

    def make(self, role: str, avoid: Sequence[str]) -> Agent:
        """An agent of this role for this mission only."""
        agent = make_agent(self.turn.mission_id, role, avoid)
        self.agents.append(agent)
        return agent

    def give(self, agent: Agent) -> Agent:
        """Count it as at work from now on."""
        self.here.add(agent.pk)
        self.load[agent.pk] += 1
        return agent


def allocate(turn: Turn, conversation: Conversation, plan: SubPlan, field: Field | None = None) -> Agent | None:
    """The agent for this attempt at a sub-plan; one is made for the mission where none has the role.

    Who lacks a tool that a step needs does not get it, whatever its role. None: the sub-plan is meant for certain
    agents, and none of them may have it now. `field` is for giving out several.
    """
    if plan.wanted:
        return _first_wanted(turn, conversation, plan)
    field = field or Field(turn)
    known = field.without(plan.avoid)
    fits, agents = fitting(field, plan, known)
    if not agents or not any([fit.has_role for fit in fits] + [agent.role == plan.role for agent in known]):
        made = field.make(plan.role, plan.avoid)
        agents[made.slug] = made
        fits = _fits(field, plan, list(agents.values()))
    ranked = rank(fits)
    case = _case(conversation, plan, tuple((fit.slug, fit.score, fit.why) for fit in ranked))
    chosen = get_brain().decide(turn, ALLOCATE, case).answer.agent
    return field.give(agents.get(chosen) or agents[ranked[0].slug])


def fitting(field: Field, plan: SubPlan, known: Sequence[Agent]) -> tuple[list[Fit], dict[str, Agent]]:
    """Those of the agents that have every tool that the sub-plan needs, by slug, and how they fit it."""
    needed = {step.tool for step in plan.subtasks.all() if step.tool}
    agents = {
        agent.slug: agent
        for agent in known
        # A remote agent has no tool of ours.
        if needed <= set(() if agent.is_remote else agent.options.get("tools", needed))
    }
    return _fits(field, plan, list(agents.values())), agents


def alternatives(turn: Turn, plan: SubPlan, avoid: Sequence[str]) -> tuple[str, ...]:
    """Slugs of those who could have a sub-plan in place of the ones to avoid."""
    if plan.wanted:
        left = [slug for slug in plan.wanted if slug not in avoid]
        refused = refusals(turn, list(_known().filter(slug__in=left)))
        return tuple(slug for slug in left if refused.get(slug) == "")
    field = Field(turn)
    fits, _ = fitting(field, plan, field.without(avoid))
    return tuple(fit.slug for fit in rank(fits) if fit.has_role)


def _first_wanted(turn: Turn, conversation: Conversation, plan: SubPlan) -> Agent | None:
    """The first of the agents that it is meant for which may have it now. Who may not is on record with the reason."""
    agents = {agent.slug: agent for agent in _known().filter(slug__in=plan.wanted)}
    refused = dict.fromkeys(plan.wanted, "It is not in the directory any more, or disabled.")
    refused |= refusals(turn, list(agents.values())) | dict.fromkeys(plan.avoid, "It has failed at this.")
    free = [slug for slug in plan.wanted if not refused[slug]]
    no = tuple((slug, refused[slug]) for slug in plan.wanted if refused[slug])
    case = _case(conversation, plan, tuple((slug, 1.0, "the request was routed to it") for slug in free[:1]), no)
    get_brain().decide(turn, ALLOCATE, case)
    return agents[free[0]] if free else None


def _case(
    conversation: Conversation,
    plan: SubPlan,
    ranked: tuple[tuple[str, float, str], ...],
    refused: tuple[tuple[str, str], ...] = (),
) -> AllocateCase:
    return AllocateCase(
        conversation,
        anchor=f"{plan.key}:{plan.attempt}",
        key_of_part=plan.key,
        goal=plan.goal,
        role=plan.role,
        ranked=ranked,
        refused=refused,
    )


def candidates(turn: Turn, avoid: Sequence[str] = ()) -> list[Agent]:
    """The agents that may be given a part of this mission."""
    found = [agent for agent in _known().exclude(slug__in=avoid) if agent.is_remote or takes_sub_plans(agent.handler)]
    refused = refusals(turn, found)
    return [agent for agent in found if not refused[agent.slug]]


def reachable(turn: Turn) -> list[Agent]:
    """All enabled agents but the one that asks and those that were made for some mission, ours first."""
    agents = [agent for agent in _known().exclude(pk=turn.agent.pk) if "mission" not in agent.options]
    return sorted(agents, key=lambda agent: (agent.is_remote, agent.slug))


def refusals(turn: Turn, agents: Sequence[Agent]) -> dict[str, str]:
    """By slug why an agent may not be given work of this mission now; "" where it may."""
    mission = str(turn.mission_id)
    allowed = verdicts(turn.agent, agents)
    caller = turn.standing if any(agent.is_remote for agent in agents) else turn.caller
    found = {}
    for agent in agents:
        known = getattr(agent, "health", None)
        found[agent.slug] = ""
        if not allowed[agent.pk].is_allowed:
            found[agent.slug] = allowed[agent.pk].reason
        elif agent.is_remote and not caller.may_call(agent.slug):
            # Those here are how the agent that was called does its work; others elsewhere are not.
            found[agent.slug] = "Whoever asked may not call it."
        elif agent.options.get("mission", mission) != mission:
            found[agent.slug] = "It was made for another mission."
        elif agent.is_remote and known is not None and known.opened_at is not None:
            found[agent.slug] = f"It failed {known.failures} times in a row, and is left alone for a while."
    return found


def _known() -> QuerySet[Agent]:
    return Agent.objects.filter(is_enabled=True).select_related("health").prefetch_related("skills")


def make_agent(mission: uuid.UUID, role: str, avoid: Sequence[str] = ()) -> Agent:
    """An agent of this role for this mission only; the same one when it is asked for again."""
    template = TEMPLATES.get(role, ANY_ROLE)
    number = 1
    while (slug := f"{role[:40]}-{mission.hex[:12]}" + (f"-{number}" if number > 1 else "")) in avoid:
        number += 1
    options: dict[str, Any] = {
        "mission": str(mission),
        "system": template.system.format(role=role.replace("-", " ")),
        "tools": list(template.tools),
    }
    agent, is_new = Agent.objects.get_or_create(
        slug=slug,
        defaults={
            "name": f"{role.replace('-', ' ').capitalize()} of one mission",
            "description": "Made for one mission, because no agent here had the role.",
            "role": role,
            "handler": "specialist",
            "options": options,
            "input_modes": ["text/plain"],
            "output_modes": ["text/plain"],
            "is_published": False,
        },
    )
    if is_new:
        forget_agents()
    return agent


def dismiss(mission: uuid.UUID) -> None:
    """The mission has ended: its own agents take nothing more. They stay on record."""
    if Agent.objects.filter(is_enabled=True, options__mission=str(mission)).update(is_enabled=False):
        forget_agents()


def dismiss_left() -> int:
    """Dismiss the agents of missions that ended without seeing to it, such as canceled ones. Returns how many."""
    own = Agent.objects.filter(is_enabled=True, options__has_key="mission")
    by_mission = {agent.pk: agent.options["mission"] for agent in own}
    ended = Task.objects.filter(pk__in=set(by_mission.values()), state__in=Task.TERMINAL).values_list("pk", flat=True)
    gone = {str(pk) for pk in ended}
    left = [pk for pk, mission in by_mission.items() if mission in gone]
    found = Agent.objects.filter(pk__in=left, is_enabled=True).update(is_enabled=False) if left else 0
    if found:
        forget_agents()
    return found


def _fits(field: Field, plan: SubPlan, agents: Sequence[Agent]) -> list[Fit]:
    nearness = _nearness(plan, agents)
    return [
        Fit(
            agent.slug,
            agent.role == plan.role or (agent.is_remote and nearness[agent.slug] >= MEANT),
            nearness[agent.slug],
            field.rates[agent.pk, ""].share if (agent.pk, "") in field.rates else None,
            field.load[agent.pk],
            agent.pk in field.here,
        )
        for agent in agents
    ]


def _nearness(plan: SubPlan, agents: Sequence[Agent]) -> dict[str, float]:
    """How near the goal is to what each agent says of itself; not looked at where it could not matter."""
    has_remote = any(agent.is_remote for agent in agents)
    if not has_remote and sum(agent.role == plan.role for agent in agents) == 1:
        return dict.fromkeys((agent.slug for agent in agents), 0.0)
    found: dict[str, float] = {}
    for agent in agents:
        texts = [agent.description, *(text for skill in agent.skills.all() for text in skill.examples)]
        scores = similarities(plan.goal, [text for text in texts if isinstance(text, str) and text])
        found[agent.slug] = max(0.0, min(max(scores, default=0.0), 1.0))
    return found
