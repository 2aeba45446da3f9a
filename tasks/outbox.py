"""What is still to be pushed: the events behind each configuration's cursor, in order, at least once.

Nothing is written when a task moves, but for one mark on configurations of that very task. Whoever delivers
claims a configuration with a lease, and moves its cursor after each event; what a killed process leaves
behind is a lease that runs out, and the next one goes on behind the cursor.
"""

import logging
import random
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from directory.http import origin
from tasks import doorbell
from tasks.models import Event, PushAttempt, PushConfig, PushEndpoint, Task
from tasks.push import due_unless_claimed
from tasks.queries import EventRow
from tasks.sql import Insert, fetch_one, this_database

logger = logging.getLogger(__name__)

# Of one request; the lease is renewed after each.
TIMEOUT_SECONDS = 10.0
LEASE_SECONDS = 20.0
FIRST_PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 15 * 60.0
GIVE_UP_AFTER = timedelta(days=1)
# So many failures in a row of one owner's pushes at one place, and it is left alone for a while.
FAILURES_TO_OPEN = 5


@dataclass(frozen=True, slots=True)
class PushClaim:
    """The right to deliver to one configuration, until the lease runs out; a newer epoch ends it."""

    config_id: int
    epoch: int
    task_id: uuid.UUID


@dataclass(frozen=True, slots=True)
class Delivery:
    """What is to be delivered next, and where."""

    config: PushConfig
    event: EventRow


def notice(task_id: uuid.UUID) -> None:
    """The task has new events: its configurations are due. One that is due or claimed is looked at anyway."""
    waiting = PushConfig.objects.filter(task_id=task_id, due_at=None, disabled_at=None)
    if waiting.update(due_at=timezone.now()):
        doorbell.ring_push()


def sweep() -> None:
    """Find what was missed: a process that died between its commit and its notice, or a lease that ran out."""
    now = timezone.now()
    missed = PushConfig.objects.filter(due_at=None, disabled_at=None, is_over=False, task__last_seq__gt=F("cursor"))
    keys = list(missed.values_list("pk", flat=True)[:1000])
    if keys:
        PushConfig.objects.filter(pk__in=keys, due_at=None).update(due_at=now)
    if PushConfig.objects.filter(due_at__lte=now).exists():
        doorbell.ring_push()


def claim_due(limit: int) -> list[PushClaim]:
    """Claim configurations that are due, the longest waiting first."""
    now = timezone.now()
    due = PushConfig.objects.filter(due_at__lte=now).order_by("due_at")
    claims = []
    for key, epoch, task_id in list(due.values_list("pk", "epoch", "task_id")[:limit]):
        mine = PushConfig.objects.filter(pk=key, epoch=epoch, due_at__lte=now)
        if mine.update(epoch=epoch + 1, due_at=now + timedelta(seconds=LEASE_SECONDS)):
            claims.append(PushClaim(key, epoch + 1, task_id))
    return claims


def next_delivery(claim: PushClaim) -> Delivery | None:
    """The oldest event that was not delivered; None when there is none, it must wait, or the claim is over."""
    config = _held(claim).select_related("task").first()
    if config is None:
        return None
    # Before the look: what comes after it has a higher number.
    last_seq, state = config.task.last_seq, config.task.state
    events = Event.objects.filter(task_id=claim.task_id, seq__gt=config.cursor, kind__in=Event.ON_THE_WIRE)
    row = events.order_by("seq").values_list("seq", "kind", "payload", "created_at").first()
    if row is None:
        _settle(claim, last_seq, is_over=state in Task.TERMINAL)
        return None
    return Delivery(config, EventRow(*row)) if _may_try(config, claim) else None


def _settle(claim: PushClaim, last_seq: int, *, is_over: bool) -> None:
    """Nothing is left up to that event: wait for the next notice."""
    _held(claim).update(due_at=None, cursor=last_seq, is_over=is_over)
    # A notice that came before this update found the row claimed, and left it to us.
    if PushConfig.objects.filter(pk=claim.config_id, due_at=None, task__last_seq__gt=F("cursor")).exists():
        notice(claim.task_id)


def record(claim: PushClaim, delivery: Delivery, *, status: int | None, error: str, seconds: float) -> bool:
    """Keep what came of it, and move on or step back; False when this claim has nothing more to do."""
    now = timezone.now()
    with transaction.atomic():
        attempt = PushAttempt(
            config=delivery.config,
            seq=delivery.event.seq,
            status=status,
            error=error[:300],
            seconds=seconds,
            created_at=now,
        )
        if error:
            return _step_back(claim, delivery.config, attempt, now)
        done = _held(claim).update(
            cursor=delivery.event.seq,
            due_at=now + timedelta(seconds=LEASE_SECONDS),
            failures=0,
            failing_since=None,
        )
        if done:
            attempt.save()
            _endpoint(delivery.config).delete()
    return bool(done)


def _step_back(claim: PushClaim, config: PushConfig, attempt: PushAttempt, now: datetime) -> bool:
    failures = config.failures + 1
    since = config.failing_since or now
    is_hopeless = now - since >= GIVE_UP_AFTER
    changed = _held(claim).update(
        failures=failures,
        failing_since=since,
        due_at=None if is_hopeless else now + _pause(failures),
        disabled_at=now if is_hopeless else None,
    )
    if changed:
        attempt.save()
        _note_failure(config, now)
        if is_hopeless:
            logger.warning("Push given up after a day of failures", extra={"action": "push.disabled"})
    return False


def release(claim: PushClaim) -> None:
    """Due again at once: whoever had it has to stop."""
    _held(claim).update(due_at=timezone.now())


def redeliver(configs: "QuerySet[PushConfig]", *, after: int | None = None) -> int:
    """Deliver again, also where it was given up: what is outstanding, or everything behind event `after`.

    At once, or when the delivery that is under way has had its time.
    """
    again = {"cursor": after} if after is not None else {}
    count = configs.update(
        **again,
        due_at=due_unless_claimed(timezone.now()),
        epoch=F("epoch") + 1,
        failures=0,
        failing_since=None,
        disabled_at=None,
        is_over=False,
    )
    doorbell.ring_push()
    return count


def _held(claim: PushClaim) -> "QuerySet[PushConfig]":
    return PushConfig.objects.filter(pk=claim.config_id, epoch=claim.epoch, disabled_at=None)


# --- The circuit breaker of a place ---------------------------------------------------------------


def _may_try(config: PushConfig, claim: PushClaim) -> bool:
    """Whether the place is to be tried now. If not, the configuration waits until it is, or is given up."""
    endpoint = _endpoint(config).first()
    if endpoint is None or endpoint.retry_at is None:
        return True
    now = timezone.now()
    if endpoint.retry_at <= now:
        # Of all that are due, one tries.
        probing = PushEndpoint.objects.filter(pk=endpoint.pk, retry_at=endpoint.retry_at)
        endpoint.retry_at = now + timedelta(seconds=LEASE_SECONDS)
        if probing.update(retry_at=endpoint.retry_at):
            return True
    since = config.failing_since or endpoint.failing_since
    is_hopeless = now - since >= GIVE_UP_AFTER
    _held(claim).update(
        failing_since=since,
        due_at=None if is_hopeless else endpoint.retry_at + timedelta(seconds=random.uniform(0, 1)),  # noqa: S311
        disabled_at=now if is_hopeless else None,
    )
    return False


def _endpoint(config: PushConfig) -> "QuerySet[PushEndpoint]":
    return PushEndpoint.objects.filter(owner=config.task.owner, origin=origin(config.url))


def _note_failure(config: PushConfig, now: datetime) -> None:
    row = Insert(
        PushEndpoint,
        {"owner": config.task.owner, "origin": origin(config.url), "failures": 1, "failing_since": now},
        # One statement: who finds it open for others deletes it at any moment. The row is ours until the commit.
        f"ON CONFLICT (owner, origin) DO UPDATE SET failures = {PushEndpoint._meta.db_table}.failures + 1 "
        "RETURNING id, failures",
    )
    counted = fetch_one(*row.render("", this_database()))
    assert counted is not None
    key, failures = counted
    is_open = failures >= FAILURES_TO_OPEN
    retry_at = now + _pause(failures - FAILURES_TO_OPEN + 1) if is_open else None
    PushEndpoint.objects.filter(pk=key).update(retry_at=retry_at)


def _pause(failures: int) -> timedelta:
    """Twice as long after each failure, and never quite the same."""
    seconds = min(FIRST_PAUSE_SECONDS * 2 ** min(failures - 1, 16), LONGEST_PAUSE_SECONDS)
    return timedelta(seconds=seconds * random.uniform(0.75, 1.25))  # noqa: S311 - spreads load, guards nothing
