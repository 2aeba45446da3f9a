"""Wake-ups: "task X has news". A hint only: who misses one reads the same from the database later.

One channel, and one inbox per web process: a subscription per request would cost more than
everything else that a wait does. Publishing happens after the commit.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from uuid import UUID

import hiredis
import redis
import redis.asyncio
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

logger = logging.getLogger(__name__)

NEWS = "news"
STOP = "stop"
# Behind an id: the news settles the task, so that a waiter need not look at every step in between.
SETTLED = "!"
# While Redis is away every publish would wait for its timeout; after a failure leave it alone a moment.
PAUSE_SECONDS = 1.0
# Short enough for a request to survive its absence.
TIMEOUT_SECONDS = 1.0
# Between two questions whether the other side is still there.
PING_SECONDS = 15.0
PING = b"*1\r\n$4\r\nPING\r\n"

_clients: dict[str, "redis.Redis"] = {}
_lock = threading.Lock()
_away_until = 0.0


def client() -> "redis.Redis":
    """The process's Redis client."""
    url = settings.REDIS_URL
    known = _clients.get(url)
    if known is None:
        with _lock:
            known = _clients.setdefault(
                url,
                redis.Redis.from_url(
                    url,
                    socket_timeout=TIMEOUT_SECONDS,
                    socket_connect_timeout=TIMEOUT_SECONDS,
                    # A connection that the server closed is worth a second try; a server that is stuck is not.
                    retry=Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
                    health_check_interval=30,
                ),
            )
    return known


def channel(name: str) -> str:
    """The channel's full name. Redis keeps keys of its numbered databases apart, but not channels."""
    return f"bureau:{client().connection_pool.connection_kwargs.get('db') or 0}:{name}"


def announce(
    task_ids: Iterable[UUID], *, is_settled: bool = False, stop: bool = False, others: Iterable[UUID] = ()
) -> None:
    """Tell whoever waits that these tasks have news; with `stop`, tell their workers to let go.

    `is_settled` says that the news is an end or a question, which is all that some wait for; that of `others` is
    something in between.
    Never raises: a lost hint delays, it does not lose.
    """
    global _away_until
    if time.monotonic() < _away_until:
        return
    mark = SETTLED if is_settled else ""
    payload = " ".join([*(f"{task_id}{mark}" for task_id in task_ids), *map(str, others)])
    try:
        if stop:
            client().publish(channel(STOP), payload)
        client().publish(channel(NEWS), payload)
    except redis.RedisError as error:
        _away_until = time.monotonic() + PAUSE_SECONDS
        logger.warning("Redis is away, readers fall back to polling: %s", error, extra={"action": "wakeup.failed"})


class Inbox:
    """The wake-ups that one event loop listens to, shared by all its waiters."""

    def __init__(self) -> None:
        self._waiters: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._reader: asyncio.Task[None] | None = None
        self.is_connected = False

    @contextlib.asynccontextmanager
    async def listen(self, task_ids: Iterable[UUID | str]) -> AsyncIterator[asyncio.Event]:
        """An event that is set whenever one of the tasks may have news. The listener clears it.

        An id with SETTLED behind it asks for news of that kind only.
        """
        keys = [str(task_id) for task_id in task_ids]
        event = asyncio.Event()
        for key in keys:
            self._waiters[key].add(event)
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read())
        try:
            yield event
        finally:
            for key in keys:
                self._waiters[key].discard(event)
                if not self._waiters[key]:
                    del self._waiters[key]

    def wake_all(self) -> None:
        for events in list(self._waiters.values()):
            for event in events:
                event.set()

    async def _read(self) -> None:
        # The client can take a cancel that comes while it connects or times out for a failure of its own.
        while not _is_cancelled():
            try:
                await self._read_until_lost()
            except (redis.RedisError, OSError) as error:
                self.is_connected = False
                logger.warning("Lost the wake-ups, trying again: %s", error, extra={"action": "wakeup.lost"})
                await asyncio.sleep(PAUSE_SECONDS)

    async def _read_until_lost(self) -> None:
        pool = redis.asyncio.ConnectionPool.from_url(settings.REDIS_URL, socket_connect_timeout=1, socket_timeout=5)
        connection = pool.make_connection()  # type: ignore[no-untyped-call]
        try:
            await connection.connect()
            await connection.send_command("SUBSCRIBE", channel(NEWS))
            await connection.read_response(push_request=True)
            feed = Feed(self._hear)
            # redis-py knows how to connect: TLS, accounts, sockets. Its reader takes five times as long as ours.
            transport = connection._writer.transport
            transport.set_protocol(feed)
            self.is_connected = True
            # What was published while nobody listened is in the database: everyone looks once.
            self.wake_all()
            while not _is_cancelled():
                await asyncio.wait([feed.lost], timeout=PING_SECONDS)
                feed.check()
                transport.write(PING)
        finally:
            await connection.disconnect(nowait=True)

    def _hear(self, payload: bytes) -> None:
        for key in payload.decode().split():
            for heard in {key, key.removesuffix(SETTLED)}:
                for event in self._waiters.get(heard, ()):
                    event.set()


class Feed(asyncio.Protocol):
    """Calls `hear` with what is published, right where the event loop reads it."""

    def __init__(self, hear: Callable[[bytes], None]) -> None:
        self._hear = hear
        self._parser = hiredis.Reader()
        self._is_alive = True
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def check(self) -> None:
        """Raises ConnectionError when the connection is lost, or nothing came since the last time: PING is answered."""
        if self.lost.done() or not self._is_alive:
            raise redis.ConnectionError("the connection is lost")
        self._is_alive = False

    def data_received(self, data: bytes) -> None:
        self._is_alive = True
        try:
            self._parser.feed(data)
            while (reply := self._parser.gets()) is not False:
                if isinstance(reply, list) and reply[0] == b"message":
                    self._hear(reply[2])
        except hiredis.ProtocolError:
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if not self.lost.done():
            self.lost.set_result(None)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


_inboxes: dict[int, tuple[asyncio.AbstractEventLoop, Inbox]] = {}


def inbox() -> Inbox:
    """The inbox of the running event loop; a web process has one loop, a test may have many."""
    loop = asyncio.get_running_loop()
    known = _inboxes.get(id(loop))
    if known is None or known[0] is not loop:
        for key, (other, _) in list(_inboxes.items()):
            if other.is_closed():
                del _inboxes[key]
        known = _inboxes[id(loop)] = (loop, Inbox())
    return known[1]
