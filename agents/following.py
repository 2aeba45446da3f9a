"""Asks remote agents how their tasks are: all that are due at once, in one short round. Holds no worker.

The rows say what is due. A round claims them, asks, writes down what it heard, and wakes the tasks that it
concerns. A round that dies leaves claims that run out. What is heard by a stream (`agents.streams`) goes the
same way, and is not asked about.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Case, F, Q, Value, When
from django.utils import timezone

from agents import legs
from agents.legs import Phase
from agents.models import RemoteLeg
from directory.calls import record, target_of
from directory.exceptions import (
    CredentialUnreadable,
    NotRemote,
    OperationNotSupported,
    RemoteError,
    RemoteTaskNotCancelable,
    RemoteTaskNotFound,
)
from directory.memory import note_task
from directory.remote import CallReport, RemoteClient, Target
from directory.wire import RemoteTask
from tasks.delegation import resume
from tasks.models import Task

logger = logging.getLogger(__name__)

BATCH = 100
ASK_SECONDS = 10.0
# Longer than any round takes.
CLAIM_SECONDS = 60.0
# Looks in a row that fail before a leg is given up.
MOST_FAILURES = 8


@dataclass(frozen=True, slots=True)
class Heard:
    """What came of asking about one leg."""

    task: RemoteTask | None = None
    error: RemoteError | None = None


def follow_due() -> int:
    """One round; returns how many legs it looked at. Safe to run at any time, in any number of processes."""
    due = _claim_due()
    ready: list[tuple[RemoteLeg, Target]] = []
    for leg in due:
        if leg.phase == Phase.SENDING:
            _see_to_unknown_end(leg)
            continue
        try:
            ready.append((leg, target_of(leg.task.agent)))
        except (CredentialUnreadable, NotRemote) as error:
            apply(leg, Heard(error=RemoteError(str(error))))
    if ready:
        reports: list[CallReport] = []
        answers = asyncio.run(_ask_all(ready, reports))
        for report in reports:
            record(report)
        for (leg, _), heard in zip(ready, answers, strict=True):
            apply(leg, heard)
    return len(due)


def _claim_due() -> list[RemoteLeg]:
    """Legs that are due, and those whose task has ended here while it goes on there: they are to be canceled."""
    now = timezone.now()
    ended = Q(task__state__in=Task.TERMINAL)
    to_cancel = ended & Q(canceled_at=None) & ~Q(phase__in=[Phase.SENDING, Phase.IDLE])
    # A send that a turn of a live task has begun is that task's own business.
    is_heard = ~Q(stream_by="") & Q(stream_until__gt=now)
    is_due = Q(due_at__lte=now) & ~(Q(phase=Phase.SENDING) & ~ended) & ~is_heard
    rows = RemoteLeg.objects.exclude(phase=Phase.ENDED).filter(is_due | to_cancel).select_related("task__agent")
    until = now + timedelta(seconds=CLAIM_SECONDS)
    claimed = []
    for leg in rows.order_by("due_at")[:BATCH]:
        same = RemoteLeg.objects.filter(pk=leg.pk, due_at=leg.due_at, phase=leg.phase, canceled_at=leg.canceled_at)
        fields: dict[str, Any] = {"due_at": until}
        if leg.task.is_terminal and leg.canceled_at is None:
            # Who hears its stream is to let it be.
            fields |= {"canceled_at": now, "cancel_due": True, "failures": 0, "stream_by": ""}
        if same.update(**fields):
            for name, value in fields.items():
                setattr(leg, name, value)
            claimed.append(leg)
    return claimed


async def _ask_all(ready: Sequence[tuple[RemoteLeg, Target]], reports: list[CallReport]) -> list[Heard]:
    return await asyncio.gather(*(_ask(leg, target, reports) for leg, target in ready))


async def _ask(leg: RemoteLeg, target: Target, reports: list[CallReport]) -> Heard:
    try:
        async with RemoteClient(target, seconds=ASK_SECONDS, on_call=reports.append) as client:
            if leg.cancel_due:
                try:
                    return Heard(await client.cancel(leg.remote_task_id))
                except (RemoteTaskNotCancelable, OperationNotSupported):
                    pass  # then its late answer is waited for
            return Heard(await client.get(leg.remote_task_id))
    except RemoteError as error:
        return Heard(error=error)


def apply(leg: RemoteLeg, heard: Heard, *, due_at: datetime | None = None, heard_by: str = "") -> bool:
    """Write down what was heard, and wake the task when that is news. Returns whether the leg was as we know it.

    `due_at` is when to look at a leg that goes on, instead of soon. Who hears its stream is `heard_by`: nothing is
    written when the leg has been let go of meanwhile.
    """
    if heard.task is not None:
        task = replace(heard.task, id=leg.remote_task_id)
        fields = legs.heard(leg, task) | {"cancel_due": False}
        if due_at and fields["phase"] == Phase.FOLLOWING:
            fields["due_at"] = due_at
        elif fields["due_at"]:
            fields["due_at"] = _unless_called(leg, fields["due_at"])
        note_task(leg.task.agent, task)
        is_news = "answer" in fields
    else:
        assert heard.error is not None
        fields = _after_failure(leg, heard.error)
        is_news = "error_class" in fields
    if leg.task.is_terminal:
        return _keep_late(leg, fields, is_news=is_news, heard_by=heard_by)
    if is_news and leg.phase == Phase.ASKING == fields["phase"] and legs.asks_the_same(leg.answer, fields["answer"]):
        # The same question once more, whatever its time and id are now.
        fields["asked"] = legs.question_digest(fields["answer"])
        is_news = False
    with transaction.atomic():
        # The task first: whoever locks both, locks it first.
        if is_news or legs.is_overdue(leg, leg.task.agent):
            resume(leg.task_id)
        return legs.write(leg, fields, heard_by=heard_by)


def _unless_called(leg: RemoteLeg, due_at: datetime) -> Case:
    """That time, unless a push has made the leg due since we claimed it: what it tells of may not be in our answer."""
    return Case(When(due_at=leg.due_at, then=Value(due_at)), default=F("due_at"))


def _keep_late(leg: RemoteLeg, fields: dict[str, Any], *, is_news: bool, heard_by: str) -> bool:
    """What comes after the end of our task is kept on the row, and changes nothing else."""
    if is_news:
        fields["late_at"] = timezone.now()
    if fields.get("phase") == Phase.ASKING:
        fields |= {"phase": Phase.ENDED, "due_at": None}
    elif legs.is_overdue(leg, leg.task.agent):
        # The time from the cancel on counts, too: what was silent for so long is let be.
        since = leg.canceled_at or leg.progress_at
        if timezone.now() - since > timedelta(seconds=legs.deadline_seconds(leg.task.agent)):
            fields |= {"phase": Phase.ENDED, "due_at": None}
    return legs.write(leg, fields, heard_by=heard_by)


def _after_failure(leg: RemoteLeg, error: RemoteError) -> dict[str, Any]:
    failures = leg.failures + 1
    if isinstance(error, RemoteTaskNotFound) and not error.is_bare:
        return legs.lost(leg, "remote_task_lost", f"{leg.task.agent.name} no longer knows the task.")
    # While a person thinks about an answer, the agent may come back.
    if failures >= MOST_FAILURES and leg.phase != Phase.ASKING:
        text = f"{leg.task.agent.name} failed {failures} times in a row: {error}"
        return legs.lost(leg, legs.class_of(error), text)
    _, longest = legs.PAUSES[Phase(leg.phase)]
    pause = min(legs.FIRST_PAUSE * 2 ** min(failures, MOST_FAILURES), longest)
    return {"failures": failures, "due_at": timezone.now() + timedelta(seconds=pause)}


def _see_to_unknown_end(leg: RemoteLeg) -> None:
    """A message was on its way when its task ended and its worker died: if it arrived, it is to be canceled."""
    from agents.handlers.remote import find_sent

    found = find_sent(leg.task.agent, leg)
    if found is None:
        legs.write(leg, legs.lost(leg, "unknown_end", "Whether the message arrived is not known."))
    else:
        legs.write(leg, legs.heard(leg, found) | {"due_at": timezone.now()})
