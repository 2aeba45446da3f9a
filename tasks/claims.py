"""Work is claimed with a lease. A worker that dies simply stops renewing: the task is due again.

SQLite has no SKIP LOCKED, but its write transactions are serial; PostgreSQL picks and claims in one
statement.
"""

import logging
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from tasks import doorbell, wakeups
from tasks.exceptions import Superseded, TaskNotInState
from tasks.models import Stop, Task
from tasks.snapshots import MESSAGES, message_dict
from tasks.sql import After, Sql, dumps, fetch_one, loads, this_database
from tasks.state import BUMP_EPOCH, Beside, move, notice_push, status

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker's right to one turn of a task. Every write names `epoch`; a newer one ends the right."""

    task_id: uuid.UUID
    epoch: int
    agent_id: int
    context_id: uuid.UUID
    owner: str
    attempt: int
    queue: str
    waited: float
    """Seconds between due and claimed."""
    parent_id: uuid.UUID | None = None
    worker: str = ""
    state: str = Task.State.WORKING
    """The state it was claimed in. Writes under this claim hold while the task is in it, and no longer."""

    @property
    def is_aside(self) -> bool:
        """Whether the task waits for a person, and goes on waiting while this turn looks at what is below it."""
        return self.state != Task.State.WORKING

    messages: list[dict[str, Any]] | None = field(default=None, compare=False, repr=False)
    """All of the task's, oldest first, if they came with the claim."""


RETURNED = "id, epoch, agent_id, context_id, owner, attempts, queue, parent_id, state"
# A task that waits for a person is due when something has happened below it. Its question stands meanwhile.
ASKS = f"state IN ({', '.join(repr(str(state)) for state in Task.INTERRUPTED)})"


def claim_next(queue: str, worker: str) -> Claim | None:
    """Claim the task of this queue that has been due longest, or None when none is due.

    The task becomes `working`, with its event, in the same transaction; one that waits for a person stays as it is
    (`Claim.is_aside`). One that was claimed BUREAU_MAX_ATTEMPTS times without getting on is failed here, with the
    reason, and the next is taken.
    """
    while True:
        pick = _pick_postgresql if this_database().vendor == "postgresql" else _pick_sqlite
        claim = pick(queue, worker)
        if claim is None:
            return None
        if not is_hopeless(claim):
            wakeups.announce([claim.task_id])
            return claim
        give_up(claim)


def is_hopeless(claim: Claim) -> bool:
    """Whether the task was claimed too often without getting on."""
    return claim.attempt > settings.BUREAU_MAX_ATTEMPTS


def claiming(queue: str, worker: str, *, after: uuid.UUID | None = None) -> Beside:
    """The parts of a statement that claims the next due task on PostgreSQL; `claimed_by` reads their row.

    With `after`, they stand beside the move of that task, and claim only if it took place.
    """
    now = timezone.now()
    others = "AND id <> %s AND EXISTS (SELECT FROM moved)" if after else ""
    parts = f"""picked AS (
            SELECT id, due_at, last_seq FROM tasks_task
            WHERE queue = %s AND due_at <= statement_timestamp() {others}
            ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED
        ), taken AS (
            UPDATE tasks_task SET state = CASE WHEN {ASKS} THEN state ELSE 'working' END,
                status_at = CASE WHEN {ASKS} THEN status_at ELSE %s END,
                status_message = CASE WHEN {ASKS} THEN status_message END,
                last_seq = tasks_task.last_seq + CASE WHEN {ASKS} THEN 0 ELSE 1 END,
                epoch = epoch + 1, attempts = attempts + 1, lease_owner = %s::varchar, unread = FALSE,
                due_at = statement_timestamp() + %s::float8 * interval '1 second'
            FROM picked WHERE tasks_task.id = picked.id
            RETURNING tasks_task.id, epoch, agent_id, context_id, owner, attempts, queue, parent_id, state, has_push,
                tasks_task.last_seq, picked.last_seq AS last_seq_before,
                extract(epoch FROM statement_timestamp() - picked.due_at)::float8 AS waited
        ), noted AS (
            INSERT INTO tasks_event (task_id, seq, kind, payload, created_at)
            SELECT id, last_seq, 'status', %s::jsonb, %s::timestamptz FROM taken WHERE state = 'working'
        ), claimed AS (
            SELECT {RETURNED}, waited, has_push, {_MESSAGES} AS messages FROM taken
        )"""
    payload = dumps(status(Task.State.WORKING).payload)
    params = [queue, *([after] if after else []), now, worker, settings.BUREAU_LEASE_SECONDS, payload, now]
    columns = ", ".join(f"claimed.{name}" for name in [*RETURNED.split(", "), "waited", "has_push", "messages"])
    return Beside(parts, params, columns, "claimed")


# What a follow-up that was committed since the statement began has written is not in its snapshot, but the row that
# it locked is the new one: then the messages have to be read after the claim.
_MESSAGES = f"""(
    SELECT CASE WHEN seen.last_seq = taken.last_seq_before THEN {MESSAGES} END
    FROM tasks_task AS seen WHERE seen.id = taken.id
)"""


def claimed_by(worker: str, row: Sequence[Any] | None) -> Claim | None:
    """The claim in a row of `claiming`."""
    if row is None or row[0] is None:
        return None
    *found, waited, has_push, messages = row
    if has_push:
        notice_push(row[0])
    shown = None if messages is None else [message_dict(*message) for message in loads(messages)]
    task_id, epoch, agent_id, context_id, owner, attempts, queue, parent_id, state = found
    return Claim(task_id, epoch, agent_id, context_id, owner, attempts, queue, waited, parent_id, worker, state, shown)


def _pick_postgresql(queue: str, worker: str) -> Claim | None:
    next_task = claiming(queue, worker)
    statement = f"WITH {next_task.parts} SELECT {next_task.columns} FROM {next_task.source}"
    return claimed_by(worker, fetch_one(statement, next_task.params))


def _pick_sqlite(queue: str, worker: str) -> Claim | None:
    now = timezone.now()
    due = Task.objects.filter(queue=queue, due_at__lte=now).order_by("due_at")
    # An idle look must not take the write lock that others are working under.
    if not due.exists():
        return None
    with transaction.atomic():
        found = due.values_list("pk", "due_at", "state").first()
        if found is None or found[1] is None:
            return None
        fields: dict[str, Any] = {
            "epoch": BUMP_EPOCH,
            "attempts": Sql("attempts + 1"),
            "lease_owner": worker,
            "due_at": After(settings.BUREAU_LEASE_SECONDS),
            "unread": False,
        }
        if found[2] in Task.INTERRUPTED:
            move(found[0], [], sources=Task.INTERRUPTED, fields=fields, at=now)
        else:
            fields["status_message"] = None
            working = Task.State.WORKING
            move(found[0], [status(working)], sources=Task.RUNNING, target=working, fields=fields, at=now)
        row = Task.objects.values_list(*RETURNED.split(", ")).get(pk=found[0])
    task_id, epoch, agent_id, context_id, owner, attempts, queue, parent_id, state = row
    waited = (now - found[1]).total_seconds()
    return Claim(task_id, epoch, agent_id, context_id, owner, attempts, queue, waited, parent_id, worker, state)


def give_up(claim: Claim) -> None:
    """Fail a task that was claimed too often, with a reason that tells an operator where to look."""
    tried = settings.BUREAU_MAX_ATTEMPTS
    text = (
        f"Given up after {tried} attempts: each time the worker stopped before the task got on. "
        "The workers' logs around the times of its events tell why."
    )
    from tasks.results import finish, plain

    logger.error("Task given up after %d attempts", tried, extra={"action": "task.given_up", "task_id": claim.task_id})
    try:
        finish(claim, Task.State.FAILED, message=plain(text), even_unread=True)
    except TaskNotInState:
        logger.info("It was moved by someone else meanwhile", extra={"task_id": claim.task_id})


def renew(claim: Claim) -> None:
    """Extend the lease, and take it back from a sweep that thought it dead. Raises Superseded if the claim is over."""
    fields = {"due_at": After(settings.BUREAU_LEASE_SECONDS), "lease_owner": claim.worker}
    try:
        move(claim.task_id, [], sources=(claim.state,), epoch=claim.epoch, fields=fields)
    except TaskNotInState:
        raise Superseded from None


def find_lost(claims: Iterable[Claim]) -> list[Claim]:
    """Those of the claims that are over: canceled, ended or claimed by another."""
    held = {claim.task_id: claim for claim in claims}
    rows = Task.objects.filter(pk__in=held, state__in=Task.LIVE).values_list("pk", "epoch", "state")
    current = {pk: (epoch, state) for pk, epoch, state in rows}
    return [claim for task_id, claim in held.items() if current.get(task_id) != (claim.epoch, claim.state)]


def note_stopped(claim: Claim) -> None:
    """The turn of this claim is over, and no worker holds it any more. Of use to whoever canceled it."""
    Stop.objects.filter(task_id=claim.task_id, epoch=claim.epoch, stopped_at=None).update(stopped_at=Now())


def release(claim: Claim, *, after: float = 0.0, counts: bool = False) -> None:
    """Hand the task back, due `after` so many seconds. Unless it `counts`, the attempt is forgotten.

    Raises Superseded when the claim is over.
    """
    fields: dict[str, Any] = {"due_at": After(after), "lease_owner": "", "unread": False}
    if not counts:
        fields["attempts"] = 0
    try:
        move(claim.task_id, [], sources=(claim.state,), epoch=claim.epoch, fields=fields)
    except TaskNotInState:
        raise Superseded from None
    if not after:
        # Past a held bell: the one who holds it may be this worker, and about to end.
        doorbell.ring_again(claim.queue)


def release_all() -> int:
    """Make every leased task due now; only for a moment when certainly no worker runs."""
    return Task.objects.exclude(lease_owner="").update(lease_owner="", due_at=Now())


def sweep() -> dict[str, int]:
    """Ring for every queue with overdue work; the sweep alone would finish everything.

    An expired lease is cleared, so that an operator sees the task waiting and not held by a dead
    worker. Returns the number of expired leases by queue.
    """
    overdue = Task.objects.filter(due_at__lte=Now())
    expired: dict[str, int] = {}
    for queue in overdue.values_list("queue", flat=True).order_by("queue").distinct():
        # Guarded by due_at again: a worker that renews between the two statements keeps its task.
        count = overdue.filter(queue=queue).exclude(lease_owner="").update(lease_owner="")
        if count:
            expired[queue] = count
            logger.warning("%d expired leases on queue %s", count, queue, extra={"action": "lease.expired"})
        doorbell.ring_again(queue)
    return expired
