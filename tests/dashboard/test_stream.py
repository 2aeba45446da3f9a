"""A mission's page, live: what the stream sends, over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import psutil
import pytest
from django.test import Client

from tasks.aio import in_db
from tasks.results import plain, say, stream_chunk
from tests.support.people import end
from tests.support.waiting import PATIENCE

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]


@pytest.fixture
def web(web_process, settings):
    return web_process()


@pytest.fixture
async def browser(web) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=web.url, limits=limits, timeout=90, trust_env=False) as client:
        yield client


def cookie(client: Client) -> dict[str, str]:
    return {"Cookie": f"bureau_session={client.cookies['bureau_session'].value}"}


@asynccontextmanager
async def opened(browser, client, claim, after: int | str = 0, **headers) -> AsyncIterator[AsyncIterator[dict]]:
    address = f"/missions/{claim.task_id}/stream/?after={after}"
    async with browser.stream("GET", address, headers=cookie(client) | headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        yield messages(answer)


async def messages(answer: httpx.Response) -> AsyncIterator[dict]:
    """Each message of the stream as {"id", "event", "data"}."""
    message: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            message[name] = f"{message[name]}\n{value}" if name in message else value
        elif "event" in message:
            yield message
            message = {}


async def test_it_sends_what_changed_and_ends_with_the_mission(browser, as_alice, claim):
    async with opened(browser, as_alice, claim, 2) as news:
        await in_db(say, claim, plain("Filling the can."))
        first = await anext(news)
        assert (first["event"], first["id"]) == ("news", "3")
        assert "Filling the can." in first["data"]
        assert 'hx-swap-oob="innerHTML:#talk"' in first["data"]
        assert "#deliverables" not in first["data"]
        await in_db(stream_chunk, claim, "report.md", "# Wet\r\n\r\nvery", is_first=True)
        second = await anext(news)
        assert "<h3>Wet</h3>" in second["data"]
        assert "#talk" not in second["data"]
        await in_db(end, claim, "completed", "All done.")
        rest = [message async for message in news]
    assert [message["event"] for message in rest] == ["news", "end"]
    assert "completed" in rest[0]["data"]
    assert "Ask for a change" in rest[0]["data"]


@pytest.mark.parametrize("by_header", [True, False])
async def test_it_goes_on_where_the_reader_was(browser, as_alice, claim, by_header):
    await in_db(say, claim, plain("One."))
    await in_db(say, claim, plain("Two."))
    await in_db(end, claim)
    resumed = {"after": 0, "Last-Event-ID": "4"} if by_header else {"after": 4}
    async with opened(browser, as_alice, claim, **resumed) as news:
        got = [message async for message in news]
    assert [message.get("id") for message in got] == ["5", None]
    assert '<span class="number">5</span>' in got[0]["data"]
    assert '<span class="number">4</span>' not in got[0]["data"]


async def test_an_ended_mission_with_nothing_new_ends_at_once(browser, as_alice, claim):
    await in_db(end, claim)
    async with opened(browser, as_alice, claim, 3) as news:
        assert [message["event"] async for message in news] == ["end"]


async def test_it_stays_while_the_mission_waits_for_an_answer(browser, as_alice, alice, claim):
    from directory.identity import Caller
    from tasks.services import cancel_task

    await in_db(end, claim, "input-required", "Which can?")
    async with opened(browser, as_alice, claim, 2) as news:
        assert "Your answer" in (await anext(news))["data"]
        await in_db(cancel_task, Caller.from_user(alice), claim.task_id)
        assert [message["event"] async for message in news] == ["news", "end"]


async def test_it_is_refused_to_others(browser, as_alice, as_bob, claim):
    address = f"/missions/{claim.task_id}/stream/"
    assert (await browser.get(address)).status_code == 401
    assert (await browser.get(address, headers=cookie(as_bob))).status_code == 404
    assert (await browser.get(f"{address}?after=x", headers=cookie(as_alice))).status_code == 400


async def test_a_hundred_open_streams_hold_no_thread(browser, web, as_alice, claim):
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(opened(browser, as_alice, claim, 2)) for _ in range(100)]
        process = psutil.Process(web.pid)
        threads = await _settled(process.num_threads)
        assert threads < 30, f"{threads} threads for 100 streams"
        await in_db(say, claim, plain("To everybody."))
        heard = await asyncio.gather(*(anext(stream) for stream in streams))
    assert all("To everybody." in message["data"] for message in heard)


async def _settled(measure) -> int:
    """The smallest of the numbers over a moment: threads that are let go take one to end."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    least = measure()
    while asyncio.get_running_loop().time() < deadline and least >= 30:
        await asyncio.sleep(0.05)
        least = min(least, measure())
    return least
