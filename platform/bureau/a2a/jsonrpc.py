"""JSON-RPC 2.0: from bytes to a call, and from an outcome to a reply. Knows nothing of A2A's types."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import IO, Any, NamedTuple, NoReturn

from a2a.utils.errors import InvalidParamsError, InvalidRequestError, JSONParseError
from rest_framework.parsers import BaseParser

from directory.protojson import whole

Id = str | int | None


class Call(NamedTuple):
    """A request that asks for a reply. A2A has no notifications, and no batches."""

    id: Id
    method: str
    params: dict[str, Any]


class StrictJSONParser(BaseParser):
    """JSON as RFC 8259 has it, and as every reader would read it: UTF-8, no NaN, no name twice."""

    media_type = "application/json"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """Raises JSONParseError."""
        try:
            return json.loads(
                stream.read().decode(),
                parse_constant=_refuse_constant,
                parse_float=_finite,
                object_pairs_hook=_unambiguous,
            )
        except UnicodeDecodeError:
            raise JSONParseError("The body is not UTF-8.") from None
        except RecursionError:
            raise JSONParseError("The body is nested too deeply.") from None
        except ValueError:
            raise JSONParseError from None


# A message has a few dozen; and each one costs its reader some ten microseconds.
MAX_VALUES = 100_000


def holds_too_much(data: Any) -> bool:
    """Whether the decoded JSON holds more than MAX_VALUES values in lists and objects."""
    count = 0
    pending = [data]
    while pending:
        value = pending.pop()
        if isinstance(value, dict | list):
            count += len(value)
            if count > MAX_VALUES:
                return True
            pending.extend(value.values() if isinstance(value, dict) else value)
    return False


def _refuse_constant(text: str) -> NoReturn:
    raise JSONParseError(f"{text} is not JSON.")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise JSONParseError("A number is too large.")
    return number


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Readers differ in which of two equal names counts, and a filter before us may have read the other."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise JSONParseError("An object holds a name twice.")
    return found


def request_id(data: Any) -> Id:
    """The id to answer with, as far as there is a usable one."""
    found = data.get("id") if isinstance(data, dict) else None
    # In Python, True is an integer.
    return found if isinstance(found, str | int) and not isinstance(found, bool) else None


def read_call(data: Any) -> Call:
    """The call in a decoded body. Raises InvalidRequestError or, for positional params, InvalidParamsError."""
    if isinstance(data, list):
        raise InvalidRequestError("Batches are not part of A2A: send one request at a time.")
    if not isinstance(data, dict):
        raise InvalidRequestError("A request is a JSON object.")
    if data.get("jsonrpc") != "2.0":
        raise InvalidRequestError('"jsonrpc" must be "2.0".')
    if "id" not in data:
        raise InvalidRequestError('A request needs an "id": A2A has no notifications.')
    if data["id"] is not None and request_id(data) is None:
        raise InvalidRequestError('"id" must be a string, an integer or null.')
    method = data.get("method")
    if not isinstance(method, str) or not method:
        raise InvalidRequestError('"method" must be a string.')
    params = data.get("params", {})
    if not isinstance(params, dict):
        raise InvalidParamsError('"params" must be an object.')
    return Call(request_id(data), method, params)


def result(id: Id, value: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": value}


def failure(id: Id, error: dict[str, Any]) -> dict[str, Any]:
    """`error` is {"code", "message", "data"?}."""
    return {"jsonrpc": "2.0", "id": id, "error": error}


def dumps(reply: dict[str, Any]) -> bytes:
    """ASCII, so that text which is no valid Unicode comes back the way it was written; whole numbers as integers."""
    return json.dumps(whole(reply), separators=(",", ":")).encode("ascii")
