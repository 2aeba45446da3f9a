"""The JSON-RPC endpoint: which version, which method. The method's own work is in `handler`."""

from __future__ import annotations

import logging
from typing import Any

from a2a.utils.constants import VERSION_HEADER
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    InternalError,
    MethodNotFoundError,
    VersionNotSupportedError,
)
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt
from rest_framework.exceptions import APIException

from bureau.a2a import jsonrpc, legacy, replies, v03, v1
from bureau.a2a.exchange import PARSER, Exchange
from bureau.a2a.wire import Method, Wire

logger = logging.getLogger(__name__)

OLD = v03.WIRE._replace(methods={**v03.METHODS, **legacy.METHODS})
WIRES: dict[str, Wire] = {wire.version: wire for wire in (v1.WIRE, OLD)}
METHODS: dict[str, tuple[Wire, Method]] = {
    name: (wire, method) for wire in WIRES.values() for name, method in wire.methods.items()
}


@csrf_exempt  # The authenticator of sessions checks the token; browsers send no other credentials on their own.
async def rpc(request: HttpRequest, slug: str = "") -> HttpResponseBase:
    """Answer a JSON-RPC request for the agent of that slug, or for the front door."""
    if request.method != "POST":
        return replies.method_not_allowed("POST")
    exchange = RpcExchange(request, slug)
    try:
        return await exchange.answer()
    except APIException as error:
        return replies.refusal(error)
    except A2AError as error:
        return replies.reply(exchange.failure(error))
    except Exception:
        logger.exception("A request failed", extra={"action": "a2a.failed"})
        return replies.reply(exchange.failure(InternalError()))


class RpcExchange(Exchange):
    """What is known of the request so far is what an error is written with."""

    def __init__(self, request: HttpRequest, slug: str) -> None:
        super().__init__(request, slug)
        self.id: jsonrpc.Id = None
        self.wire = WIRES.get(self.version, v1.WIRE)

    def success(self, value: Any) -> dict[str, Any]:
        return jsonrpc.result(self.id, value)

    def failure(self, error: A2AError) -> dict[str, Any]:
        return jsonrpc.failure(self.id, self.wire.error(error))

    async def answer(self) -> HttpResponseBase:
        """Raises A2AError, and APIException for callers that are not let in."""
        user = await self.admit()
        call = await self.unhurried(self._read_call)
        method = self._find(call.method)
        params = await self.unhurried(method.read, call.params)
        context = self.context(user, params)
        if method.is_stream:
            return self.marked(await self.stream(method, params, context))
        result = await method.run(params, context)
        return self.marked(await self.unhurried(lambda: replies.reply(self.success(method.write(result)))))

    def _read_call(self) -> jsonrpc.Call:
        if self.request.content_type != PARSER.media_type:
            raise ContentTypeNotSupportedError(f"Send JSON-RPC as {PARSER.media_type}.")
        data = self.read_json()
        self.id = jsonrpc.request_id(data)
        return jsonrpc.read_call(data)

    def _find(self, name: str) -> Method:
        if self.version not in WIRES:
            raise VersionNotSupportedError(f"This agent speaks {VERSION_HEADER} {' and '.join(WIRES)}.")
        if name not in METHODS:
            raise MethodNotFoundError
        wire, method = METHODS[name]
        if wire.version != self.version:
            # Only 1.0 has a code for this.
            self.wire = v1.WIRE
            raise VersionNotSupportedError(f"{name} is a method of {VERSION_HEADER} {wire.version}.")
        return method
