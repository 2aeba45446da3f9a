"""A Content-Security-Policy for every page. Django 5.2 has none of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

# Nothing inline, nothing from elsewhere: text of agents and strangers is shown on these pages.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


@sync_and_async_middleware
def content_security(get_response: Callable[[HttpRequest], object]) -> Callable[[HttpRequest], object]:
    """Add the policy, unless the view has set a stricter one. Takes no thread when asynchronous."""
    if iscoroutinefunction(get_response):

        async def from_async(request: HttpRequest) -> HttpResponseBase:
            answer = get_response(request)
            assert isinstance(answer, Awaitable)
            return _secured(await answer)

        return from_async

    def from_sync(request: HttpRequest) -> HttpResponseBase:
        answer = get_response(request)
        assert isinstance(answer, HttpResponseBase)
        return _secured(answer)

    return from_sync


def _secured(response: HttpResponseBase) -> HttpResponseBase:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response
