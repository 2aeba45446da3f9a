"""Work that waits for the network, beside the turns of a process: one thread with an event loop for all of it.

It holds no worker, begins with the first nudge, and may be killed at any line: what it has in hand is claimed
in the database, and due again when the claim runs out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)


class Background:
    """Runs `work(news)` again and again, each time something may be due.

    `news` is set by every nudge: work that is under way clears it and looks once more. `work` returns when nothing
    is left, and lets go of what it holds when it is cancelled.
    """

    def __init__(self, name: str, work: Callable[[asyncio.Event], Awaitable[object]]) -> None:
        self._name = name
        self._work = work
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop = asyncio.new_event_loop()
        self._news = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._is_stopping = False

    def nudge(self) -> None:
        """Something may be due. Returns at once."""
        with self._lock:
            if self._is_stopping:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._loop.call_soon_threadsafe(self._news.set)

    def stop(self, seconds: float = 5.0) -> None:
        """Let go of what is under way, for another process to go on."""
        with self._lock:
            self._is_stopping = True
            thread, self._thread = self._thread, None
            if thread is not None:
                self._loop.call_soon_threadsafe(self._cancel)
        if thread is not None:
            thread.join(seconds)
        elif not self._loop.is_closed() and not self._loop.is_running():
            self._loop.close()

    def _cancel(self) -> None:
        if self._running is not None:
            self._running.cancel()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._running = self._loop.create_task(self._repeat())
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._running)
        # Connections that were closed a moment ago get the turn of the loop that they need.
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _repeat(self) -> None:
        while True:
            await self._news.wait()
            try:
                await self._work(self._news)
            except Exception:
                # Whoever rings regularly rings again.
                self._news.clear()
                logger.exception("The %s failed", self._name, extra={"action": f"{self._name}.failed"})
                if self._is_stopping:
                    # The word came while it worked, and took the shape of what failed.
                    return
