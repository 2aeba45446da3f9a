"""What an agent's page shows, read from the rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from django.conf import settings
from django.db.models import QuerySet, Sum
from django.urls import reverse
from django.utils import timezone

from directory import cards, listing, memory
from directory.condition import Condition, condition_of, health_of
from directory.health import RATE_DAYS, Rate, rates
from directory.identity import Caller
from directory.models import Agent, CardRevision, DelegationCount, OutgoingRequest, ProbeResult
from directory.names import names_of
from tasks.models import Task

TASKS = 10
# How many of the newest missions are looked through for those of one agent: there is no index for that.
STRETCH = 1000
REVISIONS = 10
REMEMBERED = 10
DAYS = 14


@dataclass(frozen=True, slots=True)
class Day:
    """How the delegations of one day ended."""

    day: date
    rate: Rate


def read(caller: Caller, agent: Agent) -> dict[str, Any]:
    """All of the page. What is for operators only is not there for others."""
    found = rates([agent])
    context = {
        "agent": agent,
        "condition": condition_of(agent),
        "can_work": condition_of(agent) in (Condition.READY, Condition.HALF_OPEN, Condition.OPEN),
        "health": health_of(agent),
        "rate": found.get((agent.pk, ""), Rate()),
        "skills": [(skill, found.get((agent.pk, skill.skill_id), Rate())) for skill in agent.skills.all()],
        "tasks": recent_tasks(caller, agent),
        "address": f"{settings.BUREAU_PUBLIC_URL}{reverse('a2a-agent', args=[agent.slug])}",
        "card_address": f"{settings.BUREAU_PUBLIC_URL}{reverse('agent-card', args=[agent.slug])}",
        "rate_days": RATE_DAYS,
    }
    if not agent.is_remote:
        return context
    context |= {
        "own_address": listing.address_for(caller, agent),
        "days": days_of(agent),
        "remembered": _remembered(caller, agent),
        "needs": cards.auth_needs(agent.card),
        "claims": [word for name, word in CLAIMS if cards.capability(agent.card, name)],
    }
    return context | (_for_operators(agent) if caller.is_operator else {})


CLAIMS = (("streaming", "stream"), ("pushNotifications", "push"), ("extendedAgentCard", "show an extended card"))


def _for_operators(agent: Agent) -> dict[str, Any]:
    revisions = list(agent.revisions.order_by("-number")[:REVISIONS])
    return {
        "revisions": revisions,
        "pending": next((one for one in revisions if one.state == CardRevision.State.PENDING), None),
        "deciders": names_of(one.decided_by for one in revisions if one.decided_by),
        "probe": newest_probe(agent),
        "interfaces": cards.interfaces(agent.card),
        "credential": getattr(agent, "credential", None),
    }


def newest_probe(agent: Agent) -> ProbeResult | None:
    return ProbeResult.objects.filter(agent=agent).order_by("-pk").first()


def days_of(agent: Agent) -> list[Day]:
    """The last days on which something was delegated to it, newest first."""
    since = timezone.now().date() - timedelta(days=DAYS)
    rows = (
        DelegationCount.objects.filter(agent=agent, day__gt=since)
        .values_list("day")
        .annotate(ok=Sum("succeeded"), bad=Sum("failed"), took=Sum("seconds"))
        .order_by("-day")
    )
    return [Day(day, Rate(ok, bad, took)) for day, ok, bad, took in rows]


def recent_tasks(caller: Caller, agent: Agent) -> list[Task]:
    """The newest of its tasks that the caller may see: missions for it, and what was delegated to it."""
    if caller.is_operator:
        chosen = _of_agent(Task.objects.filter(parent=None), agent)
        parts = Task.objects.filter(parent__isnull=False, agent=agent).order_by("-status_at", "-id")
        chosen += list(parts.values_list("pk", flat=True)[:TASKS])
    else:
        chosen = _of_agent(Task.objects.filter(owner=caller.principal), agent)
    tasks = Task.objects.filter(pk__in=chosen).order_by("-status_at", "-id")
    return list(tasks.defer("status_message", "metadata")[:TASKS])


def _of_agent(tasks: QuerySet[Task], agent: Agent) -> list[Any]:
    newest = tasks.order_by("-status_at", "-id").values_list("pk", "agent_id")[:STRETCH]
    return [pk for pk, agent_id in newest if agent_id == agent.pk][:TASKS]


def _remembered(caller: Caller, agent: Agent) -> QuerySet[OutgoingRequest]:
    return memory.recent(None if caller.is_operator else caller.principal, agent=agent, limit=REMEMBERED)
