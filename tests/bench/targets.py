"""What is measured: servers that answer the same waited echo, each started here and ended here."""

import asyncio
import contextlib
import itertools
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psutil
import psycopg
import redis

from tests.bench.client import Connection
from tests.bench.floor import statements
from tests.bench.processes import ROOT, Server, ServerFailed, environment, free_port, python
from tests.bench.stores import Stores

REDIS_BUREAU, REDIS_FLOOR = 14, 15


class WrongAnswer(Exception):
    """A server did not echo what it was sent."""


class Target:
    """A server that answers A2A 1.0 `SendMessage` at one URL, with all the processes it takes."""

    name = ""
    title = ""

    def __init__(self, stores: Stores, folder: Path) -> None:
        self.headers = {"A2A-Version": "1.0"}
        self.stores, self.folder = stores, folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/"
        self.servers: list[Server] = []
        self._numbers = itertools.count()

    def start(self) -> None:
        """Start the processes; returns when requests are answered. Raises ServerFailed."""
        raise NotImplementedError

    def stop(self) -> None:
        for server in reversed(self.servers):
            server.stop()
        self.servers.clear()

    def processes(self) -> list[psutil.Process]:
        return [process for server in self.servers for process in server.tree()]

    def log_tail(self) -> str:
        """The last lines that each of its processes wrote."""
        return "\n".join(tail for server in self.servers if (tail := server.log_tail()))

    def launch(self, part: str, command: list[str], env: dict[str, str]) -> Server:
        server = Server(f"{self.name}-{part}", command, env, self.folder)
        self.servers.append(server)
        return server

    def request(self, text: str, method: str = "SendMessage", **params: Any) -> bytes:
        """A JSON-RPC request that sends `text` as a new message."""
        number = next(self._numbers)
        message = {"messageId": f"{self.name}-{number}", "role": "ROLE_USER", "parts": [{"text": text}]}
        return self.call(method, {"message": message, **params})

    def call(self, method: str, params: dict[str, Any]) -> bytes:
        return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()

    def check(self, reply: Any, text: str) -> None:
        """Raises WrongAnswer unless the task completed with `text` as its artifact."""
        try:
            task = reply["result"]["task"]
            good = task["status"]["state"] == "TASK_STATE_COMPLETED"
            good = good and task["artifacts"][0]["parts"][0]["text"] == text
        except (KeyError, IndexError, TypeError):
            good = False
        if not good:
            raise WrongAnswer(f"{self.name} answered {json.dumps(reply)[:500]}")

    async def echo(self) -> None:
        """One request, to see that all parts are there. Raises BadReply or WrongAnswer."""
        connection = Connection(self.url, self.headers)
        try:
            self.check(await connection.call(self.request("is anybody there?")), "is anybody there?")
        finally:
            connection.close()

    def uvicorn(self, application: str, env: dict[str, str]) -> None:
        """One uvicorn process that says nothing per request."""
        options = ["--port", str(self.port), "--log-level", "warning", "--no-access-log"]
        self.launch("web", python("-m", "uvicorn", application, *options), env).wait_for_port(self.port)


class SdkMemory(Target):
    name = "sdk-memory"
    title = "a2a-sdk, in memory"

    def start(self) -> None:
        self.uvicorn("tests.bench.sdk_server:app", self.environment())

    def environment(self) -> dict[str, str]:
        # Spans that nobody collects would be to its disadvantage.
        return {"OTEL_INSTRUMENTATION_A2A_SDK_ENABLED": "false"}


class SdkDatabase(SdkMemory):
    name = "sdk-database"
    title = "a2a-sdk, database task store"

    def environment(self) -> dict[str, str]:
        url = urlsplit(self.stores.postgres.create("sdk"))
        # A socket's folder, which libpq takes for a host name, is a parameter for SQLAlchemy.
        user, _, host = url.netloc.rpartition("@")
        if "%2F" in host:
            url = url._replace(netloc=f"{user}@", query=f"host={host}")
        return super().environment() | {"SDK_DATABASE_URL": urlunsplit(url._replace(scheme="postgresql+asyncpg"))}


class FloorA(Target):
    name = "floor-a"
    title = "floor A: bare view, a Celery job per task"
    kind = "a"
    threads = 4

    def start(self) -> None:
        database = self.stores.postgres.create(f"floor_{self.kind}")
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(statements.SCHEMA)
        env = {
            "DJANGO_SETTINGS_MODULE": "tests.bench.floor.settings",
            "FLOOR_DATABASE_URL": database,
            "FLOOR_REDIS_URL": self.stores.redis.take(REDIS_FLOOR),
            "FLOOR_KIND": self.kind,
        }
        worker = ["-m", "celery", "-A", "tests.bench.floor.jobs", "worker", "-n", f"{self.name}@bench"]
        pool = ["-P", "threads", "-c", str(self.threads)]
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "warning"]
        self.launch("worker", python(*worker, *pool, *quiet), env)
        self.uvicorn("tests.bench.floor.asgi:application", env)


class FloorB(FloorA):
    name = "floor-b"
    title = "floor B: the same with a doorbell"
    kind = "b"
    threads = 1  # several drains empty the queue from under each other, and ring for every task: 2.4 ms, not 1.6


class Bureau(Target):
    """Ours: one web process and one worker process, migrated, seeded, called with an API key."""

    name = "bureau"
    title = "bureau"
    settings: Mapping[str, str] = MappingProxyType({})
    workers = 1

    def start(self) -> None:
        data = self.folder / f"{self.name}-data"
        data.mkdir()
        self.env = {
            "DATABASE_URL": self.stores.postgres.create(self.name),
            "REDIS_URL": self.stores.redis.take(REDIS_BUREAU),
            "BUREAU_DATA": str(data),
            "BUREAU_HOST": "127.0.0.1",
            "BUREAU_PORT": str(self.port),
            **self.settings,
        }
        self.manage("migrate")
        self.manage("seed")
        self.headers = self.as_client("bench")
        self.url = self.address("echo")
        for _ in range(self.workers):
            self.add_worker()
        self.web = self.launch("web", python("manage.py", "web"), self.env)
        self.web.wait_for_port(self.port)
        if self.workers:
            asyncio.run(self.echo())

    def address(self, slug: str) -> str:
        """The URL of one agent."""
        return f"http://127.0.0.1:{self.port}/a2a/{slug}/"

    def as_client(self, name: str) -> dict[str, str]:
        """The headers of a new API client of that name."""
        key = self.manage("apikey", "create", name).split()[-1]
        return {**self.headers, "Authorization": f"Bearer {key}"}

    def add_worker(self, *options: str, **env: str) -> Server:
        """One more worker process; returns when it takes work, which it tells by a key in Redis."""
        worker = self.launch("worker", python("manage.py", "worker", *options), self.env | env)
        with redis.Redis.from_url(self.env["REDIS_URL"]) as client:
            mine = f"bureau:worker:*:{worker.process.pid}"
            worker.wait(lambda: any(True for _ in client.scan_iter(mine)), "say that it is there")
        return worker

    def manage(self, *arguments: str) -> str:
        """Run a management command; returns what it printed. Raises ServerFailed with its error output."""
        done = subprocess.run(
            python("manage.py", *arguments),
            cwd=ROOT,
            env=environment(self.env),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise ServerFailed(f"manage.py {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
        return done.stdout


class BureauFleet(Bureau):
    """Ours for the second section: workers come and go on the way, and leases are short enough to wait for."""

    name = "bureau-fleet"
    title = "bureau"
    settings = MappingProxyType({"BUREAU_LEASE_SECONDS": "2", "BUREAU_SWEEP_SECONDS": "0.5"})
    terms = "lease 2 s, sweep every 0.5 s"
    workers = 0

    @contextlib.contextmanager
    def worker(self, *options: str, **env: str) -> Iterator[Server]:
        """A worker process for as long as the block runs."""
        server = self.add_worker(*options, **env)
        try:
            yield server
        finally:
            self._end(server)

    @contextlib.contextmanager
    def scheduler(self) -> Iterator[Server]:
        """The periodic scheduler for as long as the block runs."""
        server = self.launch("scheduler", python("manage.py", "scheduler"), self.env)
        try:
            yield server
        finally:
            self._end(server)

    def _end(self, server: Server) -> None:
        server.stop()
        self.servers.remove(server)


TARGETS: tuple[type[Target], ...] = (Bureau, SdkDatabase, SdkMemory, FloorA, FloorB)


@contextlib.contextmanager
def running(target: Target) -> Iterator[Target]:
    """The target with its processes started; ended on the way out, also when starting failed half-way."""
    try:
        target.start()
        yield target
    finally:
        target.stop()
