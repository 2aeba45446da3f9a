"""HTTP statuses for errors of A2A, and for what HTTP itself refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from a2a.utils.errors import (
    A2A_ERROR_MAPPING,
    A2AError,
    ContentTypeNotSupportedError,
    ErrorMapping,
    InvalidRequestError,
    JSONParseError,
)
from rest_framework.exceptions import APIException

from bureau.a2a.replies import refusal_headers, refusal_of

INTERNAL = ErrorMapping(500, "INTERNAL", "INTERNAL_ERROR")
# A body that is no JSON has a code in JSON-RPC only.
MEANINGS: Mapping[type[A2AError], ErrorMapping] = {
    **A2A_ERROR_MAPPING,
    JSONParseError: A2A_ERROR_MAPPING[InvalidRequestError],
    # HTTP has a status for this; a2a-sdk gives the general one.
    ContentTypeNotSupportedError: A2A_ERROR_MAPPING[ContentTypeNotSupportedError]._replace(http_code=415),
}
NAMES = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 429: "RESOURCE_EXHAUSTED"}


class Refused(NamedTuple):
    """What HTTP refuses before A2A is asked. `name` is google.rpc.Code's."""

    status: int
    name: str
    message: str
    headers: Mapping[str, str]


def meaning_of(error: A2AError) -> ErrorMapping:
    return MEANINGS.get(type(error), INTERNAL)


def status_of(error: A2AError) -> int:
    return meaning_of(error).http_code


def refused(error: APIException) -> Refused:
    """Wrong credentials, a missing CSRF token, a scope that is lacking, or too many calls."""
    status, text = refusal_of(error)
    return Refused(status, NAMES[status], text, refusal_headers(error, status))
