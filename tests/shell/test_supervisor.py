"""The process tree, with small processes of the system."""

import signal
import sys
import time

import pytest

from bureau import supervisor
from bureau.supervisor import Part, PartFailed, Supervisor, describe_ending
from tests.support.waiting import PATIENCE

SLEEPER = ["sleep", "60"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "child = subprocess.Popen(['sleep', '60']); print(child.pid, flush=True); time.sleep(60)",
]


@pytest.fixture
def tree():
    tree = Supervisor()
    yield tree
    tree.stop()


def tend_until(tree, condition):
    deadline = time.monotonic() + PATIENCE
    with tree.signals() as wakeup:
        while not condition():
            assert time.monotonic() < deadline
            tree.tend()
            tree.wait(wakeup, 0.05)


def test_it_starts_again_what_ends(tree, monkeypatch):
    monkeypatch.setattr(supervisor, "FIRST_DELAY", 0.01)
    part = Part("sleeper", SLEEPER)
    tree.start(part)
    first = part.process.pid
    part.send(signal.SIGKILL)
    tend_until(tree, lambda: part.process.pid != first)
    assert part.is_running


def test_it_gives_up_on_what_ends_at_once(tree, monkeypatch):
    monkeypatch.setattr(supervisor, "FIRST_DELAY", 0.001)
    tree.start(Part("broken", ["false"]))
    with pytest.raises(PartFailed, match="broken ended with status 1 5 times in a row"):
        tend_until(tree, lambda: False)


def test_stop_ends_higher_ranks_last(tree, monkeypatch):
    ended = []
    first, last = Part("user", SLEEPER), Part("queue", SLEEPER, rank=1)
    for part in (last, first):
        tree.start(part)
        monkeypatch.setattr(part, "send", lambda number, part=part: (ended.append(part.name), Part.send(part, number)))
    tree.stop()
    assert list(dict.fromkeys(ended)) == ["user", "queue"]
    assert not first.is_running
    assert not last.is_running


def test_stop_kills_the_stubborn_and_what_they_started(tree, monkeypatch, tmp_path):
    import psutil

    monkeypatch.setattr(supervisor, "GRACE_SECONDS", 0.2)
    with (tmp_path / "output").open("w+b") as output:
        part = Part("stubborn", STUBBORN, output=output)
        tree.start(part)
        deadline = time.monotonic() + PATIENCE
        while not (pid := (tmp_path / "output").read_text().strip()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    child = psutil.Process(int(pid))
    tree.stop()
    assert not part.is_running
    assert child.wait(PATIENCE) is None or not child.is_running()


def test_a_signal_ends_run(tree):
    tree.start(Part("sleeper", SLEEPER))
    with tree.signals() as wakeup:
        signal.raise_signal(signal.SIGTERM)
        tree.run(wakeup)
    assert tree.is_stopping


def test_asking_twice_kills_at_once(tree):
    part = Part("sleeper", SLEEPER)
    tree.start(part)
    with tree.signals():
        signal.raise_signal(signal.SIGINT)
        assert part.process.poll() is None
        signal.raise_signal(signal.SIGINT)
        assert part.process.wait(PATIENCE) == -signal.SIGKILL


def test_endings_are_told_in_words():
    assert describe_ending(3) == "ended with status 3"
    assert describe_ending(-9) == "was ended by SIGKILL"
    assert describe_ending(-250) == "was ended by signal 250"
