"""HTTP+JSON: the operations as resources below an agent's base address, in 1.0 and, below `v1/`, in 0.3.

A route only says which verb and address mean which operation; reading, doing and writing are those of
the wire version. In 1.0 a tenant may stand before the address: it names an agent, so that
`/a2a/<tenant>/tasks` is the same as the address of that agent.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from a2a.utils.constants import A2A_JSON_MEDIA_TYPE, VERSION_HEADER
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    InternalError,
    InvalidRequestError,
    VersionNotSupportedError,
)
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt
from rest_framework.exceptions import APIException

from bureau.a2a import replies, rest_v03, rest_v1
from bureau.a2a.exchange import PARSER, Exchange
from bureau.a2a.rest_errors import Refused, refused, status_of
from bureau.a2a.rest_wire import RestWire, Route, read_query

logger = logging.getLogger(__name__)

MEDIA_TYPES = (PARSER.media_type, A2A_JSON_MEDIA_TYPE)
NAME = re.compile(r"([-a-zA-Z0-9_]+)/(.+)")
WIRES = (rest_v1.WIRE, rest_v03.WIRE)
MOST_NAMES = max(wire.most_names for wire in WIRES)


class Address(NamedTuple):
    """What an address means: in which version, for which agent, and by verb, which operation with which names."""

    wire: RestWire
    slugs: Sequence[str]
    routes: Mapping[str, tuple[Route, dict[str, str]]]


@csrf_exempt  # As for JSON-RPC.
async def rest(request: HttpRequest, path: str) -> HttpResponseBase:
    """Answer a request at `path` below the base address of the front door."""
    address = resolve(path)
    if address is None:
        nothing = Refused(404, "NOT_FOUND", "There is nothing at this address.", {})
        return _reply(rest_v1.WIRE, rest_v1.write_refusal(nothing), 404)
    exchange = RestExchange(request, address)
    try:
        return await exchange.answer()
    except APIException as error:
        return exchange.refuse(refused(error))
    except A2AError as error:
        return exchange.reply(exchange.failure(error), status_of(error))
    except Exception:
        logger.exception("A request failed", extra={"action": "a2a.failed"})
        return exchange.reply(exchange.failure(InternalError()), 500)


def resolve(path: str) -> Address | None:
    """The meaning of a path below `/a2a/`: an operation, behind an agent's name and, in 1.0, a tenant's."""
    slugs: list[str] = []
    while len(slugs) <= MOST_NAMES:
        for wire in WIRES:
            routes = _routes(wire, path) if len(slugs) <= wire.most_names else {}
            if routes:
                return Address(wire, slugs, routes)
        named = NAME.fullmatch(path)
        if named is None:
            break
        slugs.append(named[1])
        path = named[2]
    return None


def _routes(wire: RestWire, path: str) -> dict[str, tuple[Route, dict[str, str]]]:
    found: dict[str, tuple[Route, dict[str, str]]] = {}
    for route in wire.routes:
        match = route.pattern.fullmatch(path)
        if match:
            found.setdefault(route.verb, (route, match.groupdict()))
    return found


def _reply(wire: RestWire, body: Any, status: int) -> HttpResponseBase:
    response = replies.reply(body, status)
    response["Content-Type"] = wire.media_type
    # What callers do wrong is theirs to know, and no warning to the operator.
    response._has_been_logged = status < 500  # type: ignore[attr-defined]
    return response


class RestExchange(Exchange):
    """One request to an address that has a meaning."""

    def __init__(self, request: HttpRequest, address: Address) -> None:
        super().__init__(request, address.slugs[0] if address.slugs else "")
        self.address = address
        self.wire = address.wire

    def success(self, value: Any) -> Any:
        return value

    def failure(self, error: A2AError) -> dict[str, Any]:
        return self.wire.error(error)

    def reply(self, body: Any, status: int = 200) -> HttpResponseBase:
        return _reply(self.wire, body, status)

    def refuse(self, why: Refused) -> HttpResponseBase:
        response = self.reply(self.wire.refusal(why), why.status)
        for name, value in why.headers.items():
            response[name] = value
        return response

    async def answer(self) -> HttpResponseBase:
        """Raises A2AError, and APIException for callers that are not let in."""
        verb = self.request.method or ""
        if verb not in self.address.routes:
            allowed = ", ".join(sorted(self.address.routes))
            return self.refuse(Refused(405, "UNIMPLEMENTED", f"Use {allowed} here.", {"Allow": allowed}))
        user = await self.admit()
        self._check_version()
        route, names = self.address.routes[verb]
        if len(self.address.slugs) > 1:
            names = names | {"tenant": self.address.slugs[1]}
        fields = await self.unhurried(self._read_fields, route)
        params = await self.unhurried(route.method.read, {**fields, **names})
        context = self.context(user, params)
        if route.method.is_stream:
            return self.marked(await self.stream(route.method, params, context))
        result = await route.method.run(params, context)
        return self.marked(await self.unhurried(lambda: self.reply(route.method.write(result))))

    def _check_version(self) -> None:
        """Without the header it is 0.3, as the specification has it; at 1.0's own addresses that is refused."""
        if self.version != self.wire.version:
            wanted = f"{VERSION_HEADER}: {self.wire.version}"
            raise VersionNotSupportedError(f"Requests to this address need the header {wanted}.")

    def _read_fields(self, route: Route) -> dict[str, Any]:
        fields = read_query(route, self.read_query()) if self.request.META["QUERY_STRING"] else {}
        if self.request.method != "POST" or not self.request.META.get("CONTENT_LENGTH", "").strip("0"):
            return fields
        if self.request.content_type not in MEDIA_TYPES:
            raise ContentTypeNotSupportedError(f"Send {' or '.join(MEDIA_TYPES)}.")
        data = self.read_json()
        if not isinstance(data, dict):
            raise InvalidRequestError("The body is not a JSON object.")
        return {**fields, **data}
