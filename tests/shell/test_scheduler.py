"""`manage.py scheduler`: rings for what is due."""

from tasks.wakeups import client
from tests.shell.support import BASE, start_manage
from tests.support.waiting import wait_until


def test_it_asks_for_sweeps_and_ends(valkey, process_env, tmp_path):
    env = process_env | {"BUREAU_SWEEP_SECONDS": "0.2"}
    scheduler = start_manage("scheduler", env=env, folder=tmp_path)
    wait_until(lambda: client().llen("default") >= 2)
    assert scheduler.stop() == 0
    assert not list(BASE.glob("celerybeat*"))
    assert "Traceback" not in scheduler.output
