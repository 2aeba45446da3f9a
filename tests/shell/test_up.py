"""`manage.py up`: one process tree that starts, mends itself, and leaves nothing behind."""

import contextlib
import re
import shutil
import signal
import socket
import urllib.request

import psutil
import pytest

from bureau import embedded
from tests.shell.support import (
    assert_gone,
    descendants,
    manage,
    sockets,
    start_manage,
    wait_for_output,
)
from tests.support.servers import answers_http, free_port, start, wait_ready
from tests.support.waiting import PATIENCE, wait_until


@pytest.fixture
def port():
    return free_port()


@pytest.fixture
def env(env, port):
    return env | {"BUREAU_PORT": str(port)}


@pytest.fixture
def up(ready_env, tmp_path):
    """Starts `up` and waits for the address; whatever is left of it ends with the test."""
    started = []

    def run(*arguments, **variables):
        running = start_manage("up", *arguments, env=ready_env | variables, folder=tmp_path)
        started.append(running)
        wait_for_output(running, "Bureau runs at")
        return running

    yield run
    for running in started:
        if running.process.poll() is None:
            running.stop()


def part(running, command):
    """The child of `up` that runs this command."""

    def find():
        for child in descendants(running.pid):
            # It may end while it is looked at.
            with contextlib.suppress(psutil.NoSuchProcess):
                if command in (child.name(), *child.cmdline()):
                    return child
        return None

    return wait_until(find, what=command)


def refused(result):
    """The one line of a refusal."""
    assert result.returncode == 1, result
    assert not result.stdout
    (line,) = result.stderr.strip().splitlines()
    return line


def test_it_starts_everything_and_leaves_nothing(up, env, data, port):
    running = up("--workers", "2")
    assert f"http://127.0.0.1:{port}/" in running.output
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
        assert answer.status == 200
    wait_until(lambda: running.output.count(" ready.") == 2)
    children = descendants(running.pid)
    assert len([child for child in children if "worker" in child.cmdline()]) == 2
    assert len(children) == 5

    line = refused(manage("up", "--port", str(free_port()), env=env))
    assert f"is in use by process {running.pid} (manage.py up)" in line
    assert descendants(running.pid) == children

    assert running.stop(signal.SIGINT) == 0
    assert_gone(children, seconds=0)
    assert not (data / "run").exists()
    assert not answers_http(f"http://127.0.0.1:{port}/healthz")
    assert "Traceback" not in running.output


def test_from_nothing_it_makes_a_folder_of_its_own_and_shows_a_password_once(up, env, data):
    shutil.rmtree(data)
    first = up()
    assert data.stat().st_mode & 0o777 == 0o700
    for secret in ("secret_key", "bureau.sqlite3"):
        assert (data / secret).stat().st_mode & 0o077 == 0
    (password,) = re.findall(r"admin with the password (\S+)", first.output)
    assert first.stop() == 0
    code = f"from django.contrib.auth import authenticate as a; print(a(username='admin', password='{password}'))"
    assert manage("shell", "-v", "0", "-c", code, env=env).stdout.strip() == "admin"

    second = up()
    assert second.stop() == 0
    assert "password" not in second.output


def test_it_restarts_what_dies(up, ready_env, port):
    running = up()
    for command in ("web", "worker", "scheduler", "valkey-server"):
        victim = part(running, command)
        victim.kill()
        wait_until(lambda victim=victim: f"(process {victim.pid}) was ended by SIGKILL; starting it" in running.output)
        assert part(running, command).pid != victim.pid
    wait_until(lambda: answers_http(f"http://127.0.0.1:{port}/healthz"))
    result = manage("ask", "--agent", "echo", "Still here?", env=ready_env)
    assert (result.returncode, result.stdout) == (0, "Still here?\n"), running.output
    assert running.stop() == 0


def test_its_parts_do_not_outlive_it(up, data):
    running = up()
    children = descendants(running.pid)
    running.kill()
    assert_gone(children)
    # Valkey was asked, not killed: it has removed its socket. And the folder is free again.
    assert not sockets(data)
    with embedded.hold(data, "a test") as is_free:
        assert is_free


def test_it_takes_over_from_a_queue_that_was_left_behind(up, data, env, tmp_path):
    socket_path = embedded.socket_path(data)
    left = start(embedded.valkey_command(data, socket_path), tmp_path, env, "valkey")
    wait_ready(left, socket_path.exists, "valkey")
    running = up()
    assert left.process.wait(PATIENCE) == 0
    assert running.stop() == 0


@pytest.mark.parametrize("moment", ["migrating", "starting"])
def test_sigterm_ends_it_while_it_starts(env, tmp_path, data, moment):
    running = start_manage("up", env=env, folder=tmp_path)
    if moment == "migrating":
        log = data / "bureau.sqlite3-wal"
        wait_until(lambda: log.exists() and log.stat().st_size > 50_000, what="the first tables")
        children = []
    else:
        children = wait_until(lambda: psutil.Process(running.pid).children())
    assert running.stop(signal.SIGTERM) == 0
    assert_gone(children)
    assert "Traceback" not in running.output
    assert not sockets(data)
    assert "Bureau runs at" not in running.output


def test_port_in_use_is_refused(env, port, data):
    with socket.create_server(("127.0.0.1", port)):
        line = refused(manage("up", env=env))
    assert f"Port {port} on 127.0.0.1 cannot be used (Address already in use)" in line
    assert "--port" in line
    assert not (data / "bureau.sqlite3").exists()


def test_foreign_address_is_refused(env):
    assert "choose another" in refused(manage("up", "--host", "203.0.113.7", env=env))
    assert "is not an address" in refused(manage("up", "--host", "no.such.host.invalid", env=env))


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"BUREAU_PORT": "http"}, "BUREAU_PORT: 'http' cannot be used: write a whole number, 1 to 65535."),
        ({"BUREAU_DATA": "/dev/null/data"}, "BUREAU_DATA: /dev/null/data cannot be used"),
        ({"DATABASE_URL": "postgresql://me:hunter22@127.0.0.1:1/x"}, "The database at 127.0.0.1:1/x cannot be reached"),
        ({"DATABASE_URL": "sqlite:////no/such/folder/x.sqlite3"}, "unable to open database file. Check DATABASE_URL."),
        ({"REDIS_URL": "redis://:hunter22@127.0.0.1:1/0"}, "Redis at 127.0.0.1:1 cannot be reached"),
    ],
)
def test_it_names_what_is_wrong(env, variables, words):
    line = refused(manage("up", env=env | variables))
    assert words in line
    assert "hunter22" not in line


def test_option_without_value_is_refused(env):
    assert refused(manage("up", "--port", env=env)) == "manage.py: --port needs a value after it."
