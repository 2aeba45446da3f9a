"""Django's ASGI handler, without what the protocol's addresses do not need.

Per request, Django makes a thread for synchronous middleware and signal handlers and keeps it, with its
database connection, until the response is complete: for a stream, as long as that lasts. Here the middleware
is asynchronous, sessions are looked up by the authenticator, and database work has its own threads
(`tasks.aio`). It costs a sixth, too: see docs/adr/0002-jsonrpc-view.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from io import BytesIO
from typing import Any

from django.conf import settings
from django.core.exceptions import DisallowedHost, RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.security import SecurityMiddleware
from django.urls import set_script_prefix

from bureau.a2a import replies

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
GetResponse = Callable[[HttpRequest], Awaitable[HttpResponseBase]]

logger = logging.getLogger(__name__)

# Between two pieces of a body: who holds one back holds what has come of it in our memory.
BODY_SECONDS = 30.0
PREFIXES = ("/a2a/", "/.well-known/", "/files/")


def is_protocol_path(path: str) -> bool:
    """Whether this handler serves the address."""
    return path.startswith(PREFIXES) or path == "/a2a"


def guarded(get_response: GetResponse) -> GetResponse:
    """Middleware: known hosts only, Django's security headers and redirect, and no error page in HTML.

    SecurityMiddleware's own asynchronous form would run its two hooks in a thread; they only look at headers.
    """
    security = SecurityMiddleware(get_response)

    async def middleware(request: HttpRequest) -> HttpResponseBase:
        try:
            # A browser that was told a false address for some name sends that name.
            request.get_host()
            response = security.process_request(request) or await get_response(request)
        except DisallowedHost:
            response = replies.problem("This server is not known by that host name.", 400)
        except Http404:
            # Only a line break keeps an address from all of our patterns.
            response = replies.problem("There is nothing at this address.", 404)
        except Exception:
            logger.exception("A request failed", extra={"action": "a2a.failed"})
            response = replies.problem("Internal error", 500)
        return security.process_response(request, response)  # type: ignore[arg-type]

    return middleware


class ProtocolHandler(ASGIHandler):
    """Serves `is_protocol_path` addresses; every view behind them is asynchronous."""

    def load_middleware(self, is_async: bool = False) -> None:
        self._view_middleware: list[Any] = []
        self._template_response_middleware: list[Any] = []
        self._exception_middleware: list[Any] = []
        self._middleware_chain: Any = guarded(self._get_response_async)  # type: ignore[attr-defined]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body, size = await _read_body(scope, receive, settings.BUREAU_MAX_BODY_BYTES)
        except RequestAborted:
            return
        except TimeoutError:
            response = replies.problem("The body did not come.", 408)
            response["Connection"] = "close"
            await self.send_response(response, send)
            return
        set_script_prefix(get_script_prefix(scope))
        request, refused = self.create_request(scope, BytesIO(body))
        if request is None:
            assert refused is not None
            await self.send_response(refused, send)
            return
        # Of a body in chunks nobody declared it; and Django's own check goes by it.
        request.META["CONTENT_LENGTH"] = str(size)
        if size > len(body):
            await self.send_response(await self._refuse_rest(request), send)
        else:
            await self._answer(request, receive, send)

    async def _refuse_rest(self, request: HttpRequest) -> HttpResponseBase:
        response: HttpResponseBase = await self.get_response_async(request)
        # Else the server would go on reading what nobody wants.
        response["Connection"] = "close"
        return response

    async def _answer(self, request: HttpRequest, receive: Receive, send: Send) -> None:
        """Answer until it is done or the client has gone; then whatever waits for it is canceled."""
        answering = asyncio.current_task()
        assert answering is not None
        leaving = asyncio.ensure_future(receive())
        leaving.add_done_callback(lambda done: done.cancelled() or answering.cancel())
        try:
            response = await self.get_response_async(request)
            # Not closed: that would only send Django's signal to close database connections of this thread.
            await self.send_response(response, send)
        except asyncio.CancelledError:
            if not leaving.done():
                raise
            answering.uncancel()
        finally:
            leaving.cancel()


async def _read_body(scope: Scope, receive: Receive, limit: int) -> tuple[bytes, int]:
    """The body and its size. Of one over the limit nothing is kept, and the rest of it is not asked for.

    Raises RequestAborted, and TimeoutError when nothing more comes for a while.
    """
    declared = dict(scope["headers"]).get(b"content-length", b"")
    if declared.isdigit() and int(declared[:18]) > limit:
        return b"", limit + 1
    chunks: list[bytes] = []
    size = 0
    while True:
        async with asyncio.timeout(BODY_SECONDS):
            message = await receive()
        if message["type"] != "http.request":
            raise RequestAborted
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            return b"", size
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks), size
