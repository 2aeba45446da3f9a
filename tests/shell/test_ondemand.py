"""A command that finds its data folder in use waits for the queue of whoever uses it."""

import itertools
from types import SimpleNamespace

import psutil
import pytest
from django.core.management import CommandError

from bureau import embedded, ondemand
from bureau.ondemand import OnDemand


@pytest.fixture
def waiting(monkeypatch, settings, tmp_path):
    """`waiting(after)`: somebody else's queue answers after so many seconds, by a clock that goes on with each look."""
    settings.BUREAU_DATA, settings.BUREAU_VALKEY_SOCKET = tmp_path, tmp_path / "valkey.sock"
    seconds = itertools.count()
    monkeypatch.setattr(ondemand, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: None))
    now = [0]

    def wait(after):
        def answers(url):
            now[0] = next(seconds)
            return "" if now[0] >= after else "No such file"

        monkeypatch.setattr(embedded, "answers", answers)
        with embedded.hold(tmp_path, "a test"):
            OnDemand(None)._wait_for_queue()

    return wait


def test_it_waits_while_a_busy_machine_fills_the_folder(waiting):
    waiting(60)


def test_it_says_who_uses_the_folder_when_no_queue_comes(waiting):
    with pytest.raises(CommandError, match=r"in use by process \d+ \(a test\), but its queue does not answer"):
        waiting(float("inf"))


def test_a_folder_that_is_in_use_is_left_alone_each_time(settings, tmp_path):
    settings.BUREAU_DATA = tmp_path
    running = OnDemand(None)
    with embedded.hold(tmp_path, "a test"):
        open_before = psutil.Process().num_fds()
        assert not any(running._take_folder() for _ in range(3))
        assert psutil.Process().num_fds() == open_before
    assert running._take_folder()
    with embedded.hold(tmp_path, "another") as is_free:
        assert not is_free
    running._stack.close()
