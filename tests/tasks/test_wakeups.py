import asyncio
import uuid

import pytest
import redis

from tasks import wakeups
from tasks.wakeups import SETTLED, Feed, announce, inbox
from tests.support.waiting import PATIENCE, wait_until


@pytest.fixture
async def box(valkey):
    """This loop's inbox, listening."""
    found = inbox()
    async with found.listen(["nobody"]) as news:
        await asyncio.wait_for(news.wait(), PATIENCE)
        yield found


async def test_every_listener_hears_of_its_own_task(box):
    mine, other = uuid.uuid4(), uuid.uuid4()
    async with box.listen([mine]) as first, box.listen([mine, other]) as second, box.listen([other]) as third:
        announce([mine])
        await asyncio.wait_for(asyncio.gather(first.wait(), second.wait()), PATIENCE)
        assert not third.is_set()


async def test_who_waits_for_the_end_is_spared_what_is_in_between(box):
    ended, begun = uuid.uuid4(), uuid.uuid4()
    async with (
        box.listen([f"{ended}{SETTLED}"]) as end,
        box.listen([f"{begun}{SETTLED}"]) as not_yet,
        box.listen([begun]) as between,
    ):
        announce([ended], is_settled=True, others=[begun])
        await asyncio.wait_for(asyncio.gather(end.wait(), between.wait()), PATIENCE)
        assert not not_yet.is_set()


async def test_a_lost_connection_is_made_again_and_everyone_looks(box, monkeypatch):
    monkeypatch.setattr(wakeups, "PAUSE_SECONDS", 0.01)
    async with box.listen([uuid.uuid4()]) as news:
        wakeups.client().client_kill_filter(_type="pubsub")
        await asyncio.wait_for(news.wait(), PATIENCE)
        assert box.is_connected


async def test_a_side_that_does_not_answer_is_given_up():
    feed = Feed(lambda payload: None)
    feed.check()
    with pytest.raises(redis.ConnectionError):
        feed.check()


async def test_an_answer_keeps_it(box):
    heard: list[bytes] = []
    feed = Feed(heard.append)
    for _ in range(3):
        feed.check()
        feed.data_received(b"+PONG\r\n")
    feed.data_received(b"*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$3\r\na")
    assert heard == []
    feed.data_received(b" b\r\n")
    assert heard == [b"a b"]


async def test_what_is_no_answer_ends_it():
    feed = Feed(lambda payload: None)
    feed.data_received(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(redis.ConnectionError):
        feed.check()


async def test_the_reader_asks_whether_the_other_side_is_there(box, monkeypatch):
    monkeypatch.setattr(wakeups, "PING_SECONDS", 0.2)

    def pings() -> int:
        return int(wakeups.client().info("commandstats").get("cmdstat_ping", {}).get("calls", 0))

    # The wait that goes on is the longer one; a lost connection begins a new one.
    wakeups.client().client_kill_filter(_type="pubsub")
    before = pings()
    await asyncio.to_thread(wait_until, lambda: pings() > before + 3)
    await asyncio.to_thread(wait_until, lambda: box.is_connected)
