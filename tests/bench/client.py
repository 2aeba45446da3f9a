"""A cheap HTTP/1.1 client for the load generator: one keep-alive connection, JSON bodies, SSE replies.

httpx costs about as much CPU per request as some of the servers measured here; on a machine where both share
the cores, that would be measured too.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urlsplit


class BadReply(Exception):
    """The server answered something other than HTTP 200."""


class Connection:
    """One connection to one URL; requests on it follow each other and never overlap."""

    def __init__(self, url: str, headers: dict[str, str], timeout: float = 30.0) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        fields = {"Host": parts.netloc, "Content-Type": "application/json", **headers}
        lines = [
            f"POST {parts.path or '/'} HTTP/1.1",
            *(f"{name}: {value}" for name, value in fields.items()),
        ]
        self._head = ("\r\n".join(lines) + "\r\nContent-Length: ").encode()
        self._timeout = timeout
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def call(self, body: bytes) -> Any:
        """POST `body`; returns the decoded JSON reply. Raises BadReply, OSError or TimeoutError."""
        async with asyncio.timeout(self._timeout):
            reader, length, keep_alive = await self._send(body)
            if length is None:
                data = b"".join([chunk async for chunk in _chunks(reader)])
            else:
                data = await reader.readexactly(length)
        if not keep_alive:
            self.close()
        return json.loads(data)

    async def stream(self, body: bytes) -> AsyncGenerator[Any]:
        """POST `body`; yields the decoded `data:` of each server-sent event until the stream ends."""
        async with asyncio.timeout(self._timeout):
            reader, length, _ = await self._send(body)
        if length is not None:  # an error is answered as plain JSON
            raise BadReply((await reader.readexactly(length)).decode(errors="replace")[:500])
        pending = b""
        async for chunk in _chunks(reader):
            pending = (pending + chunk).replace(b"\r\n", b"\n")
            *events, pending = pending.split(b"\n\n")
            for event in events:
                lines = [line[5:] for line in event.split(b"\n") if line.startswith(b"data:")]
                if lines:
                    yield json.loads(b"\n".join(lines))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    async def _send(self, body: bytes) -> tuple[asyncio.StreamReader, int | None, bool]:
        """Send one request and read the reply's head: reader, body length (None: chunked), keep-alive."""
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        self._writer.write(self._head + b"%d\r\n\r\n" % len(body) + body)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = None
        if (at := head.find(b"\r\ncontent-length:")) >= 0:
            length = int(head[at + 17 : head.index(b"\r\n", at + 2)])
        if head[9:12] != b"200":
            detail = await self._reader.readexactly(length) if length else b""
            self.close()
            raise BadReply(f"HTTP {head[9:12].decode()}: {detail[:500].decode(errors='replace')}")
        return self._reader, length, b"connection: close" not in head


async def _chunks(reader: asyncio.StreamReader) -> AsyncGenerator[bytes]:
    """The chunks of a `Transfer-Encoding: chunked` body."""
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
