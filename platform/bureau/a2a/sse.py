"""Server-sent events: numbered, with heartbeats, and gone without a trace when the client goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from typing import NamedTuple

from django.http import StreamingHttpResponse

HEARTBEAT_SECONDS = 15.0
HEARTBEAT = b": still here\n\n"


class Frame(NamedTuple):
    """One event: `data` is a line of JSON; `id` is what a client sends back as Last-Event-ID."""

    data: bytes
    id: int | None = None
    event: str = ""

    def encode(self) -> bytes:
        number = b"id: %d\n" % self.id if self.id is not None else b""
        name = b"event: %s\n" % self.event.encode() if self.event else b""
        return b"%b%bdata: %b\n\n" % (number, name, self.data)


class EventStream(StreamingHttpResponse):
    """A response that sends these frames as they come, to the last one."""

    def __init__(self, frames: AsyncGenerator[Frame]) -> None:
        super().__init__(_lines(frames), content_type="text/event-stream")
        self["Cache-Control"] = "no-store"
        # Some proxies collect a response before they pass it on; this one is never complete.
        self["X-Accel-Buffering"] = "no"


async def _lines(frames: AsyncGenerator[Frame]) -> AsyncIterator[bytes]:
    async with aclosing(frames):
        while True:
            coming = asyncio.ensure_future(anext(frames, None))
            try:
                while not (await asyncio.wait({coming}, timeout=HEARTBEAT_SECONDS))[0]:
                    yield HEARTBEAT
            finally:
                if not coming.done():
                    # The client has gone. What was waited for is let go of before the frames are closed.
                    coming.cancel()
                    with suppress(asyncio.CancelledError):
                        await coming
            frame = coming.result()
            if frame is None:
                return
            yield frame.encode()
