"""Bearer tokens (JWT) of one configured issuer: their subject owns what is sent, their scopes say what may be done."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.http import HttpRequest
from rest_framework.exceptions import AuthenticationFailed

from bureau.a2a.authentication import Authenticator, CallerUser
from directory.identity import SCOPES, Caller
from directory.services import KEY_PREFIX

if TYPE_CHECKING:
    from jwt import PyJWK
    from rest_framework.request import Request

logger = logging.getLogger(__name__)

KEYS_SECONDS = 600.0
WAIT_SECONDS = 5.0
# A token that names an unknown key makes us look again, but not for each of many such tokens.
PAUSE_SECONDS = 30.0
MAX_TOKEN = 8192
MAX_OWNER = 70
# In the claim that names agents.
ALL_AGENTS = "*"


class TokenAuthentication(Authenticator):
    """`Authorization: Bearer <JWT>`, where BUREAU_JWT_ISSUER is set. Leaves API keys to the next."""

    def is_quick(self, request: HttpRequest | Request) -> bool:
        token = _presented_token(request)
        return token is None or KEYS.has(_key_id(token))

    def authenticate(self, request: HttpRequest | Request) -> tuple[CallerUser, None] | None:
        """Raises AuthenticationFailed."""
        token = _presented_token(request)
        if token is None:
            return None
        return CallerUser(_caller(_claims(token))), None


def _presented_token(request: HttpRequest | Request) -> str | None:
    if not settings.BUREAU_JWT_ISSUER:
        return None
    scheme, _, token = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and token.count(".") == 2 and not token.startswith(KEY_PREFIX) else None


def _claims(token: str) -> dict[str, Any]:
    """The checked claims. What exactly is wrong with a token is not told: a stranger may have made it."""
    import jwt

    from directory.signatures import ALGORITHMS

    if len(token) > MAX_TOKEN:
        raise AuthenticationFailed("This token is not valid.")
    try:
        key = KEYS.find(_key_id(token))
        if key is None:
            raise AuthenticationFailed("This token is signed with a key that its issuer does not publish.")
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[key.algorithm_name] if key.algorithm_name in ALGORITHMS else [],
            audience=settings.BUREAU_JWT_AUDIENCE,
            issuer=settings.BUREAU_JWT_ISSUER,
            leeway=settings.BUREAU_JWT_SKEW_SECONDS,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )
    except jwt.ExpiredSignatureError:
        raise AuthenticationFailed("This token has expired.") from None
    except (jwt.PyJWTError, ValueError, TypeError):
        raise AuthenticationFailed("This token is not valid.") from None
    return claims


def _key_id(token: str) -> str:
    """What the token says; empty if it says nothing readable."""
    import jwt

    try:
        found = jwt.get_unverified_header(token).get("kid")
    except (jwt.PyJWTError, ValueError, TypeError):
        return ""
    return found if isinstance(found, str) else ""


def _caller(claims: dict[str, Any]) -> Caller:
    subject = claims["sub"]
    if not isinstance(subject, str) or not subject:
        raise AuthenticationFailed("This token names nobody.")
    fits = len(subject) <= MAX_OWNER and subject.isprintable()
    owner = subject if fits else f"sha256:{hashlib.sha256(subject.encode()).hexdigest()}"
    name = claims.get("name")
    return Caller(
        f"token:{owner}",
        name[:100] if isinstance(name, str) and name else subject[:100],
        scopes=_scopes(claims),
        agents=_agents(claims),
    )


def _scopes(claims: dict[str, Any]) -> frozenset[str]:
    """RFC 8693's `scope`, or the list `scp` that some issuers write. A token without either allows nothing."""
    given = claims.get("scope", claims.get("scp", []))
    prefix = settings.BUREAU_JWT_SCOPE_PREFIX
    return frozenset(scope for scope in SCOPES if f"{prefix}{scope}" in _words(given))


def _agents(claims: dict[str, Any]) -> frozenset[str]:
    """The agents that may be called, by slug; empty for all. Raises AuthenticationFailed where that would be none."""
    claim = settings.BUREAU_JWT_AGENTS_CLAIM
    if not claim:
        return frozenset()
    named = _words(claims.get(claim))
    if not named:
        raise AuthenticationFailed("This token names no agent that it is good for.")
    return frozenset() if ALL_AGENTS in named else frozenset(named)


def _words(given: Any) -> list[str]:
    """The words of a claim, which is a list of them, or a text with spaces between them."""
    if isinstance(given, str):
        return given.split()
    return [word for word in given if isinstance(word, str)] if isinstance(given, list) else []


class Keys:
    """The issuer's published keys, kept for a while."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        self._keys: dict[str, PyJWK] = {}
        self._read_at = self._tried_at = float("-inf")

    def has(self, kid: str) -> bool:
        """Whether `find` will do without asking the issuer."""
        return kid in self._keys and time.monotonic() - self._read_at < KEYS_SECONDS

    def find(self, kid: str) -> PyJWK | None:
        """The key of that id, from the issuer if need be: then this blocks for a moment."""
        # Others wait for who asks, but not for ever: their threads are needed.
        if not self.has(kid) and self._lock.acquire(timeout=WAIT_SECONDS):
            try:
                self._refresh(kid)
            finally:
                self._lock.release()
        return self._keys.get(kid)

    def _refresh(self, kid: str) -> None:
        if self.has(kid) or time.monotonic() - self._tried_at < PAUSE_SECONDS:
            return
        self._tried_at = time.monotonic()
        found = asyncio.run(_fetch_keys(settings.BUREAU_JWT_JWKS_URL))
        if found:
            self._keys, self._read_at = found, time.monotonic()


async def _fetch_keys(url: str) -> dict[str, PyJWK]:
    """None of them when they can't be had: then the earlier ones go on being good."""
    from directory.exceptions import RemoteError
    from directory.http import fetch, open_client
    from directory.signatures import usable_keys

    try:
        async with open_client() as client:
            answer = await fetch(client, "GET", url, redirects=1, seconds=WAIT_SECONDS)
            return usable_keys(answer.check().json())
    except RemoteError as error:
        logger.warning("The keys of the issuer can't be read: %s", error, extra={"action": "token.no_keys"})
        return {}


KEYS = Keys()
