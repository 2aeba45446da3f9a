"""Streams read the database: it does not matter which web process took the message, or whether it still lives."""

from __future__ import annotations

import httpx
import pytest

from tasks.claims import claim_next
from tasks.models import Task
from tasks.results import finish, plain, say
from tests.a2a.peer import Peer, message

pytestmark = pytest.mark.both_databases


@pytest.fixture
def two(web_process, transactional_db):
    """Peers of two web processes on one database; nobody works."""
    from agents.seeding import seed
    from directory.services import forget_agents

    forget_agents()
    seed()
    running = web_process(), web_process()
    peers = [Peer(each.url, slug="echo") for each in running]
    yield running[0], *peers
    for peer in peers:
        peer.close()


def test_a_stream_on_one_shows_what_was_sent_to_the_other(two):
    _, here, there = two
    task = there.submit("Hello there")
    with here.stream("SubscribeToTask", {"id": task["id"]}) as stream:
        assert next(stream)[1]["task"]["id"] == task["id"]
        claim = claim_next("default", "test-worker")
        there.submit("And this", taskId=task["id"])
        say(claim, plain("Half way"))
        there.result("CancelTask", {"id": task["id"]})
        states = [result["statusUpdate"]["status"]["state"] for _, result in stream]

    assert states == ["TASK_STATE_WORKING", "TASK_STATE_WORKING", "TASK_STATE_CANCELED"]


def test_a_stream_whose_process_is_killed_goes_on_at_the_other(two):
    running, here, there = two
    seen = []
    with here.stream("SendStreamingMessage", message("Hello there")) as stream:
        number, first = next(stream)
        claim = claim_next("default", "test-worker")
        seen += [number, next(stream)[0]]
        running.kill()
        with pytest.raises(httpx.RemoteProtocolError):
            next(stream)
    say(claim, plain("While nobody listened"))
    with there.stream("SubscribeToTask", {"id": first["task"]["id"]}, {"Last-Event-ID": str(seen[-1])}) as stream:
        seen.append(next(stream)[0])
        finish(claim, Task.State.COMPLETED)
        seen += [number for number, _ in stream]

    assert seen == [1, 2, 3, 4]
