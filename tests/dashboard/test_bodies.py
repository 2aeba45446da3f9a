"""Bodies of requests to the pages: nothing is kept of what is too long, or does not come."""

import asyncio
import itertools

import pytest

from bureau import bodies
from bureau.asgi import application


async def answer(pieces, headers=()):
    """The status, and how many pieces were taken."""
    taken, sent = itertools.count(), []

    async def receive():
        next(taken)
        return await anext(pieces)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/login/", "headers": [*headers, (b"host", b"localhost")]}
    scope |= {"http_version": "1.1", "scheme": "http", "query_string": b"", "server": ("localhost", 80)}
    await application(scope, receive, send)
    return sent[0]["status"], next(taken)


async def piece(size, count):
    for _ in range(count):
        yield {"type": "http.request", "body": b"x" * size, "more_body": True}


@pytest.fixture(autouse=True)
def small(settings, monkeypatch):
    settings.BUREAU_MAX_BODY_BYTES = 10_000
    monkeypatch.setattr(bodies, "FORM_BYTES", 0)


async def test_a_long_one_in_pieces_is_refused_before_its_end():
    assert await answer(piece(1000, 10**9)) == (413, 11)


async def test_one_that_says_so_is_not_read():
    assert await answer(piece(1000, 10**9), [(b"content-length", b"10001")]) == (413, 0)


async def test_one_that_does_not_come_is_not_waited_for(monkeypatch):
    async def never():

        yield {"type": "http.request", "body": b"x", "more_body": True}
        await asyncio.Event().wait()

    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.05)
    assert await answer(never()) == (408, 2)
