"""Hears what remote agents tell by their streams: one event loop per worker process, no worker and no thread per leg.

A leg is claimed in its row, by one loop at a time. A loop that is killed leaves claims that run out; then its legs
are asked about (`agents.following`) until another loop hears them. What is heard goes the same way as what is asked
for. A stream that does not begin with all of the task (0.3 has such) may have missed something: there it only says
that something is new, and the truth is asked for.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
import uuid
from collections.abc import Awaitable, Iterable
from contextlib import aclosing
from datetime import timedelta
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.db.models import Case, F, Q, QuerySet, Value, When
from django.utils import timezone

from agents import following, legs
from agents.following import Heard
from agents.legs import Phase
from agents.models import RemoteLeg
from directory.calls import record, target_of
from directory.exceptions import CredentialUnreadable, NotRemote, OperationNotSupported, RemoteError
from directory.remote import CallReport, RemoteClient
from directory.wire import RemoteTask
from tasks import doorbell
from tasks.aio import in_db
from tasks.background import Background
from tasks.models import Task

logger = logging.getLogger(__name__)

# What is said within this time is taken over at once: each time is a turn.
GATHER_SECONDS = 0.2
# A stream that is silent for so long is asked about, in case something got lost.
LOOK_SECONDS = 60.0
# An agent that has not called us by then may not be able to, whatever it says.
PUSH_SECONDS = 15.0
# Between two streams of a leg, when they break.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 600.0
# A stream that lasted so long was a good one, however it ended.
GOOD_SECONDS = 30.0


# --- The rows ------------------------------------------------------------------------------------


def _heard_by(owner: str) -> QuerySet[RemoteLeg]:
    return RemoteLeg.objects.filter(stream_by=owner)


def _unheard() -> QuerySet[RemoteLeg]:
    """Legs that are to be heard by a stream, and are not. Where the agent tells us by push, that is enough."""
    now = timezone.now()
    has_not_called = Q(pushed_at=None, created_at__lte=now - timedelta(seconds=PUSH_SECONDS))
    return RemoteLeg.objects.filter(
        Q(stream_until=None) | Q(stream_until__lte=now),
        Q(callback_hash="") | has_not_called,
        phase=Phase.FOLLOWING,
        task__agent__card__capabilities__streaming=True,
    ).exclude(task__state__in=Task.TERMINAL)


def is_any_unheard() -> bool:
    """Whether a stream could be opened now."""
    return settings.BUREAU_REMOTE_STREAMS > 0 and _unheard().exists()


def _candidates(most: int) -> list[RemoteLeg]:
    return list(_unheard().select_related("task__agent").order_by("due_at")[: max(most, 0)])


def claim(owner: str, most: int) -> list[RemoteLeg]:
    """Up to this many legs, which nobody else hears from now on, for as long as the lease lasts."""
    claimed = []
    for leg in _candidates(most):
        same = RemoteLeg.objects.filter(pk=leg.pk, phase=leg.phase, stream_until=leg.stream_until)
        until = timezone.now() + timedelta(seconds=settings.BUREAU_LEASE_SECONDS)
        if same.update(stream_by=owner, stream_until=until, due_at=until):
            claimed.append(leg)
    return claimed


def renew(owner: str, leg_ids: Iterable[uuid.UUID]) -> set[uuid.UUID]:
    """Keep these legs for another lease; returns those that are still this owner's, and still go on."""
    until = timezone.now() + timedelta(seconds=settings.BUREAU_LEASE_SECONDS)
    mine = _heard_by(owner).filter(pk__in=list(leg_ids), phase__in=[Phase.FOLLOWING, Phase.SENDING])
    mine = mine.exclude(task__state__in=Task.TERMINAL)
    mine.update(stream_until=until, due_at=_if_following(until))
    return set(mine.values_list("pk", flat=True))


def let_go(owner: str, leg_ids: Iterable[uuid.UUID]) -> None:
    """These legs are not heard any more, for reasons of ours: whoever wants may hear them at once."""
    mine = _heard_by(owner).filter(pk__in=list(leg_ids))
    if mine.update(stream_by="", stream_until=None, due_at=_if_following(timezone.now())):
        doorbell.ring_follow()


def broken(owner: str, leg_id: uuid.UUID, *, seconds: float, is_final: bool) -> None:
    """The stream ended after this time, and the task goes on: it is asked about, and heard again after a pause."""
    leg = _heard_by(owner).filter(pk=leg_id).first()
    if leg is None:
        return
    failures = 1 if seconds > GOOD_SECONDS else min(leg.stream_failures + 1, 99)
    pause = LONGEST_PAUSE if is_final else min(FIRST_PAUSE * 4.0 ** min(failures - 1, 9), LONGEST_PAUSE)
    now = timezone.now()
    until = now + timedelta(seconds=pause)
    fields: dict[str, Any] = {"stream_by": "", "stream_until": until, "stream_failures": failures}
    if _heard_by(owner).filter(pk=leg_id).update(**fields, due_at=_if_following(now)):
        doorbell.ring_follow()


def _if_following(due_at: Any) -> Case:
    """In other phases the time means something else."""
    return Case(When(phase=Phase.FOLLOWING, then=Value(due_at)), default=F("due_at"))


def hear(owner: str, leg_id: uuid.UUID, task: RemoteTask) -> float | None:
    """Take over how the task is now. Returns after how long at most to look again, or None when it is over.

    Zero: a message of ours is on its way there just now, so this is to be heard once more.
    """
    leg = _heard_by(owner).filter(pk=leg_id).select_related("task__agent").first()
    if leg is None or leg.phase not in (Phase.FOLLOWING, Phase.SENDING):
        return None
    if leg.phase == Phase.SENDING:
        return 0.0
    if not following.apply(leg, Heard(task), due_at=leg.stream_until, heard_by=owner):
        return 0.0
    if leg.phase != Phase.FOLLOWING or leg.task.is_terminal:
        return None
    left = legs.deadline_seconds(leg.task.agent) - (timezone.now() - leg.progress_at).total_seconds()
    return min(max(left, legs.FIRST_PAUSE), LOOK_SECONDS)


# --- One stream ----------------------------------------------------------------------------------


class Ear:
    """What has come by the stream of one leg so far."""

    def __init__(self, task: RemoteTask) -> None:
        self.task = task
        self.is_whole = False
        self.news = asyncio.Event()
        self.is_settled = asyncio.Event()

    async def listen(self, client: RemoteClient) -> None:
        """Until the stream ends. Raises RemoteError."""
        async with aclosing(client.subscribe(self.task)) as events:
            async for event in events:
                if event.task is None:
                    continue  # a bare message says nothing about the task
                self.task = event.task
                self.is_whole = self.is_whole or event.kind == "task"
                self.news.set()
                if event.task.is_settled:
                    self.is_settled.set()


class Hearing:
    """Hears one leg until it is settled, or the stream breaks."""

    def __init__(self, owner: str, leg: RemoteLeg) -> None:
        self._owner = owner
        self._leg = leg
        self._reports: list[CallReport] = []

    async def run(self) -> None:
        """Never raises but for a cancel, and database errors."""
        started = time.monotonic()
        is_final = False
        try:
            target = await in_db(target_of, self._leg.task.agent)
            async with RemoteClient(target, on_call=self._reports.append) as client:
                is_over = await self._mirror(client, Ear(legs.task_of(self._leg)))
        except (RemoteError, CredentialUnreadable, NotRemote) as error:
            logger.info("The stream of %s broke: %s", self._leg, error, extra={"action": "stream.broken"})
            is_over, is_final = False, isinstance(error, OperationNotSupported)
        await self._report()
        if is_over:
            await in_db(let_go, self._owner, [self._leg.pk])
        else:
            seconds = time.monotonic() - started
            await in_db(broken, self._owner, self._leg.pk, seconds=seconds, is_final=is_final)

    async def _mirror(self, client: RemoteClient, ear: Ear) -> bool:
        """Take over what is said while it is said; whether it came to an end. Raises RemoteError."""
        listening = asyncio.create_task(ear.listen(client))
        wait = pause = legs.FIRST_PAUSE
        try:
            while True:
                await _first_of(ear.news.wait(), listening, seconds=wait)
                if listening.done() and not ear.news.is_set():
                    # One that had ended before we listened has no stream any more.
                    is_over = await self._hear(await client.get(ear.task.id)) is None
                    if not is_over:
                        await listening
                    return is_over
                is_told = ear.news.is_set()
                ear.news.clear()
                task = ear.task if is_told and ear.is_whole else await client.get(ear.task.id)
                longest = await self._hear(task)
                if longest is None:
                    return True
                pause = legs.FIRST_PAUSE if is_told else min(pause * 1.5, legs.PAUSES[Phase.FOLLOWING][1])
                wait = longest if ear.is_whole else min(longest, pause)
                if longest:
                    await _first_of(ear.is_settled.wait(), seconds=GATHER_SECONDS)
                else:
                    ear.news.set()
                    await asyncio.sleep(GATHER_SECONDS)
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _hear(self, task: RemoteTask) -> float | None:
        await self._report()
        return await in_db(hear, self._owner, self._leg.pk, task)

    async def _report(self) -> None:
        while self._reports:
            await in_db(record, self._reports.pop(0))


async def _first_of(*awaitables: Awaitable[Any], seconds: float) -> None:
    """Until one of them is done, or the time is over. What is no task yet does not go on."""
    tasks = [asyncio.ensure_future(one) for one in awaitables]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task, given in zip(tasks, awaitables, strict=True):
            if task is not given:
                task.cancel()


# --- All of a process ----------------------------------------------------------------------------


class Follower:
    """Hears all legs that this process has claimed."""

    def __init__(self, news: asyncio.Event) -> None:
        self.owner = f"{socket.gethostname()[:60]}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._news = news
        self._running: dict[uuid.UUID, asyncio.Task[None]] = {}
        self._renewed_at = time.monotonic()

    async def run(self) -> None:
        """Until there is nothing to hear any more. `news` says that more may have come."""
        try:
            while True:
                self._news.clear()
                await self._claim()
                if not self._running:
                    return
                every = settings.BUREAU_LEASE_SECONDS / 3
                await _first_of(self._news.wait(), *self._running.values(), seconds=every)
                self._forget_ended()
                if time.monotonic() - self._renewed_at >= every:
                    await self._renew()
        finally:
            await self._stop(list(self._running))

    async def _claim(self) -> None:
        free = settings.BUREAU_REMOTE_STREAMS - len(self._running)
        claiming = asyncio.ensure_future(in_db(claim, self.owner, free))
        try:
            claimed = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            # The rows are ours all the same.
            await in_db(let_go, self.owner, [leg.pk for leg in await claiming])
            raise
        for leg in claimed:
            self._running[leg.pk] = asyncio.create_task(Hearing(self.owner, leg).run())

    def _forget_ended(self) -> None:
        for leg_id in [leg_id for leg_id, task in self._running.items() if task.done()]:
            error = self._running.pop(leg_id).exception()
            if error:
                # Its lease runs out, and then it is asked about.
                logger.error("A stream could not be heard", exc_info=error, extra={"action": "stream.crashed"})

    async def _renew(self) -> None:
        self._renewed_at = time.monotonic()
        kept = await in_db(renew, self.owner, self._running)
        await self._stop([leg_id for leg_id in self._running if leg_id not in kept])

    async def _stop(self, leg_ids: list[uuid.UUID]) -> None:
        tasks = [self._running.pop(leg_id) for leg_id in leg_ids if leg_id in self._running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if leg_ids:
            await in_db(let_go, self.owner, leg_ids)


@lru_cache(maxsize=1)
def follower() -> Background:
    """The one of this process."""
    return Background("follower", lambda news: Follower(news).run())
