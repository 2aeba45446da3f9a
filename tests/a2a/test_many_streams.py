"""A hundred open streams on one web process: they hold no thread, and others are answered meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json

import httpx
import psutil
import pytest

from tasks.aio import THREADS
from tasks.claims import claim_next
from tasks.models import Task
from tasks.results import finish
from tests.a2a.peer import envelope, message
from tests.support.waiting import wait_until

STREAMS = 100


@pytest.fixture
def web(web_process, transactional_db):
    """A web process of its own, with the agents, and nobody who works."""
    from agents.seeding import seed
    from directory.services import forget_agents

    forget_agents()
    seed()
    return web_process()


def threads(running):
    return psutil.Process(running.pid).num_threads()


def connections(running):
    """How many clients are connected."""
    port = int(running.url.rpartition(":")[2])
    found = psutil.Process(running.pid).net_connections("tcp")
    return sum(each.laddr.port == port and each.status != psutil.CONN_LISTEN for each in found)


def client(running):
    limits = httpx.Limits(max_connections=STREAMS + 10)
    return httpx.AsyncClient(base_url=running.url, headers={"A2A-Version": "1.0"}, timeout=90, limits=limits)


async def open_stream(http, stack, text):
    stream = http.stream("POST", "/a2a/echo/", json=envelope("SendStreamingMessage", message(text)))
    response = await stack.enter_async_context(stream)
    assert response.headers["content-type"] == "text/event-stream"
    lines = response.aiter_lines()
    await until_state(lines, "task")
    return lines


async def until_state(lines, *path):
    """Read up to the next event; the state it tells."""
    async for line in lines:
        if line.startswith("data: "):
            found = json.loads(line[6:])["result"]
            update = found.get("task") or found.get("statusUpdate")
            if update:
                return update["status"]["state"]
    return None


@pytest.mark.both_databases
async def test_a_hundred_streams_hold_no_thread(web):
    async with client(web) as http, contextlib.AsyncExitStack() as stack:
        # Of the threads for the database a few may not have been needed yet; a thread for each stream would show.
        first = await asyncio.gather(*(open_stream(http, stack, f"warm {n}") for n in range(10)))
        before = threads(web)
        lines = first + await asyncio.gather(*(open_stream(http, stack, str(n)) for n in range(STREAMS - 10)))
        assert len(lines) == STREAMS
        assert threads(web) <= before + THREADS

        reply = (await http.post("/a2a/echo/", json=envelope("ListTasks", {"pageSize": 1}))).json()
        assert reply["result"]["totalSize"] == STREAMS
        assert (await http.get("/a2a/echo/.well-known/agent-card.json")).status_code == 200

        await asyncio.to_thread(finish_all)
        for each in lines:
            states = [state async for state in all_states(each)]
            assert states == ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]
        assert threads(web) <= before + THREADS


async def all_states(lines):
    while state := await until_state(lines):
        yield state


def finish_all():
    from django.db import connections

    while claim := claim_next("default", "test-worker"):
        finish(claim, Task.State.COMPLETED)
    connections.close_all()


async def test_a_client_that_goes_leaves_no_connection_behind(web):
    async with client(web) as http:
        async with contextlib.AsyncExitStack() as stack:
            held = [await open_stream(http, stack, str(number)) for number in range(20)]
            # What asked whether it has started has a connection that may not be closed yet.
            await asyncio.to_thread(wait_until, lambda: connections(web) == len(held))
        body = envelope("SendMessage", message("x"))
        waiting = [asyncio.ensure_future(http.post("/a2a/echo/", json=body)) for _ in range(5)]
        await asyncio.to_thread(wait_until, lambda: connections(web) == len(waiting))
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    await asyncio.to_thread(wait_until, lambda: connections(web) == 0, what="the connections to be closed")


def test_a_client_that_goes_is_no_longer_listened_for(alice):
    """The same inside the process: nobody is left waiting for the task."""
    from tasks.wakeups import _inboxes

    def waiters():
        return sum(len(inbox._waiters) for _, inbox in list(_inboxes.values()))

    with alice.stream("SendStreamingMessage", message("x")) as stream:
        next(stream)
        wait_until(lambda: waiters() == 1)
    wait_until(lambda: waiters() == 0)

    alice.send_and_go(message("x"), lambda: waiters() == 1)
    wait_until(lambda: waiters() == 0)
