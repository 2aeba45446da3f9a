"""How remote agents are: what each call says about them, the circuit breaker, and success rates.

Every write is one guarded statement, so that any number of processes may report at once.
"""

import logging
import random
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Case, F, FloatField, Q, QuerySet, Sum, Value, When
from django.db.models.functions import Cast
from django.utils import timezone

from directory.exceptions import AddressRefused, AgentDisabled, AgentQuarantined, CircuitOpen, RemoteError
from directory.models import Agent, DelegationCount, Health

logger = logging.getLogger(__name__)

FAILURES_TO_OPEN = 5
OPEN_SECONDS = 30.0
MAX_OPEN_SECONDS = 3600.0
# How much the newest call counts in the smoothed latency.
LATENCY_WEIGHT = 0.2
JITTER = 0.2
RATE_DAYS = 30


def soon(seconds: float) -> datetime:
    """That many seconds from now, give or take some, so that not all come due at once."""
    return timezone.now() + timedelta(seconds=seconds * random.uniform(1 - JITTER, 1 + JITTER))  # noqa: S311


# --- May it be asked? ----------------------------------------------------------------------------


def check_available(agent: Agent) -> Agent:
    """The agent as it is this moment, if it may be given work: what the caller holds may be remembered.

    Raises AgentDisabled, AgentQuarantined, CircuitOpen.
    """
    current = Agent.objects.select_related("health").filter(pk=agent.pk).first()
    if current is None or not current.is_enabled:
        raise AgentDisabled(f"{agent.slug} is disabled.")
    if current.quarantined_at is not None:
        raise AgentQuarantined(f"{agent.slug} is in quarantine. {current.quarantine_reason}".strip())
    health = getattr(current, "health", None)
    if health and health.opened_at is not None:
        when = f" and is tried again at {health.retry_at:%H:%M:%S} UTC" if health.retry_at else ""
        raise CircuitOpen(
            f"{agent.slug} failed {health.failures} times in a row{when}. {health.last_error}", health.retry_at
        )
    return current


# --- What a call says ----------------------------------------------------------------------------


def record_call(agent_id: int, started_at: datetime, seconds: float, error: RemoteError | None) -> None:
    """Note how a call to a remote agent went; nothing happens if the agent is gone."""
    if isinstance(error, AddressRefused):
        return  # that was us
    if error is None or not error.is_fault:
        _record_success(agent_id, started_at, seconds, str(error) if error else "")
    else:
        _record_failure(agent_id, str(error))


def _record_success(agent_id: int, started_at: datetime, seconds: float, note: str) -> None:
    smoothed = Case(
        When(latency=None, then=Value(seconds)),
        default=F("latency") * (1 - LATENCY_WEIGHT) + Value(seconds * LATENCY_WEIGHT),
        output_field=FloatField(),
    )
    # An answer to a question from before the circuit opened says nothing about now.
    rows = Health.objects.filter(Q(opened_at=None) | Q(opened_at__lt=started_at), agent_id=agent_id)
    rows.update(
        failures=0,
        trips=0,
        opened_at=None,
        retry_at=None,
        last_seen_at=timezone.now(),
        last_error=note[:300],
        latency=smoothed,
    )


def _record_failure(agent_id: int, reason: str) -> None:
    rows = Health.objects.filter(agent_id=agent_id)
    rows.update(failures=F("failures") + 1, last_failed_at=timezone.now(), last_error=reason[:300])
    retry_at = soon(OPEN_SECONDS)
    opened = rows.filter(failures__gte=FAILURES_TO_OPEN, opened_at=None).update(
        opened_at=timezone.now(), retry_at=retry_at, probe_due_at=retry_at, trips=1
    )
    if opened:
        logger.warning(
            "Agent %s failed %d times in a row and is left alone for a while",
            agent_id,
            FAILURES_TO_OPEN,
            extra={"action": "circuit.opened"},
        )


# --- Probes --------------------------------------------------------------------------------------


def record_probe(agent_id: int, started_at: datetime, seconds: float, error: RemoteError | None) -> None:
    """Note the sign of life that was asked for: it closes an open circuit, or keeps it open for longer."""
    rows = Health.objects.filter(agent_id=agent_id)
    record_call(agent_id, started_at, seconds, error)
    next_probe = soon(settings.BUREAU_PROBE_SECONDS)
    # Open before this probe, and still: another one waits twice as long.
    half_open = rows.filter(opened_at__lt=started_at, retry_at__lte=started_at)
    trips = half_open.values_list("trips", flat=True).first()
    if trips is not None:
        retry_at = soon(min(OPEN_SECONDS * 2**trips, MAX_OPEN_SECONDS))
        half_open.update(retry_at=retry_at, probe_due_at=retry_at, trips=F("trips") + 1)
        return
    rows.filter(opened_at=None).update(probe_due_at=next_probe)


def claim_due(column: str, lease_seconds: float, limit: int) -> list[int]:
    """Agents whose `column` ("probe_due_at" or "refresh_due_at") is past, and which nobody else has taken.

    Taking one moves the time ahead by the lease: if whoever took it dies, it comes due again.
    """
    now = timezone.now()
    due = due_rows(column, now).order_by(column).values_list("agent_id", column)[:limit]
    until = now + timedelta(seconds=lease_seconds)
    return [
        agent_id
        for agent_id, was in list(due)
        if Health.objects.filter(agent_id=agent_id, **{column: was}).update(**{column: until})
    ]


def due_rows(column: str, now: datetime) -> QuerySet[Health]:
    """A disabled agent is let be."""
    return Health.objects.filter(agent__is_enabled=True, **{f"{column}__lte": now})


# --- Success rates -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rate:
    """How delegations ended lately. `share` and `seconds` (per delegation) are None where there were none."""

    succeeded: int = 0
    failed: int = 0
    seconds_total: float = 0.0

    @property
    def count(self) -> int:
        return self.succeeded + self.failed

    @property
    def share(self) -> float | None:
        return self.succeeded / self.count if self.count else None

    @property
    def seconds(self) -> float | None:
        return self.seconds_total / self.count if self.count else None


def record_delegation(agent: Agent, skill_id: str, *, ok: bool, seconds: float) -> None:
    """Count one delegation that ended. `skill_id` is empty where no skill was meant."""
    key = {"agent": agent, "skill_id": skill_id[:64], "day": timezone.now().date()}
    column = "succeeded" if ok else "failed"
    grown = {column: F(column) + 1, "seconds": F("seconds") + Value(seconds)}
    if DelegationCount.objects.filter(**key).update(**grown):
        return
    try:
        with transaction.atomic():
            DelegationCount.objects.create(**key, **{column: 1}, seconds=seconds)
    except IntegrityError:
        # The first of the day twice; or the agent is gone, and nothing is counted.
        DelegationCount.objects.filter(**key).update(**grown)


def rates(agents: Iterable[Agent], *, days: int = RATE_DAYS) -> dict[tuple[int, str], Rate]:
    """By agent id and skill id, of the last days; the empty skill id holds all of the agent's together."""
    since = timezone.now().date() - timedelta(days=days)
    rows = (
        DelegationCount.objects.filter(agent__in=list(agents), day__gt=since)
        .values_list("agent_id", "skill_id")
        .annotate(ok=Sum("succeeded"), bad=Sum("failed"), took=Sum(Cast("seconds", FloatField())))
    )
    found: dict[tuple[int, str], Rate] = {}
    for agent_id, skill_id, ok, bad, took in rows:
        total = found.get((agent_id, ""), Rate())
        found[agent_id, ""] = Rate(total.succeeded + ok, total.failed + bad, total.seconds_total + took)
        if skill_id:
            found[agent_id, skill_id] = Rate(ok, bad, took)
    return found


def success_rate(agent: Agent, skill_id: str = "", *, days: int = RATE_DAYS) -> Rate:
    """Of one agent, or of one of its skills."""
    return rates([agent], days=days).get((agent.pk, skill_id), Rate())
