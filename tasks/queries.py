"""What may be read of tasks: one task, a page of them, the events after a number.

All of it is scoped by owner here, so that no caller of these can forget to.
"""

import base64
import binascii
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, NamedTuple

from django.db.models import Q, QuerySet

from directory.identity import Caller
from tasks.exceptions import InvalidMessage, TaskNotFound
from tasks.models import Event, Task
from tasks.services import parse_task_id
from tasks.sizes import task_sizes
from tasks.snapshots import TaskView, read_views

__all__ = ["EventRow", "Page", "TaskView", "events_after", "fetch_task", "ids_of_tree", "list_tasks"]

EVENT_BATCH = 500


class EventRow(NamedTuple):
    """One event as read from the log."""

    seq: int
    kind: str
    payload: dict[str, Any]
    created_at: datetime


@dataclass(slots=True)
class Page:
    """A page of tasks; `next_token` is empty on the last one, `total` counts all pages."""

    tasks: list[TaskView]
    next_token: str
    total: int


def fetch_task(
    caller: Caller,
    task_id: str | uuid.UUID,
    *,
    agent_slug: str = "",
    history: int | None = None,
    with_artifacts: bool = True,
) -> TaskView:
    """One task of the caller's. `history`: None for all messages, n for the last n.

    Raises TaskNotFound, also for a task of somebody else's or of another agent than `agent_slug`.
    """
    views = read_views(
        [parse_task_id(task_id)], caller.principal, with_history=history != 0, with_artifacts=with_artifacts
    )
    if not views or (agent_slug and views[0].agent_slug != agent_slug) or not caller.may_call(views[0].agent_slug):
        raise TaskNotFound
    return _shortened(views[0], history)


def list_tasks(
    caller: Caller,
    *,
    agent_slug: str = "",
    context_key: str = "",
    states: Collection[str] = (),
    status_after: datetime | None = None,
    page_size: int = 50,
    page_token: str = "",
    history: int | None = None,
    with_artifacts: bool = False,
    max_bytes: int | None = None,
) -> Page:
    """A page of the caller's missions, newest status first; stable while tasks are written.

    It ends early when what its tasks hold passes `max_bytes`, but not before its first task.

    Raises InvalidMessage for a page token that is none of ours.
    """
    tasks = _visible(caller, agent_slug).filter(parent=None)
    if context_key:
        tasks = tasks.filter(context__key=context_key)
    if states:
        tasks = tasks.filter(state__in=states)
    if status_after:
        tasks = tasks.filter(status_at__gte=status_after)
    total = tasks.count()
    if page_token:
        at, last_id = _read_token(page_token)
        # The first bound says nothing new to us, but tells the index where to begin.
        tasks = tasks.filter(status_at__lte=at).filter(Q(status_at__lt=at) | Q(id__lt=last_id))
    rows = list(tasks.order_by("-status_at", "-id").values_list("pk", "status_at")[: page_size + 1])
    shown = _fitting(rows[:page_size], max_bytes, history, with_artifacts)
    found = read_views(
        [pk for pk, _ in shown], caller.principal, with_history=history != 0, with_artifacts=with_artifacts
    )
    by_id = {view.id: _shortened(view, history) for view in found}
    token = _make_token(*shown[-1]) if len(rows) > len(shown) else ""
    return Page([by_id[pk] for pk, _ in shown if pk in by_id], token, total)


def events_after(task_id: uuid.UUID, seq: int, limit: int = EVENT_BATCH) -> list[EventRow]:
    """The events of a task behind number `seq`, in order. The caller has checked whose task it is."""
    events = Event.objects.filter(task_id=task_id, seq__gt=seq).order_by("seq")
    return [EventRow(*row) for row in events.values_list("seq", "kind", "payload", "created_at")[:limit]]


def ids_of_tree(task: Task) -> list[uuid.UUID]:
    """The ids of a task and of all below it."""
    if task.root_id is None:
        return [task.pk, *Task.objects.filter(root=task).values_list("pk", flat=True)]
    found, level = [task.pk], [task.pk]
    while level:
        level = list(Task.objects.filter(parent__in=level).values_list("pk", flat=True))
        found += level
    return found


def _visible(caller: Caller, agent_slug: str) -> QuerySet[Task]:
    tasks = Task.objects.filter(owner=caller.principal)
    if caller.agents:
        tasks = tasks.filter(agent__slug__in=caller.agents)
    return tasks.filter(agent__slug=agent_slug) if agent_slug else tasks


def _fitting(
    rows: list[tuple[uuid.UUID, datetime]], max_bytes: int | None, history: int | None, with_artifacts: bool
) -> list[tuple[uuid.UUID, datetime]]:
    """The first of these tasks that together hold no more than `max_bytes`; at least one."""
    if max_bytes is None:
        return rows
    sizes = task_sizes([pk for pk, _ in rows], history=history, with_artifacts=with_artifacts)
    held = accumulate(sizes.get(pk, 0) for pk, _ in rows)
    return [row for number, (row, size) in enumerate(zip(rows, held, strict=True)) if not number or size <= max_bytes]


def _shortened(view: TaskView, history: int | None) -> TaskView:
    """The view with the last `history` messages only; None for all."""
    if history is not None:
        del view.history[: max(0, len(view.history) - history)]
    return view


def _make_token(task_id: uuid.UUID, status_at: datetime) -> str:
    return base64.urlsafe_b64encode(f"{status_at.timestamp():.6f}/{task_id.hex}".encode()).decode()


def _read_token(token: str) -> tuple[datetime, uuid.UUID]:
    try:
        at, _, last_id = base64.urlsafe_b64decode(token.encode()).decode().partition("/")
        return datetime.fromtimestamp(float(at), UTC), uuid.UUID(last_id)
    except (binascii.Error, ValueError, OverflowError, OSError):
        raise InvalidMessage("The page token is none of ours; ask for the first page again.") from None
