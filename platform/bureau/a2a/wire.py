"""What a wire version is made of: a table of methods, and its way of writing an error."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from a2a.utils.errors import A2AError, InvalidParamsError

from bureau.a2a.errors import invalid_field

INTERNAL = -32603
BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
# What the converters of protobuf and of a2a-sdk raise for values of a wrong type or out of range; SystemError is
# protobuf's for a name that is no valid Unicode.
UNREADABLE = (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError, SystemError)


class Method(NamedTuple):
    """One method of one wire version.

    `read` makes the request from params, or raises InvalidParamsError. `run` takes it and a
    ServerCallContext; it returns an awaitable, or for a stream an asynchronous generator. `write` makes
    JSON of the result, or of each item of the stream. `resume` also takes the number of the last event
    that the caller has seen, and makes a stream of what follows.
    """

    read: Callable[[dict[str, Any]], Any]
    run: Callable[[Any, Any], Any]
    write: Callable[[Any], Any]
    is_stream: bool = False
    resume: Callable[[Any, Any, int], Any] | None = None


class Wire(NamedTuple):
    """A version of the protocol, as Major.Minor, on JSON-RPC. `error` writes {"code", "message", "data"?}."""

    version: str
    methods: Mapping[str, Method]
    error: Callable[[A2AError], dict[str, Any]]


def check_base64(field: str, text: Any) -> None:
    """The converters skip letters that are not base64, and so make other bytes than were meant."""
    if isinstance(text, str) and not BASE64.fullmatch(text):
        raise invalid_field(field, "This is not base64.")


def unreadable(error: Exception) -> InvalidParamsError:
    """For one of UNREADABLE: names the parameter as the converter did. Its other words are not passed on."""
    found = re.findall(r"Failed to parse (\S+) field", str(error))
    return invalid_field(".".join(found) or "params", "The value has a wrong type, or is out of range.")
