"""The second section: how soon a task is heard of, stopped and recovered, and what a listener costs.

Everything speaks A2A to one Bureau. It starts without workers, so that tasks stay `submitted` for as long as a
question needs them to; each question brings the workers it needs. An agent that must be at work for certain is
the summarizer, whose model (a scripted one) stops in the middle of its answer.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import psycopg

from tests.bench.client import Connection
from tests.bench.measure import percentile
from tests.bench.processes import ServerFailed, cpu_seconds, resident_bytes
from tests.bench.report import Figure
from tests.bench.targets import BureauFleet, Target
from tests.support import messages_api
from tests.support.messages_api import MessagesApi, Reply

TERMINAL = {f"TASK_STATE_{name}" for name in ("COMPLETED", "FAILED", "CANCELED", "REJECTED")}
WAIT_SECONDS = 60.0
HELD = 8  # as many as one worker runs at the same time
PROSE = "summarise: " + "Bees dance to tell each other where the flowers are, how far, and which way. " * 9
STUCK = "Bees dance to tell " * 40


@contextlib.asynccontextmanager
async def connected(target: Target, count: int, url: str = "") -> AsyncIterator[list[Connection]]:
    connections = [Connection(url or target.url, target.headers) for _ in range(count)]
    try:
        yield connections
    finally:
        for connection in connections:
            connection.close()


def state_of(event: Any) -> str:
    """The task state that one streamed JSON-RPC reply tells of, or an empty string."""
    result = event.get("result") or {}
    part = result.get("task") or result.get("statusUpdate") or {}
    return str(part.get("status", {}).get("state", ""))


async def submit(target: Target, connection: Connection, count: int, text: str = "echo") -> list[str]:
    """Send `count` messages without waiting for their tasks; returns the task ids."""
    sent = []
    for _ in range(count):
        reply = await ask(connection, target.request(text, configuration={"returnImmediately": True}))
        sent.append(str(reply["task"]["id"]))
    return sent


async def ask(connection: Connection, body: bytes) -> dict[str, Any]:
    """The result of one JSON-RPC call. Raises ServerFailed if the reply is an error."""
    reply = await connection.call(body)
    if "result" not in reply:
        raise ServerFailed(f"a call was answered with {str(reply)[:300]}")
    return dict(reply["result"])


def p50_p99(values: Sequence[float]) -> str:
    return f"{percentile(values, 0.5):.1f} / {percentile(values, 0.99):.1f}"


async def first_events(targets: Sequence[Target], rounds: int, count: int) -> list[Figure]:
    """Milliseconds from sending SendStreamingMessage to its events, one stream at a time, in rounds."""
    heard: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds + 1):
        for target in targets:
            for _ in range(count):
                for name, after in (await _stream_once(target)).items():
                    if number:  # the first round warms up
                        heard.setdefault((name, target.title), []).append(after)
    how = f"ms p50 / p99 of {rounds * count} streams, one at a time"
    return [
        Figure(f"{name}, {title}", p50_p99(values), how)
        for (name, title), values in sorted(heard.items(), key=lambda item: item[0][0])
    ]


async def _stream_once(target: Target) -> dict[str, float]:
    async with connected(target, 1) as (connection,):
        marks: dict[str, float] = {}
        sent = time.perf_counter()
        async for event in connection.stream(target.request("echo", "SendStreamingMessage")):
            after = (time.perf_counter() - sent) * 1000
            marks.setdefault("first event", after)
            if state_of(event) in TERMINAL:
                marks["last event"] = after
        return marks


async def idle_subscribers(target: BureauFleet, count: int, seconds: float) -> list[Figure]:
    """Memory and CPU of the web process for `count` streams on tasks that nothing happens to."""
    web = target.web.tree()
    async with connected(target, 1) as (connection,):
        ids = await submit(target, connection, count)
    async with _subscribed(target, ids[: count // 4]):
        pass  # what the first streams load and keep is not the price of one more
    before = resident_bytes(web)
    async with _subscribed(target, ids):
        grown, used = resident_bytes(web) - before, cpu_seconds(web)
        await asyncio.sleep(seconds)
        share = (cpu_seconds(web) - used) / seconds
    async with connected(target, 1) as (connection,):
        for task_id in ids:
            await ask(connection, target.call("CancelTask", {"id": task_id}))
    return [
        Figure("idle subscriber, memory", f"{grown / count / 1024:.0f} KiB", f"of the web process, each of {count}"),
        Figure("idle subscribers, CPU", f"{share * 100:.1f} %", f"of a core, all {count} for {seconds:g} s"),
    ]


@contextlib.asynccontextmanager
async def _subscribed(target: Target, ids: Sequence[str]) -> AsyncIterator[None]:
    """Within: one SubscribeToTask stream per task, each past its first event."""
    async with connected(target, len(ids)) as connections:
        streams = [
            connection.stream(target.call("SubscribeToTask", {"id": task_id}))
            for connection, task_id in zip(connections, ids, strict=True)
        ]
        for stream in streams:
            await anext(stream)
        yield
        for stream in streams:
            await stream.aclose()


async def time_to_stop(target: Target, count: int) -> list[Figure]:
    """Milliseconds from sending CancelTask for a task that waits to the last event on another stream of it."""
    heard = []
    async with connected(target, 1) as (connection,):
        for task_id in await submit(target, connection, count):
            async with connected(target, 1) as (watcher,):
                stream = watcher.stream(target.call("SubscribeToTask", {"id": task_id}))
                await anext(stream)
                sent = time.perf_counter()
                cancel = asyncio.create_task(ask(connection, target.call("CancelTask", {"id": task_id})))
                heard.append(await _ended(stream, "TASK_STATE_CANCELED", sent))
                await cancel
    return [Figure("time to stop what waits", p50_p99(heard), f"ms p50 / p99 of {count}, CancelTask to last event")]


async def _ended(stream: AsyncIterator[Any], expected: str, since: float) -> float:
    """Milliseconds from `since` to the end of the stream. Raises ServerFailed if it ends in another state."""
    state = ""
    async with asyncio.timeout(WAIT_SECONDS):
        async for event in stream:
            state = state_of(event) or state
    if state != expected:
        raise ServerFailed(f"a stream ended with {state or 'no state'}, not {expected}")
    return (time.perf_counter() - since) * 1000


async def time_to_stop_work(target: BureauFleet, count: int) -> list[Figure]:
    """The same for an agent in the middle of an answer, and until its worker's only slot did the next task."""
    heard, freed = [], []
    with (
        messages_api.running() as api,
        target.worker("--threads", "1", **_model(api)),
    ):
        api.add(Reply(text=STUCK, fault="hang_midway", times=0))
        for _ in range(count):
            ended, done = await _stop_work_once(target)
            heard.append(ended)
            freed.append(done)
    return [
        Figure("time to stop work in progress", p50_p99(heard), f"ms p50 / p99 of {count}, model in mid-answer"),
        Figure("  its slot did the next task", p50_p99(freed), f"ms p50 / p99 of {count}, worker with one slot"),
    ]


async def _stop_work_once(target: BureauFleet) -> tuple[float, float]:
    async with (
        connected(target, 2, target.address("summarizer")) as (writer, canceler),
        connected(target, 2) as (connection, follower),
    ):
        work = writer.stream(target.request(PROSE, "SendStreamingMessage"))
        task_id = (await anext(work))["result"]["task"]["id"]
        async for event in work:
            if "artifactUpdate" in event["result"]:
                break
        (next_id,) = await submit(target, connection, 1)
        queued = follower.stream(target.call("SubscribeToTask", {"id": next_id}))
        await anext(queued)
        sent = time.perf_counter()
        ended, done, _ = await asyncio.gather(
            _ended(work, "TASK_STATE_CANCELED", sent),
            _ended(queued, "TASK_STATE_COMPLETED", sent),
            ask(canceler, target.call("CancelTask", {"id": task_id})),
        )
        return ended, done


async def time_to_recover(target: BureauFleet, rounds: int) -> list[Figure]:
    """Seconds from kill -9 of a worker with all slots at work, to the completion of all by another worker."""
    times, doubled = [], 0
    with target.scheduler():
        for _ in range(rounds):
            with messages_api.running() as api:
                api.add(Reply(text=STUCK, fault="hang_midway", times=HELD))
                took, ids = await _recover_once(target, api)
            times.append(took)
            doubled += _count(target, DOUBLED, ids)
    how = f"s p50 / longest of {rounds}, {HELD} tasks at work, {doubled} doubled; {target.terms}"
    return [Figure("time to recover from kill -9", f"{percentile(times, 0.5):.2f} / {max(times):.2f}", how)]


async def _recover_once(target: BureauFleet, api: MessagesApi) -> tuple[float, list[str]]:
    async with connected(target, 1, target.address("summarizer")) as (connection,):
        with target.worker("--threads", str(HELD), **_model(api)) as victim:
            ids = await submit(target, connection, HELD, PROSE)
            await _until(lambda: len(api.requests) == HELD, "were not begun")
            with target.worker(**_model(api)):
                # The victim's slots are taken: it is the other that loads what it takes to call a model.
                await ask(connection, target.request(PROSE))
                victim.kill_tree()
                killed = time.perf_counter()
                await _until(lambda: _count(target, COMPLETED, ids) == HELD, "were not finished")
                return time.perf_counter() - killed, ids


def _model(api: MessagesApi) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "scripted"}


COMPLETED = b"SELECT count(*) FROM tasks_task WHERE id = ANY(%s::uuid[]) AND state = 'completed'"
# Artifacts that were finished again.
DOUBLED = b"""
SELECT count(*) - count(DISTINCT task_id) FROM tasks_event
WHERE task_id = ANY(%s::uuid[]) AND kind = 'artifact' AND (payload->>'lastChunk')::boolean
"""


def _count(target: BureauFleet, query: bytes, ids: Sequence[str]) -> int:
    with psycopg.connect(target.env["DATABASE_URL"]) as connection:
        row = connection.execute(query, [list(ids)]).fetchone()
    return int(row[0]) if row else 0


async def _until(condition: Callable[[], bool], failing: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise ServerFailed(f"tasks {failing} within {WAIT_SECONDS:.0f} s")
        await asyncio.sleep(0.02)
