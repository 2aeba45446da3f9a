"""HTTP responses of the protocol's addresses. None of them is HTML, and none is cached but the cards."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from rest_framework.exceptions import APIException, AuthenticationFailed, NotAuthenticated, PermissionDenied, Throttled

from bureau.a2a import jsonrpc
from bureau.a2a.authentication import CHALLENGE, ScopeMissing

# For what HTTP says by its status and A2A has no code for; outside of the range that A2A keeps for itself.
REFUSED = -32000
INVALID_REQUEST = -32600


def reply(body: dict[str, Any], status: int = 200) -> HttpResponse:
    """A JSON-RPC response object."""
    response = HttpResponse(jsonrpc.dumps(body), content_type="application/json", status=status)
    response["Cache-Control"] = "no-store"
    return response


def refusal_of(error: APIException) -> tuple[int, str]:
    """Status and text for wrong credentials, a missing CSRF token, or too many calls."""
    match error:
        case AuthenticationFailed() | NotAuthenticated():
            return 401, str(error.detail)
        case ScopeMissing():
            return 403, str(error.detail)
        case PermissionDenied():
            return 403, "A session needs its CSRF token in the header X-CSRFToken."
        case Throttled():
            return 429, "Too many requests."
        case _:
            return 403, "This is not allowed."


def refusal_headers(error: APIException, status: int) -> dict[str, str]:
    """What HTTP wants beside that status."""
    headers = {"WWW-Authenticate": CHALLENGE} if status == 401 else {}
    if isinstance(error, ScopeMissing):
        headers["WWW-Authenticate"] = f'{CHALLENGE}, error="insufficient_scope", scope="{error.scope}"'
    if wait := getattr(error, "wait", None):
        headers["Retry-After"] = str(max(1, round(wait)))
    return headers


def refusal(error: APIException) -> HttpResponse:
    """The same on JSON-RPC."""
    status, text = refusal_of(error)
    response = reply(jsonrpc.failure(None, {"code": REFUSED, "message": text}), status)
    for name, value in refusal_headers(error, status).items():
        response[name] = value
    return response


def method_not_allowed(*allowed: str) -> HttpResponse:
    """For the JSON-RPC addresses."""
    message = f"Send JSON-RPC requests by {' or '.join(allowed)}."
    response = reply(jsonrpc.failure(None, {"code": INVALID_REQUEST, "message": message}), 405)
    response["Allow"] = ", ".join(allowed)
    return response


def problem(message: str, status: int) -> JsonResponse:
    """For addresses that are not JSON-RPC: {"error": message}."""
    response = JsonResponse({"error": message}, status=status)
    response["Cache-Control"] = "no-store"
    if status == 401:
        response["WWW-Authenticate"] = CHALLENGE
    return response


async def not_found(request: HttpRequest, rest: str = "") -> JsonResponse:
    """View for what else is asked for below the protocol's addresses."""
    return problem("There is nothing at this address.", 404)
