"""Who is there: each worker keeps a key in Redis that expires soon after the worker does."""

from __future__ import annotations

import logging
import os
import socket
import threading

import redis

from tasks.wakeups import client

logger = logging.getLogger(__name__)

EVERY_SECONDS = 5.0
EXPIRES_SECONDS = 15
PREFIX = "bureau:worker:"


class Heartbeat:
    """Publishes that this worker lives, from a thread of its own, until stopped."""

    def __init__(self) -> None:
        self.key = f"{PREFIX}{socket.gethostname()}:{os.getpid()}"
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop, and say so at once instead of letting the key expire."""
        self._stopped.set()
        if not self._thread.is_alive():
            return
        self._thread.join(timeout=3)
        try:
            client().delete(self.key)
        except redis.RedisError:
            logger.debug("Could not delete %s", self.key, exc_info=True)

    def _beat(self) -> None:
        while not self._stopped.is_set():
            try:
                client().set(self.key, "1", ex=EXPIRES_SECONDS)
            except redis.RedisError:
                logger.debug("Could not set %s", self.key, exc_info=True)
            self._stopped.wait(EVERY_SECONDS)


def is_any_worker_alive() -> bool:
    """Whether some worker was alive within the last seconds; False also when Redis is away."""
    try:
        return any(True for _ in client().scan_iter(match=f"{PREFIX}*", count=1000))
    except redis.RedisError:
        return False
