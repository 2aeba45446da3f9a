"""Waiting for something to become true, instead of sleeping and hoping."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from tasks.background import Background

T = TypeVar("T")
P = ParamSpec("P")

# Long enough for a process that shares two busy cores with many: only what never comes takes so long.
PATIENCE = 90.0


def wait_until(condition: Callable[[], T], seconds: float = PATIENCE, what: str = "") -> T:
    """The first true value of `condition()`. Raises AssertionError when there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            name = what or getattr(condition, "__name__", "the condition")
            raise AssertionError(f"Waited {seconds:g} s for {name}; the last value was {value!r}.")
        time.sleep(0.02)


class UntilStopped:
    """Holds back what a background calls in a thread, until it has been told to stop: the write comes after the word.

    `begun` says when it is about to be called.
    """

    def __init__(self, background: Background) -> None:
        self._background = background
        self.begun = threading.Event()

    def hold(self, function: Callable[P, T]) -> Callable[P, T]:
        def held(*args: P.args, **kwargs: P.kwargs) -> T:
            self.begun.set()
            wait_until(lambda: self._background._is_stopping)
            self._pass()
            return function(*args, **kwargs)

        return held

    def _pass(self) -> None:
        """The loop has seen the word, which was put there under the lock, when it comes to what is put there now."""
        is_seen = threading.Event()
        with self._background._lock:
            self._background._loop.call_soon_threadsafe(is_seen.set)
        assert is_seen.wait(PATIENCE)
