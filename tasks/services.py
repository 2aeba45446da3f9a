"""What callers do to tasks: send a message, cancel. Pages, JSON-RPC, admin and commands all call these.

Each is one transaction; the wake-ups go out after its commit.
"""

import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from directory.identity import CHANGE_TASK, Caller
from directory.models import Agent
from tasks import doorbell, wakeups
from tasks.content import MAX_ID, Incoming, check_storable, title_of
from tasks.delegation import wake
from tasks.exceptions import (
    ContextMismatch,
    InvalidMessage,
    QuestionIsClosed,
    TaskIsTerminal,
    TaskNotFound,
    TaskNotInState,
)
from tasks.messages import message_insert, wire_message
from tasks.models import Context, Event, Message, Stop, Task
from tasks.push import PushDraft, push_insert, store_push
from tasks.sizes import task_sizes
from tasks.sql import After, Insert
from tasks.state import BUMP_EPOCH, CALL_A_WORKER, Draft, create, move, status

DEFAULT_QUEUE = "default"
SLUG = re.compile(r"[-a-zA-Z0-9_]+")


@dataclass(frozen=True, slots=True)
class Sent:
    """Where a message went: its task, the number of the event it caused, and whether the task is new."""

    task_id: uuid.UUID
    context_key: str
    seq: int
    is_new: bool


def send_message(
    caller: Caller,
    agent: Agent,
    incoming: Incoming,
    *,
    task_id: str | uuid.UUID | None = None,
    context_key: str = "",
    metadata: dict[str, Any] | None = None,
    new_id: uuid.UUID | None = None,
    push: PushDraft | None = None,
    answering: str = "",
) -> Sent:
    """Take a message: a follow-up when it names a task, else a new task for `agent`.

    `new_id` is the id that a new task gets, for a sender who listens for its news beforehand; `push` says
    where events behind the one that this message causes are to be delivered, and has been checked.
    A new task may refer to earlier ones (`incoming.references`): that is a refinement, and the
    ended task stays as it is. `answering` is the id of the message whose question a follow-up answers;
    an operator who may change tasks may answer in the owner's place, and is on record as its author.
    Raises InvalidMessage, TaskNotFound (also for tasks of others), ContextMismatch, TaskIsTerminal,
    QuestionIsClosed; then nothing has changed.
    """
    incoming.check()
    check_storable([context_key, metadata or {}], "The request")
    if len(context_key) > MAX_ID:
        raise InvalidMessage(f"A context id may have {MAX_ID} characters at most.")
    if task_id:
        return _follow_up(caller, parse_task_id(task_id), incoming, context_key, push, answering)
    return _create(caller, agent, incoming, context_key, metadata or {}, new_id or uuid.uuid4(), push)


def _create(
    caller: Caller,
    agent: Agent,
    incoming: Incoming,
    context_key: str,
    metadata: dict[str, Any],
    task_id: uuid.UUID,
    push: PushDraft | None,
) -> Sent:
    now = timezone.now()
    references = find_references(caller, incoming.references)
    if context_key or references:
        # A refinement without a context of its own belongs where the work it refers to was done.
        context = (
            Context.objects.get_or_create(owner=caller.principal, key=context_key)[0]
            if context_key
            else references[0].context
        )
        rows = []
    else:
        fresh = uuid.uuid4()
        context = Context(id=fresh, owner=caller.principal, key=str(fresh))
        rows = [Insert(Context, {"id": fresh, "owner": context.owner, "key": context.key, "created_at": now})]
    rows += [
        _task_insert(task_id, caller, agent, context, incoming, metadata, now),
        message_insert(task_id, wire_message(Message.Role.USER, incoming), now),
        Insert(
            Event,
            {"task_id": task_id, "seq": 1, "created_at": now, **status(Task.State.SUBMITTED)._asdict()},
        ),
        *(
            Insert(Task.references.through, {"from_task_id": task_id, "to_task_id": reference.pk})
            for reference in references
        ),
    ]
    if push:
        rows = [_with_push(row) if row.model is Task else row for row in rows]
        rows.append(push_insert(task_id, push, cursor=1, now=now))
    create(rows)
    transaction.on_commit(partial(doorbell.ring, DEFAULT_QUEUE))
    return Sent(task_id, context.key, 1, is_new=True)


def _task_insert(
    task_id: uuid.UUID,
    caller: Caller,
    agent: Agent,
    context: Context,
    incoming: Incoming,
    metadata: dict[str, Any],
    now: datetime,
) -> Insert:
    return Insert(
        Task,
        {
            "id": task_id,
            "context_id": context.pk,
            "agent_id": agent.pk,
            "owner": caller.principal,
            "title": title_of(incoming.parts),
            "state": Task.State.SUBMITTED,
            "metadata": metadata,
            "status_at": now,
            "created_at": now,
            "due_at": After(),
            "last_seq": 1,
            "queue": DEFAULT_QUEUE,
            "epoch": 0,
            "lease_owner": "",
            "attempts": 0,
            "unread": False,
            # What a token is good for is said by the token alone, and is gone with the request.
            "reach": " ".join(sorted(filter(SLUG.fullmatch, caller.agents))),
        },
    )


def _with_push(row: Insert) -> Insert:
    return replace(row, values={**row.values, "has_push": True})


@transaction.atomic
def _follow_up(
    caller: Caller, task_id: uuid.UUID, incoming: Incoming, context_key: str, push: PushDraft | None, answering: str
) -> Sent:
    # Locked, because what the message does depends on the state, and a worker may be about to change it.
    mine = Task.objects.filter(pk=task_id).select_related("context")
    if not (answering and caller.may(CHANGE_TASK)):
        mine = mine.filter(owner=caller.principal)
    task = mine.select_for_update(of=("self",)).first()
    if task is None:
        raise TaskNotFound
    if context_key and context_key != task.context.key:
        raise ContextMismatch
    find_references(caller, incoming.references)
    if task.is_terminal:
        raise TaskIsTerminal
    if answering and (task.state not in Task.INTERRUPTED or _question_of(task) != answering):
        raise QuestionIsClosed
    if task_sizes([task_id])[task_id] > settings.BUREAU_TASK_BYTES:
        raise InvalidMessage("The messages of this task hold too much already: send a new one that refers to it.")
    now = timezone.now()
    message = wire_message(Message.Role.USER, incoming)
    author = "" if task.owner == caller.principal else caller.principal
    drafts = [Draft(Event.Kind.MESSAGE, {"message": message} | ({"author": author} if author else {}))]
    fields: dict[str, Any] = dict(CALL_A_WORKER)
    target = None
    if task.state in Task.INTERRUPTED:
        # A task that waited is handed in again; one that is being worked on hears of it there.
        target = Task.State.SUBMITTED
        drafts.append(status(target))
        # A task that kills its workers is not given more of them because somebody writes to it while it runs.
        # Whoever looks at what is below it meanwhile has lost it with this, so there is no lease to wait for.
        fields |= {"status_message": None, "attempts": 0, "due_at": After(), "lease_owner": ""}
    seq = move(
        task_id,
        drafts,
        sources=(task.state,),
        target=target,
        fields=fields,
        inserts=[message_insert(task_id, message, now, author)],
        at=now,
    )
    if push:
        store_push(task_id, push)
    transaction.on_commit(partial(doorbell.ring, task.queue))
    transaction.on_commit(partial(wakeups.announce, [task_id]))
    return Sent(task_id, task.context.key, seq, is_new=False)


def _question_of(task: Task) -> str:
    return str((task.status_message or {}).get("messageId", ""))


@transaction.atomic
def cancel_task(caller: Caller, task_id: str | uuid.UUID, reason: str = "") -> None:
    """Cancel a live task and every live task below it; their workers and waiters are told.

    The epochs are bumped, so that whatever a worker still writes is refused; what a worker had in hand is
    noted, until it lets go (`Stop`). An operator who may change tasks may cancel anyone's. Raises TaskNotFound, or
    TaskNotInState when it has ended already.
    """
    wanted = parse_task_id(task_id)
    visible = Task.objects.all() if caller.may(CHANGE_TASK) else Task.objects.filter(owner=caller.principal)
    found = visible.filter(pk=wanted).values_list("parent_id", flat=True)[:1]
    if not found:
        raise TaskNotFound
    if found[0]:
        # Before the task itself: whoever locks several tasks of a tree goes from the top down.
        wake(found[0], even_asking=True)
    message = wire_message(Message.Role.AGENT, Incoming.from_text(reason)) if reason else None
    _cancel(wanted, message)
    transaction.on_commit(partial(wakeups.announce, [wanted], is_settled=True, stop=True))
    cancel_below(wanted)


def cancel_below(task_id: uuid.UUID) -> None:
    """Cancel every live task below this one. Call it within the transaction that ends this one."""
    canceled = []
    for descendant in _live_below(task_id):
        try:
            _cancel(descendant, None)
        except TaskNotInState:
            continue  # it ended by itself between the two statements
        canceled.append(descendant)
    if canceled:
        transaction.on_commit(partial(wakeups.announce, canceled, is_settled=True, stop=True))


def _cancel(task_id: uuid.UUID, message: dict[str, Any] | None) -> None:
    # Locked before it is looked at: a worker may be about to claim it.
    columns = ("lease_owner", "epoch", "due_at")
    held = Task.objects.select_for_update().filter(pk=task_id).values_list(*columns).first()
    move(
        task_id,
        [status(Task.State.CANCELED, message)],
        sources=Task.LIVE,
        target=Task.State.CANCELED,
        fields={
            "epoch": BUMP_EPOCH,
            "due_at": None,
            "lease_owner": "",
            "status_message": message,
            "unread": False,
        },
    )
    if held and held[0]:
        worker, epoch, until = held
        Stop.objects.create(task_id=task_id, worker=worker, epoch=epoch, lease_until=until, asked_at=Now())


def _live_below(task_id: uuid.UUID) -> Iterable[uuid.UUID]:
    """Ids of the live tasks under this one, from the top down, each level in primary-key order.

    All who lock several tasks of a tree lock them in this order, so none of them can deadlock.
    """
    found: list[uuid.UUID] = []
    level = [task_id]
    while level:
        children = Task.objects.filter(parent__in=level).order_by("pk").values_list("pk", "state")
        level = [pk for pk, _ in children]
        found += [pk for pk, state in children if state in Task.LIVE]
    return found


def find_references(caller: Caller, ids: list[str]) -> list[Task]:
    """The caller's tasks of those ids, in that order. Raises TaskNotFound when one is not there for the caller."""
    if not ids:
        return []
    wanted = [parse_task_id(text) for text in ids]
    mine = Task.objects.filter(pk__in=wanted, owner=caller.principal)
    if caller.agents:
        mine = mine.filter(agent__slug__in=caller.agents)
    found = mine.select_related("context").in_bulk()
    if len(found) < len(set(wanted)):
        raise TaskNotFound("A referenced task was not found.")
    return [found[pk] for pk in dict.fromkeys(wanted)]


def parse_task_id(text: str | uuid.UUID) -> uuid.UUID:
    """Raises TaskNotFound for what is no id of ours: to the caller it is simply not there."""
    if isinstance(text, uuid.UUID):
        return text
    try:
        return uuid.UUID(text)
    except (ValueError, AttributeError, TypeError):
        raise TaskNotFound from None
