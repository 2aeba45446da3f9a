"""What a wire version is made of on HTTP+JSON: a table of routes, and its way of writing an error."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from a2a.utils.errors import A2AError
from django.http import QueryDict

from bureau.a2a.errors import invalid_field
from bureau.a2a.rest_errors import Refused
from bureau.a2a.wire import Method

FLAGS = {"true": True, "false": False}


class Route(NamedTuple):
    """One verb at one address, for the operation that JSON-RPC calls `name`.

    `path` is written as in the specification, `tasks/{id}:cancel`; the names in it are parameters of
    `method`, as are those of the query string in `query`, where a name with "?" is true or false.
    """

    verb: str
    path: str
    name: str
    method: Method
    query: Sequence[str]
    pattern: re.Pattern[str]


class RestWire(NamedTuple):
    """A version of the protocol, as Major.Minor, on HTTP+JSON. Names of agents may stand before its addresses."""

    version: str
    media_type: str
    most_names: int
    routes: Sequence[Route]
    error: Callable[[A2AError], dict[str, Any]]
    refusal: Callable[[Refused], dict[str, Any]]


def route(verb: str, path: str, name: str, method: Method, *query: str) -> Route:
    escaped = re.escape(path).replace(r"\{", "{").replace(r"\}", "}")
    pattern = re.sub(r"{(\w+)}", r"(?P<\1>[^/]+?)", escaped)
    return Route(verb, path, name, method, query, re.compile(pattern))


def read_query(asked: Route, query: QueryDict) -> dict[str, Any]:
    """The parameters in a query string, in both spellings; others are ignored, as unknown fields are."""
    found: dict[str, Any] = {}
    for word in asked.query:
        name = word.rstrip("?")
        text = query.get(name) or query.get(_snake(name))
        if text:
            found[name] = _flag(name, text) if word.endswith("?") else text
    return found


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


def _flag(name: str, text: str) -> bool:
    if text not in FLAGS:
        raise invalid_field(name, "This is true or false.")
    return FLAGS[text]
