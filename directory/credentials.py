"""What remote agents know us by: encrypted at rest, decrypted only to be sent, never shown or logged.

The key is derived from SECRET_KEY; with SECRET_KEY_FALLBACKS what was encrypted under an earlier one can
still be read, and `rotate` encrypts everything anew.
"""

import base64
import json
import re
import time
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import quote_plus

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.db import transaction

from directory.exceptions import AccessDenied, CredentialInvalid, CredentialUnreadable, InvalidAnswer
from directory.http import Authorizer, check_url, fetch, is_public, open_client, origin
from directory.models import Agent, Credential
from directory.untrusted import clean_line

DEFAULT_HEADER = "X-API-Key"
# A token is fetched anew this long before it ends, so that it does not end on the way.
SKEW_SECONDS = 30.0
DEFAULT_TOKEN_SECONDS = 300.0
MAX_SECRET = 8192
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
# These belong to the message, not to whoever sends it.
_RESERVED_HEADERS = {"host", "content-length", "content-type", "connection", "transfer-encoding", "a2a-version"}
_VISIBLE = re.compile(r"[\x20-\x7e]+")


@dataclass(frozen=True, slots=True)
class Secret:
    """A credential in the clear, as it was entered. Its text form does not show the secret."""

    kind: str
    secret: str = field(repr=False)
    header: str = ""
    username: str = ""
    token_url: str = ""
    scope: str = ""

    def check(self) -> None:
        """Raises CredentialInvalid with what is missing or cannot be sent."""
        if self.kind not in Credential.Kind.values:
            raise CredentialInvalid(f"A credential is one of: {', '.join(Credential.Kind.values)}.")
        if not _VISIBLE.fullmatch(self.secret) or len(self.secret) > MAX_SECRET:
            raise CredentialInvalid("The secret is empty, too long, or holds what cannot be sent in a header.")
        if self.kind == Credential.Kind.API_KEY:
            header = self.header or DEFAULT_HEADER
            if not _HEADER.fullmatch(header) or header.lower() in _RESERVED_HEADERS:
                raise CredentialInvalid(f"{header[:100]!r} cannot be the header of an API key.")
        if self.kind in {Credential.Kind.BASIC, Credential.Kind.OAUTH2}:
            word = "user name" if self.kind == Credential.Kind.BASIC else "client id"
            if not self.username or len(self.username) > 200 or not _VISIBLE.fullmatch(self.username):
                raise CredentialInvalid(f"Give the {word}.")
        if self.kind == Credential.Kind.BASIC and ":" in self.username:
            raise CredentialInvalid("A user name may hold no colon.")
        if self.kind == Credential.Kind.OAUTH2 and not self.token_url:
            raise CredentialInvalid("Give the address where tokens are issued (token URL).")


# --- Storing -------------------------------------------------------------------------------------


def set_credential(agent: Agent, secret: Secret) -> Credential:
    """Store it for this agent, in place of what there was. Resolves names, so not within a transaction.

    Raises CredentialInvalid, and AddressRefused or Unreachable for addresses that cannot be used.
    """
    secret.check()
    check_encrypted(agent.url)
    if secret.token_url:
        check_encrypted(check_url(secret.token_url))
    return store(agent, secret)


def store(agent: Agent, secret: Secret) -> Credential:
    """The writing part of `set_credential`, for a secret that has been checked."""
    fields = {
        "kind": secret.kind,
        "header": (secret.header or DEFAULT_HEADER) if secret.kind == Credential.Kind.API_KEY else "",
        "username": secret.username,
        "token_url": secret.token_url,
        "scope": clean_line(secret.scope, 500),
        "secret": encrypt(agent.pk, secret.secret),
    }
    credential, _ = Credential.objects.update_or_create(agent=agent, defaults=fields)
    return credential


def remove_credential(agent: Agent) -> bool:
    """Forget it for good; False when there was none."""
    return bool(Credential.objects.filter(agent=agent).delete()[0])


def check_encrypted(url: str) -> None:
    """Raises CredentialInvalid where a secret would cross the public network in the clear."""
    if url.startswith("http://") and is_public(url):
        raise CredentialInvalid(f"A credential is not sent to {clean_line(url, 100)}: it is public, and not https.")


def rotate() -> int:
    """Encrypt the secret of every agent with the newest key; returns how many. Raises CredentialUnreadable."""
    with transaction.atomic():
        rows = list(Credential.objects.select_for_update().order_by("pk"))
        for row in rows:
            renewed = encrypt(row.agent_id, decrypt(row.agent_id, row.secret))
            Credential.objects.filter(pk=row.pk).update(secret=renewed)
    return len(rows)


# --- Encryption ----------------------------------------------------------------------------------


def encrypt(owner: int | str, secret: str) -> str:
    """Bound to its owner, an agent's id or a word for another row: copied elsewhere, it can't be read."""
    return _box().encrypt(json.dumps([owner, secret]).encode()).decode()


def decrypt(owner: int | str, text: str) -> str:
    """Raises CredentialUnreadable."""
    try:
        bound_to, secret = json.loads(_box().decrypt(text.encode()))
    except (InvalidToken, ValueError):
        raise CredentialUnreadable from None
    if bound_to != owner:
        raise CredentialUnreadable
    return str(secret)


def _box() -> MultiFernet:
    return _derived((settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS))


@lru_cache(maxsize=4)
def _derived(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(base64.urlsafe_b64encode(_key(key))) for key in keys])


def _key(secret_key: str) -> bytes:
    kdf = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"bureau: credentials of remote agents")
    return kdf.derive(secret_key.encode())


# --- Sending -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same header fields each time."""

    origin: str
    fields: dict[str, str] = field(repr=False)

    async def headers(self, *, renew: bool) -> dict[str, str] | None:
        return None if renew else self.fields


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """OAuth 2 client credentials (RFC 6749, section 4.4). Tokens are kept in this process until they end."""

    origin: str
    token_url: str
    client_id: str
    secret: str = field(repr=False)
    scope: str = ""

    async def headers(self, *, renew: bool) -> dict[str, str] | None:
        token, until = _tokens.get(self, ("", 0.0))
        if renew or time.monotonic() >= until:
            token = await self._fetch()
        return {"Authorization": f"Bearer {token}"}

    async def _fetch(self) -> str:
        form = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        # RFC 6749, section 2.3.1: both are encoded as in a form first.
        account = _basic(quote_plus(self.client_id), quote_plus(self.secret))
        headers = {"Accept": "application/json", **account}
        async with open_client() as client:
            answer = await fetch(client, "POST", self.token_url, headers=headers, form=form)
        if 400 <= answer.status < 500:
            raise AccessDenied(f"The token server refused our client credentials (HTTP {answer.status}).")
        document = answer.check().json()
        token = document.get("access_token") if isinstance(document, dict) else None
        if not isinstance(token, str) or not _VISIBLE.fullmatch(token):
            raise InvalidAnswer("The token server gave no token.")
        seconds = document.get("expires_in")
        lasts = float(seconds) if isinstance(seconds, int | float) else DEFAULT_TOKEN_SECONDS
        _tokens[self] = (token, time.monotonic() + max(0.0, lasts - SKEW_SECONDS))
        return token


_tokens: dict[ClientCredentials, tuple[str, float]] = {}


def _basic(username: str, secret: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{username}:{secret}".encode()).decode()}


def authorizer(secret: Secret, url: str) -> Authorizer:
    """What puts this credential on requests to the origin of `url`, and on no others."""
    place = origin(url)
    match secret.kind:
        case Credential.Kind.API_KEY:
            return Fixed(place, {secret.header or DEFAULT_HEADER: secret.secret})
        case Credential.Kind.BEARER:
            return Fixed(place, {"Authorization": f"Bearer {secret.secret}"})
        case Credential.Kind.BASIC:
            return Fixed(place, _basic(secret.username, secret.secret))
        case _:
            return ClientCredentials(place, secret.token_url, secret.username, secret.secret, secret.scope)


def stored(agent: Agent) -> Secret | None:
    """The agent's credential in the clear, or None. Raises CredentialUnreadable."""
    row = Credential.objects.filter(agent=agent).first()
    if row is None:
        return None
    return Secret(
        kind=row.kind,
        secret=decrypt(row.agent_id, row.secret),
        header=row.header,
        username=row.username,
        token_url=row.token_url,
        scope=row.scope,
    )


def authorizer_of(agent: Agent, url: str) -> Authorizer | None:
    """For requests to this agent at `url`; None if it has no credential. Raises CredentialUnreadable."""
    secret = stored(agent)
    return authorizer(secret, url) if secret else None
