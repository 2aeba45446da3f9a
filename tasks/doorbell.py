"""The doorbell: the database is the queue, a Celery message only wakes a worker.

While the bell of a queue is set, somebody is draining it or about to, and ringing again would only
cost. A drainer clears the bell before its last look, so a row committed before the ring is seen by
one of the two. The bell expires by itself, and the sweep rings for what is overdue, so that nothing
here needs to be reliable.

A drainer that is done may keep the bell set and stand at the `Door` for a moment: each ring is also a word
on a channel, and whoever hears it needs no message.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import redis
from celery import current_app
from kombu.exceptions import OperationalError

from tasks import wakeups

logger = logging.getLogger(__name__)

DRAIN = "agents.drain"
PUSH = "bureau.push"
FOLLOW = "agents.follow"
BELL_MILLISECONDS = 1000
HELP_MILLISECONDS = 100
HELD = b"held"
# What only waits for the network takes no worker's time, so it needs no queue of its own.
NETWORK_QUEUE = "default"
# Nothing to declare on a Redis transport, and nobody reads the arguments' descriptions: half the cost of sending.
CHEAP: dict[str, Any] = {"declare": [], "argsrepr": "", "kwargsrepr": ""}

_away_until = 0.0


def ring(queue: str) -> None:
    """Wake a worker for this queue unless one is awake. Never raises; the sweep is the fallback."""
    _attempt(queue, lambda: _sets_bell(queue))


def ring_again(queue: str) -> None:
    """Wake one more worker although one is awake: it is busy, and others should not wait for it."""
    _attempt(queue, lambda: True)


def call_for_help(queue: str) -> None:
    """Wake one more worker because tasks are waiting; ten times a second at most for the whole fleet."""
    key = f"bureau:help:{queue}"
    _attempt(queue, lambda: bool(wakeups.client().set(key, "1", nx=True, px=HELP_MILLISECONDS)))


def ring_push() -> None:
    """Have a worker look for pushes that are due, unless one is about to. Never raises; the sweep is the fallback."""
    _ring_for(PUSH)


def ring_follow() -> None:
    """Have a worker look after tasks at remote agents, unless one is about to. Never raises; so does the scheduler."""
    _ring_for(FOLLOW)


def hold(queue: str) -> None:
    """Keep the bell set while this worker drains."""
    try:
        wakeups.client().set(_bell(queue), HELD, px=BELL_MILLISECONDS)
    except redis.RedisError:
        logger.debug("Could not hold the bell", exc_info=True)


def is_held(queue: str) -> bool:
    """Whether a drainer holds the bell: it will look again, and clear the bell before its last look."""
    try:
        return bool(wakeups.client().get(_bell(queue)) == HELD)
    except redis.RedisError:
        return False


def clear(queue: str) -> None:
    """Clear the bell; look at the queue once more after this."""
    try:
        wakeups.client().delete(_bell(queue))
    except redis.RedisError:
        logger.debug("Could not clear the bell", exc_info=True)


class Door:
    """Hears the rings for one queue from the moment it is made. Belongs to one thread."""

    def __init__(self, connection: "redis.Connection") -> None:
        self._connection = connection

    def hears(self, seconds: float) -> bool:
        """Whether somebody rang since the last time, or does so within the time. Raises RedisError."""
        if not self._connection.can_read(seconds):
            return False
        while self._connection.can_read(0):
            self._connection.read_response(push_request=True)
        return True


@contextlib.contextmanager
def standing_at_door(queue: str) -> Iterator[Door | None]:
    """The door of a queue, or None when another drainer of the fleet stands there, or Redis is away.

    One is enough: everybody at the door would look for each single task.
    """
    pool, channel = wakeups.client().connection_pool, wakeups.channel(_door(queue))
    door = None
    with contextlib.ExitStack() as stack:
        try:
            if not wakeups.client().pubsub_numsub(channel)[0][1]:
                connection = pool.get_connection()
                stack.callback(pool.release, connection)
                # It is nobody else's until nothing more can arrive on it.
                stack.callback(connection.disconnect)
                connection.send_command("SUBSCRIBE", channel)  # type: ignore[no-untyped-call]
                connection.read_response(push_request=True)
                door = Door(connection)
        except redis.RedisError:
            logger.debug("Could not stand at the door", exc_info=True)
        yield door


def _ring_for(job: str) -> None:
    _attempt(NETWORK_QUEUE, lambda: bool(wakeups.client().set(_bell(job), "1", nx=True, px=BELL_MILLISECONDS)), job)


def _bell(queue: str) -> str:
    return f"bureau:bell:{queue}"


def _door(queue: str) -> str:
    return f"door:{queue}"


def _sets_bell(queue: str) -> bool:
    """Set the bell, and tell who stands at the door; False when it was set."""
    with wakeups.client().pipeline(transaction=False) as pipeline:
        pipeline.set(_bell(queue), "1", nx=True, px=BELL_MILLISECONDS)
        pipeline.publish(wakeups.channel(_door(queue)), "")
        return bool(pipeline.execute()[0])


def _attempt(queue: str, wanted: Callable[[], bool], job: str = DRAIN) -> None:
    global _away_until
    if time.monotonic() < _away_until:
        return
    try:
        if wanted():
            current_app.send_task(job, args=[queue], queue=queue, retry=False, ignore_result=True, **CHEAP)
    except (redis.RedisError, OperationalError, OSError) as error:
        _away_until = time.monotonic() + wakeups.PAUSE_SECONDS
        logger.warning(
            "Could not ring for queue %s, the sweep will: %s",
            queue,
            error,
            extra={"action": "doorbell.failed"},
        )
