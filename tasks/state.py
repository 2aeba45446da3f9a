"""The one door for state: a guarded UPDATE whose row count says who won, and its events beside it.

On PostgreSQL the update, its events and whatever else belongs to it (`Insert`) are one statement and
so one round trip and one commit; on SQLite they are a few within one IMMEDIATE transaction. Either
way the event numbers come from the updated row, so they have no gap and no duplicate.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from tasks.exceptions import TaskNotInState
from tasks.models import Event, Task
from tasks.sql import After, Insert, Sql, assignments, dumps, fetch_one, prepare, this_database


class Draft(NamedTuple):
    """An event before it has a number. `payload` is what `Event.payload` will hold."""

    kind: str
    payload: dict[str, Any]


@dataclass(slots=True)
class Beside:
    """More parts of a move's statement, on PostgreSQL only: one round trip and one commit for both.

    `parts` are named subqueries that can refer to `moved`, which has a row if the move took place; `columns` of
    `source`, one of them, are read into `row`.
    """

    parts: str
    params: list[Any]
    columns: str
    source: str
    row: tuple[Any, ...] | None = None


BUMP_EPOCH = Sql("epoch + 1")
# A row under lease is not pulled from its worker: `unread` makes the worker's result give way instead. It is set
# without a lease, too, because the sweep clears leases, and a worker that was only slow still has its claim.
CALL_A_WORKER = {"due_at": After(unless_leased=True), "unread": True}


def move(
    task_id: UUID,
    drafts: Sequence[Draft],
    *,
    sources: Iterable[str],
    target: str | None = None,
    epoch: int | None = None,
    guard: str = "",
    fields: Mapping[str, Any] | None = None,
    inserts: Sequence[Insert] = (),
    at: datetime | None = None,
    beside: Beside | None = None,
) -> int:
    """Move a task that is in one of `sources` to `target` (or leave its state) and log `drafts`.

    `epoch` and `guard` (SQL over the row's columns) narrow the condition; `fields` are set and
    `inserts` written with it. `beside` is for PostgreSQL only.
    Returns the number of the last event. Raises TaskNotInState, with nothing changed, when the
    condition did not hold: someone moved first, or there is no such task.
    """
    at = at or timezone.now()
    changes: dict[str, Any] = {"last_seq": Sql("last_seq + %s", (len(drafts),)), **(fields or {})}
    if target is not None:
        changes |= {"state": target, "status_at": at}
    database = this_database()
    changed, params = assignments(Task, changes, database)
    states = list(sources)
    where = f"id = %s AND state IN ({', '.join(['%s'] * len(states))})"
    params += [prepare(Task, "id", task_id, database), *states]
    if epoch is not None:
        where += " AND epoch = %s"
        params.append(epoch)
    if guard:
        where += f" AND {guard}"
    last_seq = _write(f"UPDATE tasks_task SET {changed} WHERE {where}", params, drafts, inserts, at, database, beside)
    if last_seq is None:
        raise TaskNotInState
    return last_seq


def _write(
    update: str,
    params: list[Any],
    drafts: Sequence[Draft],
    inserts: Sequence[Insert],
    at: datetime,
    database: BaseDatabaseWrapper,
    beside: Beside | None,
) -> int | None:
    if database.vendor == "postgresql":
        return _write_at_once(update, params, drafts, inserts, at, database, beside)
    # No savepoint within a transaction: what fails here fails all of it, as it does on PostgreSQL.
    with transaction.atomic(savepoint=False), database.cursor() as cursor:
        cursor.execute(f"{update} RETURNING id, last_seq, has_push", params)
        row: tuple[Any, int, bool] | None = cursor.fetchone()
        if row is None:
            return None
        if row[2] and drafts:
            notice_push(row[0])
        if drafts:
            first = row[1] - len(drafts) + 1
            stamp = prepare(Task, "status_at", at, database)
            cursor.executemany(
                "INSERT INTO tasks_event (task_id, seq, kind, payload, created_at) VALUES (%s, %s, %s, %s, %s)",
                [(row[0], first + n, d.kind, dumps(d.payload), stamp) for n, d in enumerate(drafts)],
            )
        for insert in inserts:
            cursor.execute(*insert.render("", database))
        return row[1]


def _write_at_once(
    update: str,
    params: list[Any],
    drafts: Sequence[Draft],
    inserts: Sequence[Insert],
    at: datetime,
    database: BaseDatabaseWrapper,
    beside: Beside | None,
) -> int | None:
    parts = [f"moved AS ({update} RETURNING id, last_seq, has_push)"]
    params = list(params)
    if drafts:
        values = ", ".join(f"({n}, %s::varchar, %s::jsonb)" for n in range(1, len(drafts) + 1))
        parts.append(
            "logged AS (INSERT INTO tasks_event (task_id, seq, kind, payload, created_at) "
            f"SELECT moved.id, moved.last_seq - {len(drafts)} + draft.n, draft.kind, draft.payload, %s::timestamptz "
            f"FROM moved, (VALUES {values}) AS draft (n, kind, payload))"
        )
        params += [at, *(value for draft in drafts for value in (draft.kind, dumps(draft.payload)))]
    for number, insert in enumerate(inserts):
        text, more = insert.render(" FROM moved", database)
        parts.append(f"insert_{number} AS ({text})")
        params += more
    columns, source = "id, last_seq, has_push", "moved"
    if beside:
        parts.append(beside.parts)
        params += beside.params
        columns = f"moved.id, moved.last_seq, moved.has_push, {beside.columns}"
        source = f"moved LEFT JOIN {beside.source} ON TRUE"
    row = fetch_one(f"WITH {', '.join(parts)} SELECT {columns} FROM {source}", params)
    if row is None:
        return None
    if row[2] and drafts:
        notice_push(row[0])
    if beside:
        beside.row = row[3:]
    last_seq: int = row[1]
    return last_seq


def notice_push(task_id: UUID | str) -> None:
    """After the commit, have the task's new events delivered to those who asked for it."""
    from tasks import outbox

    transaction.on_commit(partial(outbox.notice, UUID(str(task_id))))


def create(inserts: Sequence[Insert]) -> None:
    """Write rows in this order as one unit: one statement on PostgreSQL, one transaction on SQLite."""
    database = this_database()
    if database.vendor == "postgresql":
        texts, params = [], []
        for number, insert in enumerate(inserts):
            text, more = insert.render("", database)
            texts.append(f"insert_{number} AS ({text})")
            params += more
        # Foreign keys of Django's are checked at the commit, so the order within it does not matter.
        fetch_one(f"WITH {', '.join(texts)} SELECT 1", params)
        return
    with transaction.atomic(savepoint=False), database.cursor() as cursor:
        for insert in inserts:
            cursor.execute(*insert.render("", database))


def status(state: str, message: dict[str, Any] | None = None, **extra: Any) -> Draft:
    """The event of a new state; `message` is the A2A message that comes with it."""
    payload: dict[str, Any] = {"state": str(state)}
    if message:
        payload["message"] = message
    return Draft(Event.Kind.STATUS, payload | extra)
