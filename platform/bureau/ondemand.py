"""What one command needs running, started only if nothing runs yet, and ended with the command."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import IO

from django.conf import settings
from django.core.management import CommandError

from bureau import embedded, parts, startup
from bureau.liveness import is_any_worker_alive
from bureau.supervisor import PartFailed, Supervisor

LOOK_SECONDS = 2.0
# Whoever holds the folder may be filling it first, which a busy machine takes its time for.
QUEUE_SECONDS = 120.0


class OnDemand:
    """Borrows the parts of a running Bureau, or brings its own for as long as they are needed.

    Several commands may share a data folder: the one that holds its lock runs the queue for all, and
    when it ends another one takes over.
    """

    def __init__(self, output: IO[bytes]) -> None:
        self._supervisor = Supervisor()
        self._stack = contextlib.ExitStack()
        self._output = output
        self._looked_at = float("-inf")
        self._holds_folder = False
        self.has_worker = False

    def __enter__(self) -> OnDemand:
        try:
            # An exception in the middle of a start would leave a process that nobody knows of.
            with self._supervisor.signals():
                self._prepare()
                self.tend()
        except BaseException:
            self.__exit__()
            raise
        if self._supervisor.is_stopping:
            self.__exit__()
            raise KeyboardInterrupt
        return self

    def __exit__(self, *_: object) -> None:
        self._supervisor.stop()
        if self._holds_folder:
            parts.remove_socket(settings.BUREAU_VALKEY_SOCKET)
        self._stack.close()

    def tend(self) -> None:
        """Look whether something is missing, at most every two seconds. From the main thread only.

        Raises CommandError when what is missing cannot be started.
        """
        if time.monotonic() - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        try:
            self._supervisor.tend()
        except PartFailed as error:
            raise CommandError(f"{error} They are in {settings.BUREAU_DATA / 'ask.log'}.") from None
        if self._needs_queue():
            self._start_queue()
        # A key left by a worker that was killed means nothing when nobody but us runs the queue.
        if not self.has_worker and (self._holds_folder or not is_any_worker_alive()):
            self._supervisor.start(parts.worker(1, self._output))
            self.has_worker = True

    def _prepare(self) -> None:
        parts.export_settings()
        startup.check_settings()
        startup.check_database()
        if not settings.BUREAU_EMBEDDED_REDIS:
            startup.check_redis()
            if is_any_worker_alive():
                return
        elif not self._take_folder():
            self._wait_for_queue()
            return
        startup.prepare_database()
        startup.close_database()
        if self._holds_folder:
            self._start_queue()

    def _take_folder(self) -> bool:
        if not self._holds_folder:
            with contextlib.ExitStack() as trying:
                self._holds_folder = trying.enter_context(embedded.hold(settings.BUREAU_DATA, "manage.py ask"))
                if self._holds_folder:
                    self._stack.enter_context(trying.pop_all())
        return self._holds_folder

    def _needs_queue(self) -> bool:
        if not settings.BUREAU_EMBEDDED_REDIS or self._holds_folder or not embedded.answers(settings.REDIS_URL):
            return False
        return self._take_folder()

    def _start_queue(self) -> None:
        valkey = parts.valkey(self._output)
        self._supervisor.start(valkey)
        parts.wait_for_valkey(valkey)

    def _wait_for_queue(self) -> None:
        """Somebody else is starting, or running, what this folder needs."""
        deadline = time.monotonic() + QUEUE_SECONDS
        while embedded.answers(settings.REDIS_URL):
            if self._needs_queue():
                self._start_queue()
                return
            if time.monotonic() > deadline:
                holder = embedded.holder(settings.BUREAU_DATA)
                raise CommandError(f"The data folder is in use by {holder}, but its queue does not answer.")
            if self._supervisor.is_stopping:
                raise KeyboardInterrupt
            time.sleep(0.1)


@contextlib.contextmanager
def on_demand() -> Iterator[OnDemand]:
    """Everything a task needs to be worked on; what had to be started logs to `ask.log` in the data folder."""
    with (settings.BUREAU_DATA / "ask.log").open("wb") as output, OnDemand(output) as running:
        yield running
