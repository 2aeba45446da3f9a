"""`manage.py worker`: one worker process, alone."""

import json

import pytest

from bureau.liveness import is_any_worker_alive
from tasks.wakeups import client
from tests.shell.support import manage, start_manage
from tests.support.waiting import wait_until


@pytest.mark.both_databases
def test_it_says_that_it_lives_and_that_it_leaves(worker_process):
    assert not is_any_worker_alive()
    worker = worker_process("--threads", "2")
    assert is_any_worker_alive()
    assert worker.stop() == 0
    assert not is_any_worker_alive()
    assert "Traceback" not in worker.output


def test_all_it_prints_is_json_when_asked(worker_process):
    worker = worker_process(BUREAU_LOG_FORMAT="json")
    worker.stop()
    entries = [json.loads(line) for line in worker.output.splitlines()]
    assert entries
    assert {entry["role"] for entry in entries} == {"worker"}
    assert {entry["pid"] for entry in entries} == {worker.pid}


def test_its_sign_of_life_expires(worker_process):
    worker = worker_process()
    worker.kill()
    (key,) = client().scan_iter("bureau:worker:*")
    assert 0 < client().ttl(key) <= 15


def test_it_waits_for_a_queue_that_is_not_there_yet(env, tmp_path):
    worker = start_manage("worker", env=env, folder=tmp_path)
    wait_until(lambda: "Trying again" in worker.output)
    assert worker.stop() == 0


def test_it_takes_only_sensible_threads(env):
    result = manage("worker", "--threads", "0", env=env)
    assert result.returncode == 1
    assert "--threads must be 1 or more." in result.stderr
