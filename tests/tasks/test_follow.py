import asyncio
import uuid
from contextlib import aclosing
from functools import partial

import pytest

from tasks import follow as following
from tasks.aio import in_db
from tasks.claims import claim_next
from tasks.content import Incoming
from tasks.follow import follow, settles, settling
from tasks.models import Task
from tasks.queries import fetch_task
from tasks.results import finish, plain, say
from tasks.services import cancel_task, send_message
from tests.support.cast import ALICE
from tests.support.waiting import PATIENCE

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]


async def collect(task_id, after: int) -> list[int]:
    """Numbers of all events until the task settles."""
    seen: list[int] = []
    async with aclosing(follow(task_id, after)) as batches:
        async for batch in batches:
            seen += [event.seq for event in batch]
            if any(settles(event) for event in batch):
                return seen
    return seen


async def test_it_replays_then_follows_live(valkey, claim):
    watching = asyncio.create_task(collect(claim.task_id, 0))
    late = asyncio.create_task(collect(claim.task_id, 1))
    await in_db(say, claim, plain("half way"))
    await in_db(finish, claim, Task.State.COMPLETED)

    assert await asyncio.wait_for(watching, PATIENCE) == [1, 2, 3, 4]
    assert await asyncio.wait_for(late, PATIENCE) == [2, 3, 4]


async def test_it_goes_on_without_redis(claim, settings, monkeypatch):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    monkeypatch.setattr(following, "POLL_SECONDS", 0.01)
    watching = asyncio.create_task(collect(claim.task_id, 2))
    await in_db(finish, claim, Task.State.COMPLETED)
    assert await asyncio.wait_for(watching, PATIENCE) == [3]


async def test_it_beats_while_nothing_happens(valkey, claim, monkeypatch):
    monkeypatch.setattr(following, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(following, "POLL_SECONDS", 0.01)
    async with aclosing(follow(claim.task_id, 2)) as batches:
        assert await asyncio.wait_for(anext(batches), PATIENCE) == []


async def test_it_ends_when_the_task_is_deleted(valkey, claim, monkeypatch):
    monkeypatch.setattr(following, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(following, "POLL_SECONDS", 0.01)
    await in_db(Task.objects.all().delete)
    assert await asyncio.wait_for(collect(claim.task_id, 2), PATIENCE) == []


async def test_waiting_for_the_end_ignores_what_settled_before(valkey, agent, claim):
    asked = await in_db(finish, claim, Task.State.INPUT_REQUIRED, message=plain("Which?"))

    async def wait():
        async with settling(claim.task_id) as task:
            begun.set()
            return await task.read_settled(asked, partial(fetch_task, ALICE, claim.task_id))

    begun = asyncio.Event()
    waiting = asyncio.create_task(wait())
    await begun.wait()
    await in_db(cancel_task, ALICE, claim.task_id)
    assert (await asyncio.wait_for(waiting, PATIENCE)).state == "canceled"


async def test_a_task_that_settles_at_once_is_not_missed(valkey, agent):
    task_id = uuid.uuid4()
    async with settling(task_id) as task:
        sent = await in_db(send_message, ALICE, agent, Incoming.from_text("hi"), new_id=task_id)
        await in_db(lambda: finish(claim_next("default", "w"), Task.State.COMPLETED))
        view = await asyncio.wait_for(task.read_settled(sent.seq, partial(fetch_task, ALICE, task_id)), PATIENCE)
    assert view.state == "completed"


async def test_many_readers_hold_no_thread(valkey, claim):
    import threading

    before = threading.active_count()
    readers = [asyncio.create_task(collect(claim.task_id, 0)) for _ in range(200)]
    await in_db(finish, claim, Task.State.COMPLETED)
    assert await asyncio.wait_for(asyncio.gather(*readers), PATIENCE) == [[1, 2, 3]] * 200
    assert threading.active_count() - before <= 9
