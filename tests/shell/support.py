"""Running manage.py as a stranger would: a fresh data folder, and no more environment than needed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.support.servers import BASE, Running, start
from tests.support.waiting import PATIENCE, wait_until

KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV")


def clean_env(data: Path) -> dict[str, str]:
    return {name: os.environ[name] for name in KEPT if name in os.environ} | {"BUREAU_DATA": str(data)}


def manage(*arguments: str, env: Mapping[str, str], seconds: float = 2 * PATIENCE) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    command = [sys.executable, "manage.py", *arguments]
    return subprocess.run(
        command, cwd=BASE, env=dict(env), capture_output=True, text=True, timeout=seconds, check=False
    )


def start_manage(*arguments: str, env: Mapping[str, str], folder: Path) -> Running:
    """Start a command that runs until it is ended."""
    return start([sys.executable, "manage.py", *arguments], folder, env, arguments[0])


def wait_for_output(running: Running, words: str, seconds: float = PATIENCE) -> None:
    def printed() -> bool:
        assert running.process.poll() is None or words in running.output, running.output
        return words in running.output

    wait_until(printed, seconds, f"{words!r} in the output")


def descendants(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def assert_gone(processes: list[psutil.Process], seconds: float = PATIENCE) -> None:
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    assert not alive


def sockets(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_socket()]
