"""The processes that make up a running Bureau, and how each is started."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from django.conf import settings
from django.core.management import CommandError

from bureau.embedded import EmbeddedError, answers, end_leftover, valkey_command
from bureau.supervisor import Part, describe_ending

MANAGE = settings.BASE_DIR / "manage.py"
START_SECONDS = 60.0


def manage(command: str, *arguments: str) -> list[str]:
    """The command line of one of our own commands, for this same Python."""
    return [sys.executable, str(MANAGE), command, *arguments]


def export_settings() -> None:
    """Let the parts find the same data folder and address, wherever those came from."""
    os.environ["BUREAU_DATA"] = str(settings.BUREAU_DATA)


def web(listener: int) -> Part:
    """A web process that accepts on a socket it inherits, so that a restart refuses nobody."""
    return Part("web", manage("web", "--fd", str(listener)), pass_fds=[listener])


def worker(number: int, output: IO[bytes] | None = None) -> Part:
    return Part(f"worker {number}", manage("worker"), output=output)


def scheduler() -> Part:
    return Part("scheduler", manage("scheduler"))


def valkey(output: IO[bytes] | None = None) -> Part:
    """The embedded Valkey; ends after the others, which still have something to tell it.

    Only for the holder of the data folder's lock. Raises CommandError.
    """
    socket = settings.BUREAU_VALKEY_SOCKET
    try:
        command = valkey_command(settings.BUREAU_DATA, socket)
    except EmbeddedError as error:
        raise CommandError(str(error)) from None
    if socket.exists():
        end_leftover(settings.REDIS_URL)
        socket.unlink(missing_ok=True)
    # SIGTERM: it writes down what it has and removes its socket.
    return Part("valkey", command, rank=1, death_signal=signal.SIGTERM, output=output)


def wait_for_valkey(part: Part) -> None:
    """Return when it answers. Raises CommandError."""
    log = settings.BUREAU_DATA / "valkey" / "valkey.log"
    wait_until(lambda: not answers(settings.REDIS_URL), part, f"The embedded Valkey does not answer; see {log}")


def wait_until(condition: Callable[[], bool], part: Part, complaint: str) -> None:
    """Poll until the condition holds. Raises CommandError when the part ends first or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if not part.is_running:
            assert part.process is not None
            raise CommandError(f"{complaint}: it {describe_ending(part.process.returncode)}.")
        if time.monotonic() > deadline:
            raise CommandError(f"{complaint}: nothing after {START_SECONDS:.0f} seconds.")
        time.sleep(0.02)


def remove_socket(socket: Path) -> None:
    """Leave no stale socket behind, nor the folder that was made for it alone."""
    socket.unlink(missing_ok=True)
    try:
        socket.parent.rmdir()
    except OSError:
        return  # never made, or somebody keeps other things there
