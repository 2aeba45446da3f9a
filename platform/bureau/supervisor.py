"""A small process tree: start the parts, restart what dies, end everything within seconds.

Each part has a process group of its own, so that a terminal's Ctrl-C reaches only the supervisor, which
then ends the parts in order, and so that what a part started ends with it. On Linux the kernel also kills
the parts of a supervisor that was itself killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO

logger = logging.getLogger(__name__)

GRACE_SECONDS = 5.0
QUICK_SECONDS = 10.0
"""A part that ends sooner than this after its start counts as failing."""
MAX_QUICK_ENDS = 5
FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0
TICK_SECONDS = 1.0

_PR_SET_PDEATHSIG = 1


class PartFailed(Exception):
    """A part ended again and again, as soon as it was started."""


@dataclass
class Part:
    """One process to keep alive. A part with a higher `rank` is ended after those with a lower one."""

    name: str
    command: Sequence[str]
    rank: int = 0
    death_signal: int = signal.SIGKILL
    """What the kernel sends when the supervisor is killed."""
    pass_fds: Sequence[int] = ()
    output: IO[bytes] | None = None
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    due_at: float = 0.0
    quick_ends: int = field(default=0)
    has_run: bool = field(default=False)

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=self.output,
            start_new_session=True,
            pass_fds=self.pass_fds,
            # What runs before the exec is two system calls, so threads do no harm.
            preexec_fn=die_with_parent(self.death_signal),  # noqa: PLW1509
        )
        self.started_at = time.monotonic()

    def send(self, number: int) -> None:
        """Signal the whole group; one that is gone is fine."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None


def die_with_parent(number: int) -> Callable[[], None] | None:
    """For `preexec_fn`: the kernel sends this signal when the process that started it ends. Linux only."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def arrange() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        # It may have died between the fork and the line above.
        if os.getppid() != parent:
            os._exit(1)

    return arrange


class Supervisor:
    """Keeps parts alive until it is told to stop. One per process, used from the main thread."""

    def __init__(self, parts: Sequence[Part] = ()) -> None:
        self.parts: list[Part] = []
        self.stop_signals: list[int] = []
        for part in parts:
            self.start(part)

    def start(self, part: Part) -> None:
        part.start()
        self.parts.append(part)

    @property
    def is_stopping(self) -> bool:
        return bool(self.stop_signals)

    @contextlib.contextmanager
    def signals(self) -> Iterator[int]:
        """Note SIGINT, SIGTERM and SIGHUP instead of dying of them; yields what to wait on besides time."""
        reader, writer = os.pipe()
        for end in (reader, writer):
            os.set_blocking(end, False)
        handled = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, self._note) for number in handled}
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        old_writer = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(old_writer)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(reader)
            os.close(writer)

    def _note(self, number: int, frame: object) -> None:
        self.stop_signals.append(number)
        # Who asks twice does not want to wait.
        if len(self.stop_signals) > 1:
            for part in self.parts:
                part.send(signal.SIGKILL)

    def run(self, wakeup: int) -> None:
        """Watch the parts until a signal asks to stop. Raises PartFailed."""
        while not self.is_stopping:
            self.tend()
            self.wait(wakeup, TICK_SECONDS)

    def wait(self, wakeup: int, seconds: float) -> None:
        """Sleep until a signal comes (a part that ends sends one) or the time is over."""
        delays = [part.due_at - time.monotonic() for part in self.parts if part.due_at]
        select.select([wakeup], [], [], max(0.0, min([seconds, *delays])))
        with contextlib.suppress(BlockingIOError):
            os.read(wakeup, 4096)

    def tend(self) -> None:
        """Note which parts ended, and start again those whose time has come. Raises PartFailed."""
        now = time.monotonic()
        for part in self.parts:
            if part.due_at:
                if now >= part.due_at:
                    part.due_at = 0.0
                    part.start()
            elif not part.is_running:
                self._schedule_restart(part, now)

    def _schedule_restart(self, part: Part, now: float) -> None:
        assert part.process is not None
        part.send(signal.SIGKILL)  # what it may have left in its group
        ending = describe_ending(part.process.returncode)
        part.quick_ends = part.quick_ends + 1 if now - part.started_at < QUICK_SECONDS else 0
        part.has_run = part.has_run or not part.quick_ends
        # One that never got going will not; one that ran before may be killed by its work, and the rest goes on.
        if part.quick_ends >= MAX_QUICK_ENDS and not part.has_run:
            raise PartFailed(f"{part.name} {ending} {part.quick_ends} times in a row; its log lines say why.")
        delay = min(FIRST_DELAY * 2 ** max(part.quick_ends - 1, 0), LONGEST_DELAY)
        part.due_at = now + delay
        logger.warning(
            "%s (process %d) %s; starting it again in %.1f s",
            part.name,
            part.process.pid,
            ending,
            delay,
            extra={"action": "part.restart"},
        )

    def stop(self) -> None:
        """End all parts, rank by rank: ask, wait, kill. Afterwards none is left."""
        deadline = time.monotonic() + GRACE_SECONDS
        for rank in sorted({part.rank for part in self.parts}):
            parts = [part for part in self.parts if part.rank == rank]
            for part in parts:
                part.send(signal.SIGTERM)
            for part in parts:
                self._wait_for(part, deadline)
            # The rank after this one gets some time, too, when this one used it all up.
            deadline = max(deadline, time.monotonic() + 1.0)
        self.parts.clear()

    def _wait_for(self, part: Part, deadline: float) -> None:
        if part.process is None:
            return
        try:
            part.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            logger.warning("%s did not end in time and is killed", part.name, extra={"action": "part.killed"})
        part.send(signal.SIGKILL)
        part.process.wait()


def describe_ending(status: int) -> str:
    """For people: "ended with status 1", "was ended by SIGKILL"."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
