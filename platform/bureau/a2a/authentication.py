"""Who is calling: an API key, else a signed-in session, else, where that is allowed, nobody in particular.

These are DRF authenticators, so that any DRF view can use them (REST_FRAMEWORK lists them). `identify`
asks them from asynchronous code, in DRF's order and with DRF's meaning: None passes on to the next,
AuthenticationFailed ends it. Credentials that are wrong are never treated as none.
"""

from __future__ import annotations

import time
from importlib import import_module
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from a2a.auth.user import User
from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated, PermissionDenied
from rest_framework.settings import api_settings

from directory.identity import ANONYMOUS, Caller
from directory.services import check_api_key, hash_key
from tasks.aio import in_db

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser
    from rest_framework.request import Request

CHALLENGE = 'Bearer realm="bureau"'
# A revoked key may still be good in another web process for this long.
REMEMBER_SECONDS = 5.0
MOST_REMEMBERED = 1000

_known_keys: dict[str, tuple[float, Caller]] = {}


class ScopeMissing(PermissionDenied):
    """The caller is known, but these credentials are not for this."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"These credentials lack the scope {scope!r}.")
        self.scope = scope


class CallerUser(User):
    """A caller as a2a-sdk and DRF's throttles want to see a user."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.pk = caller.principal

    @property
    def is_authenticated(self) -> bool:
        return not self.caller.is_anonymous

    @property
    def user_name(self) -> str:
        return self.caller.name


class Authenticator(BaseAuthentication):
    """One way of saying who calls."""

    def is_quick(self, request: HttpRequest | Request) -> bool:
        """Whether `authenticate` will do without the database, and so needs no thread."""
        return True

    def authenticate_header(self, request: Request) -> str:
        return CHALLENGE


class ApiKeyAuthentication(Authenticator):
    """`Authorization: Bearer <key>` or `X-API-Key: <key>`."""

    def is_quick(self, request: HttpRequest | Request) -> bool:
        key = _presented_key(request)
        return key is None or _remembered(key) is not None

    def authenticate(self, request: HttpRequest | Request) -> tuple[CallerUser, None] | None:
        """Raises AuthenticationFailed for a key that is unknown, revoked or expired."""
        key = _presented_key(request)
        if key is None:
            return None
        caller = _remembered(key)
        if caller is None:
            client = check_api_key(key)
            if client is None:
                raise AuthenticationFailed("This API key is not valid.")
            caller = Caller.from_client(client)
            _remember(key, caller)
        return CallerUser(caller), None


def _presented_key(request: HttpRequest | Request) -> str | None:
    """Raises AuthenticationFailed for an Authorization header of another kind."""
    header = request.META.get("HTTP_AUTHORIZATION")
    if header is None:
        key: str | None = request.META.get("HTTP_X_API_KEY")
        return key
    scheme, _, key = header.partition(" ")
    if scheme.lower() != "bearer":
        raise AuthenticationFailed("Use `Authorization: Bearer <API key>`.")
    return key.strip()


def _remembered(key: str) -> Caller | None:
    known = _known_keys.get(hash_key(key))
    return known[1] if known and known[0] > time.monotonic() else None


def _remember(key: str, caller: Caller) -> None:
    if len(_known_keys) >= MOST_REMEMBERED:
        _known_keys.clear()
    _known_keys[hash_key(key)] = (time.monotonic() + REMEMBER_SECONDS, caller)


def forget_keys() -> None:
    """Drop what this process remembers of keys, e.g. after one was revoked here."""
    _known_keys.clear()


class SignedInAuthentication(SessionAuthentication):
    """The session of a signed-in user, with Django's CSRF token on everything that is not a GET."""

    def is_quick(self, request: HttpRequest | Request) -> bool:
        return settings.SESSION_COOKIE_NAME not in request.COOKIES

    def authenticate(self, request: HttpRequest | Request) -> tuple[CallerUser, None] | None:
        """Raises PermissionDenied when the CSRF token is missing or wrong."""
        user = session_user(request)
        if user is None:
            return None
        self.enforce_csrf(request)  # type: ignore[arg-type] # It only asks Django's middleware.
        return CallerUser(Caller.from_user(user)), None

    def authenticate_header(self, request: Request) -> str:
        return CHALLENGE


def session_user(request: HttpRequest | Request) -> AbstractBaseUser | None:
    """The active user of the request's session cookie, with or without Django's session middleware."""
    key = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
    # PostgreSQL refuses to look for a NUL.
    if key is None or "\0" in key:
        return None
    if not hasattr(request, "session"):
        request.session = import_module(settings.SESSION_ENGINE).SessionStore(key)
    user = get_user(request)
    return user if user.is_authenticated else None


class LoopbackAuthentication(Authenticator):
    """Nobody in particular, from this machine itself, where BUREAU_ALLOW_ANONYMOUS says so."""

    # A proxy on this machine would make strangers look local.
    PROXY_HEADERS = ("FORWARDED", "VIA", "X_FORWARDED_FOR", "X_FORWARDED_HOST", "X_FORWARDED_PROTO", "X_REAL_IP")

    def authenticate(self, request: HttpRequest | Request) -> tuple[CallerUser, None] | None:
        if not settings.BUREAU_ALLOW_ANONYMOUS:
            return None
        if any(f"HTTP_{name}" in request.META for name in self.PROXY_HEADERS):
            return None
        if not _is_loopback(request.META.get("REMOTE_ADDR", "")) or _is_from_another_site(request):
            return None
        return CallerUser(ANONYMOUS), None


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def _is_from_another_site(request: HttpRequest | Request) -> bool:
    """Whether a page of another site sent this through the browser of somebody who sits at this machine."""
    origin = request.META.get("HTTP_ORIGIN")
    if origin is None:
        return False
    try:
        return bool(urlsplit(origin).netloc != request.get_host())
    except ValueError:
        return True


async def identify(request: HttpRequest) -> CallerUser:
    """The caller. Raises AuthenticationFailed, NotAuthenticated or PermissionDenied."""
    kinds: Any = api_settings.DEFAULT_AUTHENTICATION_CLASSES
    for authenticator in [kind() for kind in kinds]:
        if getattr(authenticator, "is_quick", lambda request: False)(request):
            found = authenticator.authenticate(request)
        else:
            found = await in_db(authenticator.authenticate, request)
        if found is not None:
            user: CallerUser = found[0]
            return user
    raise NotAuthenticated("Send an API key: `Authorization: Bearer <key>` or `X-API-Key: <key>`.")
