"""What a worker loads beside its start."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.servers import BASE
from tests.support.waiting import wait_until

SCRIPT = """
import sys
import django
django.setup()
from agents.warmup import warm_up
warm_up()
print(*({"anthropic", "wordllama"} & set(sys.modules)))
"""


@pytest.mark.parametrize(("url", "loaded"), [("", "wordllama"), ("http://127.0.0.1:9", "anthropic")])
def test_only_what_makes_the_decisions_is_loaded(process_env, url, loaded):
    env = process_env | {"ANTHROPIC_BASE_URL": url, "PYTHONPATH": f"{BASE}:{BASE}/platform"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, cwd=BASE, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [loaded]


def test_a_worker_warms_up_by_itself(worker_process):
    worker = worker_process()
    wait_until(lambda: "Warm after" in worker.output, what="the worker to be warm")
