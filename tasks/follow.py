"""Readers of the log that wait for more: replay from the database, then live. They hold no thread."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from tasks.aio import in_db
from tasks.models import Event, Task
from tasks.queries import EVENT_BATCH, EventRow, events_after
from tasks.wakeups import SETTLED as SETTLING_NEWS
from tasks.wakeups import Inbox, inbox


class Settleable(Protocol):
    """What tells whether it has settled, such as a TaskView."""

    @property
    def is_settled(self) -> bool: ...

    @property
    def last_seq(self) -> int: ...


V = TypeVar("V", bound=Settleable)

HEARTBEAT_SECONDS = 15.0
# Without Redis the database is asked at this pace.
POLL_SECONDS = 1.0

SETTLED = frozenset(state.value for state in Task.State) - {state.value for state in Task.RUNNING}


def settles(event: EventRow) -> bool:
    """Whether a stream ends with this event: the task has ended, or waits for somebody."""
    return event.kind == Event.Kind.STATUS and event.payload["state"] in SETTLED


async def follow(task_id: uuid.UUID, after: int) -> AsyncIterator[list[EventRow]]:
    """Batches of events behind number `after`, in order, without gap or duplicate, for ever.

    An empty batch is a heartbeat. The reader decides when it has seen enough. Ends by itself when
    the task is deleted.
    """
    box = inbox()
    async with box.listen([task_id]) as news:
        while True:
            news.clear()
            batch = await in_db(events_after, task_id, after)
            if batch:
                after = batch[-1].seq
                yield batch
                if len(batch) == EVENT_BATCH:
                    continue
            if await _heard(news, box):
                continue
            if not await in_db(Task.objects.filter(pk=task_id).exists):
                return
            if not batch:
                yield []


class Settling:
    """Waits until a task has settled. Listen before you send, and no look is needed in between:

    async with settling(task_id) as task:
        sent = await in_db(send_message, ..., new_id=task_id)
        view = await task.read_settled(sent.seq, read)
    """

    def __init__(self, news: asyncio.Event, box: Inbox) -> None:
        self._news = news
        self._box = box

    async def read_settled(self, after: int, read: Callable[[], V]) -> V:
        """What `read` gives (called where the database may be used) once an event behind `after` has settled it."""
        while True:
            await _heard(self._news, self._box)
            # Before the look: news that come while it lasts must not be lost.
            self._news.clear()
            view = await in_db(read)
            if view.is_settled and view.last_seq > after:
                return view


@asynccontextmanager
async def settling(task_id: uuid.UUID) -> AsyncIterator[Settling]:
    """Listen for the news that a task has settled, from here on; the task need not exist yet."""
    box = inbox()
    async with box.listen([f"{task_id}{SETTLING_NEWS}"]) as news:
        yield Settling(news, box)


async def _heard(news: asyncio.Event, box: Inbox) -> bool:
    """Wait for a wake-up; False when it is time for a look without one."""
    patience = HEARTBEAT_SECONDS if box.is_connected else POLL_SECONDS
    try:
        async with asyncio.timeout(patience):
            await news.wait()
    except TimeoutError:
        return False
    return True
