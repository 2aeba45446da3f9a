"""Server processes under test: started with a log file, awaited, measured as whole trees, ended by pid."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]


class ServerFailed(Exception):
    """A server under test did not come up, or died; the text ends with the last lines of its log."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def listens(port: int) -> bool:
    """Whether something accepts connections on this port of this machine."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def python(*arguments: str) -> list[str]:
    """A command line for this interpreter."""
    return [sys.executable, *arguments]


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without what would steer a server elsewhere, plus `extra`."""
    steering = ("BUREAU_", "DATABASE_URL", "REDIS_URL", "ANTHROPIC_", "DJANGO_", "CELERY_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(steering)}
    return kept | dict(extra)


class Server:
    """One process under test together with all its descendants."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], logs: Path) -> None:
        self.name = name
        self._log = logs / f"{name}.log"
        with self._log.open("ab") as out:
            self._popen = subprocess.Popen(
                command, cwd=ROOT, env=environment(env), stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        self.process = psutil.Process(self._popen.pid)

    def tree(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return [self.process, *self.process.children(recursive=True)]
        return []

    def check_alive(self) -> None:
        """Raises ServerFailed if the process has ended."""
        if self._popen.poll() is not None:
            raise ServerFailed(f"{self.name} ended with status {self._popen.returncode}\n{self.log_tail()}")

    def wait_for_port(self, port: int, seconds: float = 60.0) -> None:
        """Returns once something listens on `port`; raises ServerFailed if the process ends or time is up."""
        self.wait(lambda: listens(port), f"open port {port}", seconds)

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
        """Returns once the condition holds; raises ServerFailed if the process ends or time is up."""
        deadline = time.monotonic() + seconds
        while not condition():
            self.check_alive()
            if time.monotonic() > deadline:
                raise ServerFailed(f"{self.name} did not {what} in {seconds:.0f} s\n{self.log_tail()}")
            time.sleep(0.05)

    def log_tail(self, lines: int = 15) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def kill_tree(self) -> None:
        """SIGKILL to the process and all its descendants, by pid."""
        for process in self.tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._popen.wait()

    def stop(self, seconds: float = 15.0) -> None:
        """SIGTERM to the process; whatever of its tree is left after `seconds` is killed, by pid."""
        tree = self.tree()
        with contextlib.suppress(psutil.NoSuchProcess):
            self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(seconds)
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._popen.wait()


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """User and system time so far of these processes, with that of their children that ended already."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])  # user, system, children_user, children_system
    return total


def resident_bytes(processes: Iterable[psutil.Process]) -> int:
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += int(process.memory_info().rss)
    return total
