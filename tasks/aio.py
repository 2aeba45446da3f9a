"""Database work for asynchronous code.

Django gives each ASGI request a thread of its own, and so a connection of its own. Here a few
threads live as long as the process and each keeps its connection: a call costs one hop, not a
connection. Services stay synchronous and are written once.
"""

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from django.conf import settings
from django.db import connection

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 8
# After a pause the server may have gone; asking costs one round trip, so ask only then.
IDLE_SECONDS = 5.0

_pool: ThreadPoolExecutor | None = None
_lock = threading.Lock()
_thread = threading.local()


async def in_db(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a synchronous function in a thread with a warm connection, in the caller's context."""
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(
        _executor(), lambda: context.run(_call, function, args, kwargs)
    )


def refresh_connection() -> None:
    """Drop this thread's connection if it broke, or if it is found dead after an idle time."""
    now = time.monotonic()
    if connection.connection is not None:
        if connection.errors_occurred:
            connection.close_if_unusable_or_obsolete()
        elif now - getattr(_thread, "used_at", 0.0) > IDLE_SECONDS and not connection.is_usable():
            connection.close()
    _thread.used_at = now


def _call(function: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]) -> T:
    refresh_connection()
    return function(*args, **kwargs)


def _executor() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        with _lock:
            if _pool is None:
                _pool = ThreadPoolExecutor(getattr(settings, "BUREAU_DB_THREADS", THREADS), "bureau-db")
    return _pool


def close_pool() -> None:
    """End the threads and their connections; for tests and for a web process that stops."""
    global _pool
    with _lock:
        pool, _pool = _pool, None
    if pool is None:
        return
    # Each takes a thread and holds it until all have one. Whatever they are still at, the end of the pool waits for it.
    barrier = threading.Barrier(pool._max_workers)

    def close() -> None:
        barrier.wait()
        connection.close()

    for done in [pool.submit(close) for _ in range(pool._max_workers)]:
        done.result()
    pool.shutdown()
