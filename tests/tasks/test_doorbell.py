import pytest
import redis
from celery import current_app

from tasks import doorbell, wakeups
from tests.support.waiting import PATIENCE


@pytest.fixture(autouse=True)
def nothing_expires(monkeypatch):
    """However slow the machine is: what is rung or held stays so until the test says otherwise."""
    for name in ("BELL_MILLISECONDS", "HELP_MILLISECONDS"):
        monkeypatch.setattr(doorbell, name, 1_000_000)


@pytest.fixture
def sent_jobs(monkeypatch):
    """What was sent to Celery, instead of sending it."""
    jobs: list[tuple] = []
    monkeypatch.setattr(current_app, "send_task", lambda name, args, **options: jobs.append((name, *args)))
    return jobs


def test_it_rings_once_until_the_bell_is_cleared(valkey, sent_jobs):
    doorbell.ring("default")
    doorbell.ring("default")
    assert sent_jobs == [("agents.drain", "default")]

    doorbell.clear("default")
    doorbell.ring("default")
    assert len(sent_jobs) == 2


def test_every_queue_has_a_bell_of_its_own(valkey, sent_jobs):
    doorbell.ring("default")
    doorbell.ring("slow")
    assert [queue for _, queue in sent_jobs] == ["default", "slow"]


def test_while_somebody_drains_nobody_rings(valkey, sent_jobs):
    doorbell.hold("default")
    doorbell.ring("default")
    assert sent_jobs == []


def test_a_slow_turn_rings_past_a_held_bell(valkey, sent_jobs):
    doorbell.hold("default")
    doorbell.ring_again("default")
    assert len(sent_jobs) == 1


def test_calls_for_help_are_few(valkey, sent_jobs):
    for _ in range(5):
        doorbell.call_for_help("default")
    assert len(sent_jobs) == 1


def test_without_redis_nothing_is_raised_and_the_pause_spares_the_next(settings, monkeypatch, sent_jobs):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    monkeypatch.setattr(doorbell, "_away_until", 0.0)
    monkeypatch.setattr(wakeups, "_away_until", 0.0)

    doorbell.ring("default")
    wakeups.announce([])

    assert sent_jobs == []
    assert doorbell._away_until > 0
    assert wakeups._away_until > 0


def test_who_stands_at_the_door_hears_a_ring_that_sends_nothing(valkey, sent_jobs):
    doorbell.hold("default")
    with doorbell.standing_at_door("default") as door:
        assert not door.hears(0)
        doorbell.ring("default")
        doorbell.ring("default")
        assert door.hears(PATIENCE)
        doorbell.ring("slow")
        assert [queue for _, queue in sent_jobs] == ["slow"]


def test_a_ring_is_heard_once(valkey, sent_jobs):
    with doorbell.standing_at_door("default") as door:
        doorbell.ring("default")
        assert door.hears(PATIENCE)
        assert not door.hears(0)


def test_one_stands_at_a_door(valkey):
    at_door = doorbell.standing_at_door
    with at_door("default") as first, at_door("default") as second, at_door("slow") as elsewhere:
        assert (first is None, second is None, elsewhere is None) == (False, True, False)
    with doorbell.standing_at_door("default") as door:
        assert door is not None


def test_a_door_that_breaks_off_says_so(valkey):
    with doorbell.standing_at_door("default") as door:
        wakeups.client().client_kill_filter(_type="pubsub")
        with pytest.raises(redis.ConnectionError):
            door.hears(PATIENCE)


def test_without_redis_nobody_stands_at_the_door(settings):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    with doorbell.standing_at_door("default") as door:
        assert door is None
    assert not doorbell.is_held("default")


def test_a_bell_that_was_rung_is_not_held(valkey, sent_jobs):
    doorbell.ring("default")
    assert not doorbell.is_held("default")
    doorbell.hold("default")
    assert doorbell.is_held("default")
    doorbell.clear("default")
    assert not doorbell.is_held("default")
