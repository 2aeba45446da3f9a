"""A limit on request bodies, in front of Django, which would write them to a file however long they are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from django.conf import settings

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# What a form may hold beside its files.
FORM_BYTES = 1024 * 1024
# Between two pieces of a body.
BODY_SECONDS = 30.0


class Body:
    """What comes in, up to the limit; then it is as if the client had gone."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._left = limit
        self._is_whole = False
        self.refusal = 0
        """The HTTP status that the request is refused with; 0 as long as it is not."""

    async def receive(self) -> dict[str, Any]:
        if self._is_whole:
            return await self._receive()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                message = await self._receive()
        except TimeoutError:
            return self._refused(408)
        self._left -= len(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        return self._refused(413) if self._left < 0 else message

    def _refused(self, status: int) -> dict[str, Any]:
        self.refusal = status
        return {"type": "http.disconnect"}


async def bounded(application: Application, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve the request by this application, unless its body is too long or does not come."""
    limit = settings.BUREAU_MAX_BODY_BYTES + FORM_BYTES
    declared = dict(scope["headers"]).get(b"content-length", b"")
    if declared.isdigit() and int(declared[:18]) > limit:
        return await _refuse(413, send)
    body = Body(receive, limit)
    await application(scope, body.receive, send)
    if body.refusal:
        await _refuse(body.refusal, send)


async def _refuse(status: int, send: Send) -> None:
    text = b"The body is too long.\n" if status == 413 else b"The body did not come.\n"
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(text)), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
