"""What a wire version is made of: a table of methods, and its way of writing an error."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from a2a.utils.errors import A2AError, InvalidParamsError
from a2a.utils.proto_utils import validate_proto_required_fields
from google.protobuf.message import Message as ProtoMessage

from bureau.a2a.errors import invalid_field

INTERNAL = -32603
BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
WORD = re.compile(r"^\w+")
MOST_VIOLATIONS = 10
NAMES_OF_1_0: Mapping[str, str] = {}
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


def check_required(request: ProtoMessage, names: Mapping[str, str] = NAMES_OF_1_0) -> None:
    """Raises InvalidParamsError that says which required fields are lacking, by the names in `names` where it has them.

    a2a-sdk's own says so in its data only, which many a client does not show and 0.3 on REST does not send.
    """
    try:
        validate_proto_required_fields(request)
    except InvalidParamsError as error:
        found = [each | {"field": _spelt(each["field"], names)} for each in (error.data or {}).get("errors", [])]
        text = " ".join(f"{each['field']}: {each['message']}" for each in found[:MOST_VIOLATIONS])
        raise InvalidParamsError(text or error.message, data={"errors": found}) from None


def _spelt(path: str, names: Mapping[str, str]) -> str:
    """A path of protobuf's names as they are in JSON: message.message_id is message.messageId."""
    words = (WORD.sub(lambda word: names.get(word[0], word[0]), name) for name in path.split("."))
    return ".".join(re.sub(r"_([a-z])", lambda found: found[1].upper(), word) for word in words)


def unreadable(error: Exception) -> InvalidParamsError:
    """For one of UNREADABLE: names the parameter as the converter did. Its other words are not passed on."""
    found = re.findall(r"Failed to parse (\S+) field", str(error))
    return invalid_field(".".join(found) or "params", "The value has a wrong type, or is out of range.")
