"""What goes on beside the turns of a worker process: leases are renewed, lost turns are stopped, and a
slow turn rings for another worker, so that what is queued behind it does not wait.

One ticking thread for all turns: waking a thread for each would cost more than a short turn itself.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator

from django.conf import settings
from django.db import connection

from agents.turn import Turn
from tasks import claims, doorbell, wakeups
from tasks.aio import refresh_connection
from tasks.exceptions import Superseded

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.02
"""A turn that outlives a tick or two is slow: somebody else should look after the queue."""
LOST_SECONDS = 2.0
"""How often the database is asked whether turns are lost, should the word from Redis not come."""
LISTEN_SECONDS = 5.0


class Watch:
    """The watch over one process's turns."""

    def __init__(self) -> None:
        self._turns: dict[int, tuple[Turn, float]] = {}
        self._rung: set[int] = set()
        self._lock = threading.Lock()
        self._has_turns = threading.Event()
        self._is_started = False
        self.is_stopping = threading.Event()

    @contextlib.contextmanager
    def over(self, turn: Turn) -> Iterator[None]:
        """Watch this turn while the block runs."""
        key = id(turn)
        with self._lock:
            self._turns[key] = (turn, time.monotonic())
            if not self._is_started:
                self._start()
        if self.is_stopping.is_set():
            turn.stop()
        self._has_turns.set()
        try:
            yield
        finally:
            with self._lock:
                self._turns.pop(key, None)
                self._rung.discard(key)

    def shut_down(self) -> None:
        """The worker is ending: every turn stops at its next check and its task goes back."""
        self.is_stopping.set()
        for turn in self._current():
            turn.stop()

    def _start(self) -> None:
        self._is_started = True
        threading.Thread(target=self._tick_for_ever, name="bureau-watch", daemon=True).start()
        threading.Thread(target=self._listen_for_ever, name="bureau-stop", daemon=True).start()

    def _current(self) -> list[Turn]:
        with self._lock:
            return [turn for turn, _ in self._turns.values()]

    def _tick_for_ever(self) -> None:
        looked_at = 0.0
        while True:
            self._has_turns.wait()
            time.sleep(TICK_SECONDS)
            with self._lock:
                is_idle = not self._turns
                if is_idle:
                    self._has_turns.clear()
            if is_idle:
                connection.close()
                continue
            try:
                self._ring_for_slow_turns()
                if time.monotonic() - looked_at > LOST_SECONDS:
                    looked_at = time.monotonic()
                    refresh_connection()
                    self._stop_lost_turns()
                self._renew_leases()
            except Exception:
                # Whatever it is, without this thread no lease of the process would be renewed any more.
                logger.warning("The watch failed for a moment", exc_info=True, extra={"action": "watch.failed"})
                looked_at = time.monotonic()

    def _ring_for_slow_turns(self) -> None:
        late = time.monotonic() - TICK_SECONDS
        with self._lock:
            slow = [
                (key, turn)
                for key, (turn, _) in self._turns.items()
                if turn.started_at < late and key not in self._rung
            ]
            self._rung.update(key for key, _ in slow)
        for queue in {turn.claim.queue for _, turn in slow}:
            # Who holds the bell may be the one that is slow.
            doorbell.clear(queue)
            doorbell.ring_again(queue)

    def _stop_lost_turns(self) -> None:
        turns = {turn.claim: turn for turn in self._current()}
        for claim in claims.find_lost(turns):
            turns[claim].stop()

    def _renew_leases(self) -> None:
        late = time.monotonic() - settings.BUREAU_LEASE_SECONDS / 3
        with self._lock:
            due = [(key, turn) for key, (turn, renewed_at) in self._turns.items() if renewed_at < late]
        for key, turn in due:
            refresh_connection()
            try:
                claims.renew(turn.claim)
            except Superseded:
                turn.stop()
            with self._lock:
                if key in self._turns:
                    self._turns[key] = (turn, time.monotonic())

    def _listen_for_ever(self) -> None:
        """Stop canceled turns as soon as the word comes; without Redis the ticking thread finds out."""
        while True:
            try:
                with wakeups.client().pubsub(ignore_subscribe_messages=True) as pubsub:  # type: ignore[no-untyped-call]
                    pubsub.subscribe(wakeups.channel(wakeups.STOP))
                    while True:
                        message = pubsub.get_message(timeout=LISTEN_SECONDS)
                        if message:
                            self._stop_named(set(message["data"].decode().replace(wakeups.SETTLED, "").split()))
            except Exception as error:
                logger.debug("No word of cancels for now: %s", error)
                time.sleep(1)

    def _stop_named(self, task_ids: set[str]) -> None:
        for turn in self._current():
            if str(turn.claim.task_id) in task_ids:
                turn.stop()


watch = Watch()
