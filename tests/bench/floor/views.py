"""The web side: one view, one pool of asynchronous connections, one wake-up inbox for the whole process."""

import asyncio
import functools
import json
import uuid
from typing import Any

import redis.asyncio
from django.conf import settings
from django.core.cache import close_caches
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, reset_queries
from django.http import HttpRequest, HttpResponse
from django.urls import path
from psycopg.conninfo import make_conninfo
from psycopg_pool import AsyncConnectionPool

from tests.bench.floor import jobs, statements

WAIT_SECONDS = 30

# Declaring the queue again and describing the arguments cost half a millisecond a message, for nobody.
CHEAPLY: dict[str, Any] = {"declare": [], "argsrepr": "", "kwargsrepr": ""}

# This process uses no connection and no cache of Django's; a receiver is a thread hop per request.
for receiver in (close_old_connections, reset_queries):
    request_started.disconnect(receiver)
for receiver in (close_old_connections, close_caches):
    request_finished.disconnect(receiver)


class Runtime:
    """What belongs to the event loop; made by the first request on it."""

    def __init__(self) -> None:
        self._pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
            _conninfo(), min_size=4, max_size=8, open=False, kwargs={"autocommit": True}
        )
        self._redis = redis.asyncio.Redis.from_url(settings.FLOOR_REDIS_URL)
        self._waiting: dict[bytes, asyncio.Future[None]] = {}

    async def open(self) -> None:
        await self._pool.open(wait=True)
        inbox = self._redis.pubsub()
        await inbox.subscribe(jobs.CHANNEL)
        self._reader = asyncio.create_task(self._read(inbox))

    async def run(self, task_id: str, text: str) -> tuple[str, str]:
        """Insert the task, have it worked on, wait; returns its state and artifact text."""
        waiter = self._waiting[task_id.encode()] = asyncio.get_running_loop().create_future()
        try:
            async with self._pool.connection() as db:
                await db.execute(statements.SUBMIT, [task_id, text])
            if settings.FLOOR_KIND == "a":
                jobs.echo.apply_async((task_id,), **CHEAPLY)
            elif jobs.wire.set(jobs.BELL, 1, nx=True, ex=jobs.BELL_SECONDS):
                jobs.drain.apply_async((), **CHEAPLY)
            await asyncio.wait_for(waiter, WAIT_SECONDS)
        finally:
            del self._waiting[task_id.encode()]
        async with self._pool.connection() as db:
            row = await (await db.execute(statements.ANSWER, [task_id])).fetchone()
        state, answer = row
        return state, answer

    async def _read(self, inbox: "redis.asyncio.client.PubSub") -> None:
        async for message in inbox.listen():
            waiter = self._waiting.get(message["data"]) if message["type"] == "message" else None
            if waiter is not None and not waiter.done():
                waiter.set_result(None)


def _conninfo() -> str:
    """A libpq connection string for the database that Django is configured with."""
    db = settings.DATABASES["default"]
    fields = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    return make_conninfo("", **{name: db[key] for name, key in fields.items() if db[key]})


async def _open() -> Runtime:
    runtime = Runtime()
    await runtime.open()
    return runtime


@functools.cache
def opening() -> "asyncio.Task[Runtime]":
    """One task opens the runtime, however many first requests wait for it."""
    return asyncio.create_task(_open())


async def echo(request: HttpRequest) -> HttpResponse:
    call = json.loads(request.body)
    task_id = str(uuid.uuid4())
    runtime = await opening()
    state, text = await runtime.run(task_id, call["params"]["message"]["parts"][0]["text"])
    task = {
        "id": task_id,
        "status": {"state": f"TASK_STATE_{state.upper()}"},
        "artifacts": [{"parts": [{"text": text}]}],
    }
    reply = {"jsonrpc": "2.0", "id": call["id"], "result": {"task": task}}
    return HttpResponse(json.dumps(reply), content_type="application/json")


urlpatterns = [path("", echo)]
