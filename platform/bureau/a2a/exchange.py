"""What every binding has in common: a request while it is answered, who sends it, and its stream."""

from __future__ import annotations

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from io import BytesIO
from typing import Any, TypeVar

from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.utils.constants import PROTOCOL_VERSION_0_3, VERSION_HEADER
from a2a.utils.errors import A2AError, InternalError, InvalidRequestError
from django.core.exceptions import RequestDataTooBig, TooManyFieldsSent
from django.http import HttpRequest, QueryDict
from django.http.response import HttpResponseBase
from rest_framework.exceptions import Throttled
from rest_framework.settings import api_settings

from bureau.a2a import jsonrpc
from bureau.a2a.authentication import CallerUser, identify
from bureau.a2a.errors import as_a2a_error, invalid_field
from bureau.a2a.extensions import activated
from bureau.a2a.handler import EVENT_ID
from bureau.a2a.notifications import VERSION_STATE
from bureau.a2a.sse import HEARTBEAT_SECONDS, EventStream, Frame
from bureau.a2a.wire import Method
from directory.exceptions import AgentNotFound
from tasks.aio import in_db

logger = logging.getLogger(__name__)

PARSER = jsonrpc.StrictJSONParser()
# Bytes; up to here, reading and writing take less time than a hop to a thread and back is worth.
SMALL_BODY = 32 * 1024
# Until 0.3.
OLD_EXTENSION_HEADER = "X-A2A-Extensions"
T = TypeVar("T")
R = TypeVar("R", bound=HttpResponseBase)
# The patch number does not count.
VERSION = re.compile(r"(\d{1,3}\.\d{1,3})(\.\d{1,9})?")


class Exchange(ABC):
    """One request, for the agent of that slug; without one, for the front door.

    `version` is what the caller asked for, as Major.Minor; empty when that can't be read.
    """

    def __init__(self, request: HttpRequest, slug: str) -> None:
        self.request = request
        self.slug = slug
        # From META: to look into `headers` or GET, Django would first copy and parse all of them.
        asked = request.META.get("HTTP_A2A_VERSION", "")
        if not asked and request.META["QUERY_STRING"]:
            with suppress(TooManyFieldsSent):
                asked = request.GET.get(VERSION_HEADER, "")
        found = VERSION.fullmatch(asked.strip() or PROTOCOL_VERSION_0_3)
        self.version = found[1] if found else ""
        # Those of the protocol's extensions that take effect.
        self.extensions = ""

    @abstractmethod
    def success(self, value: Any) -> Any:
        """The JSON that carries a result, or one item of a stream."""

    @abstractmethod
    def failure(self, error: A2AError) -> Any:
        """The JSON that tells of an error."""

    def read_json(self) -> Any:
        """The decoded body. Raises InvalidRequestError, JSONParseError."""
        try:
            body = self.request.body
        except RequestDataTooBig:
            raise InvalidRequestError("The body is too large.") from None
        data = PARSER.parse(BytesIO(body))
        if jsonrpc.holds_too_much(data):
            raise InvalidRequestError(f"The body holds more than {jsonrpc.MAX_VALUES} values.")
        return data

    def read_query(self) -> QueryDict:
        """The query string. Raises InvalidRequestError."""
        try:
            return self.request.GET
        except TooManyFieldsSent:
            raise InvalidRequestError("The query string holds too many fields.") from None

    async def unhurried(self, function: Callable[..., T], /, *args: Any) -> T:
        """Call a function whose cost grows with the body: for a large one in a thread, so that the loop goes on.

        Otherwise all streams of the process, and their heartbeats, would wait for one caller.
        """
        if int(self.request.META.get("CONTENT_LENGTH") or len(self.request.body)) <= SMALL_BODY:
            return function(*args)
        return await in_db(function, *args)

    async def admit(self) -> CallerUser:
        """The caller, unless there are too many calls. Raises APIException."""
        user = await identify(self.request)
        self.request.user = user  # type: ignore[assignment]
        kinds: Any = api_settings.DEFAULT_THROTTLE_CLASSES
        for throttle in [kind() for kind in kinds]:
            if not await in_db(throttle.allow_request, self.request, None):
                raise Throttled(throttle.wait())
        return user

    def context(self, user: CallerUser, params: Any) -> ServerCallContext:
        """Raises InvalidParamsError when the tenant that the params name is not the addressed agent.

        One that can be nobody's name is UnsupportedOperationError, as an agent is that is not there.
        """
        meta = self.request.META
        extensions = meta.get("HTTP_A2A_EXTENSIONS") or meta.get("HTTP_X_A2A_EXTENSIONS")
        tenant = getattr(params, "tenant", "")
        if tenant and self.slug and tenant != self.slug:
            raise invalid_field("tenant", "A tenant names an agent, and this is the address of another one.")
        if "\0" in tenant:
            raise as_a2a_error(AgentNotFound())
        wanted = get_requested_extensions([extensions]) if extensions else set()
        self.extensions = activated(wanted)
        return ServerCallContext(
            user=user,
            tenant=self.slug or tenant,
            state={VERSION_STATE: self.version},
            requested_extensions=wanted,
        )

    def marked(self, response: R) -> R:
        """The response with what the caller is to know of how the request was understood."""
        if self.extensions:
            name = OLD_EXTENSION_HEADER if self.version == PROTOCOL_VERSION_0_3 else HTTP_EXTENSION_HEADER
            response[name] = self.extensions
        return response

    async def stream(self, method: Method, params: Any, context: ServerCallContext) -> EventStream:
        """What is refused is refused here, before the stream begins, and so as a plain response."""
        seen = self.request.META.get("HTTP_LAST_EVENT_ID")
        if method.resume and seen:
            events = await method.resume(params, context, _event_number(seen))
            return EventStream(self._frames(method, events, context))
        events = method.run(params, context)
        first = asyncio.ensure_future(anext(events))
        try:
            # Who waits longer for the beginning, as for a bare message, was not refused; and needs heartbeats.
            await asyncio.wait({first}, timeout=HEARTBEAT_SECONDS)
        except asyncio.CancelledError:
            first.cancel()
            raise
        if first.done():
            first.result()
        return EventStream(self._frames(method, events, context, first))

    async def _frames(
        self,
        method: Method,
        events: AsyncGenerator[Any],
        context: ServerCallContext,
        first: asyncio.Future[Any] | None = None,
    ) -> AsyncGenerator[Frame]:
        def frame(event: Any) -> Frame:
            return Frame(jsonrpc.dumps(self.success(method.write(event))), context.state[EVENT_ID])

        async with aclosing(events):
            try:
                if first is not None:
                    yield frame(await first)
                async for event in events:
                    yield frame(event)
            except A2AError as error:
                yield Frame(jsonrpc.dumps(self.failure(error)), event="error")
            except Exception:
                logger.exception("A stream broke off", extra={"action": "a2a.stream_failed"})
                yield Frame(jsonrpc.dumps(self.failure(InternalError())), event="error")


def _event_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise invalid_field("Last-Event-ID", "This is no event id of this server.")
    return int(text)
