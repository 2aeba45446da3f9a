"""Finds the card of an agent at a URL that somebody typed: its base, its card, or where it is spoken to.

Network only, no database: what is found is a value.
"""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from directory import cards, signatures
from directory.exceptions import AccessDenied, CardInvalid, CardNotFound, InvalidAnswer, RemoteError
from directory.http import Answer, Authorizer, Client, aside, check_url, fetch, is_public, normal_form, open_client
from directory.signatures import Checked

WELL_KNOWN = "/.well-known/agent-card.json"
# Before 0.3.
OLDER = "/.well-known/agent.json"
MAX_LEVELS = 4
MAX_CARD_BYTES = 512 * 1024
READ_SECONDS = 10.0
REDIRECTS = 2


@dataclass(frozen=True, slots=True)
class Found:
    """A card, where it was, and what is known of it."""

    url: str
    card: dict[str, Any]
    interface: cards.Interface
    signature: Checked
    is_internal: bool
    etag: str = ""
    modified: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An address to look at; `is_parent` if it is above the URL that was typed."""

    url: str
    is_parent: bool = False
    is_well_known: bool = True


def candidates(url: str) -> list[Candidate]:
    """Where the card may be, most likely first."""
    parts = urlsplit(url)
    root = f"{parts.scheme}://{parts.netloc}"
    path = parts.path.rstrip("/")
    if path.endswith(".json") or "/.well-known/" in path:
        return [Candidate(url, is_well_known=False)]
    found = [Candidate(f"{root}{path}{name}") for name in (WELL_KNOWN, OLDER)]
    if path:
        found.append(Candidate(url, is_well_known=False))
    for _ in range(MAX_LEVELS):
        if not path:
            break
        path = path.rpartition("/")[0]
        found += [Candidate(f"{root}{path}{name}", is_parent=True) for name in (WELL_KNOWN, OLDER)]
    return found


async def discover(url: str, authorizer: Authorizer | None = None) -> Found:
    """The card for this URL, checked: its signatures, its addresses, and that we can speak to it.

    Raises RemoteError: AddressRefused, Unreachable, CardNotFound, CardInvalid, SignatureInvalid,
    NoCommonInterface, AccessDenied, ...
    """
    url = normal_form(url)
    is_internal = not await aside(is_public, url)
    async with open_client(
        authorizer=authorizer,
        public_only=not is_internal,
        read_seconds=READ_SECONDS,
        max_bytes=MAX_CARD_BYTES,
    ) as client:
        answer, document = await _search(client, url)
        return await _examine(client, answer, document, is_internal=is_internal)


async def read_again(
    url: str, authorizer: Authorizer | None = None, *, is_internal: bool, etag: str = "", modified: str = ""
) -> Found | None:
    """The card at an address that is known to have it; None when it has not changed. Raises RemoteError."""
    conditions = {"If-None-Match": etag, "If-Modified-Since": modified}
    headers = {"Accept": "application/json", **{name: value for name, value in conditions.items() if value}}
    async with open_client(
        authorizer=authorizer,
        public_only=not is_internal,
        read_seconds=READ_SECONDS,
        max_bytes=MAX_CARD_BYTES,
    ) as client:
        answer = await fetch(client, "GET", url, headers=headers, redirects=REDIRECTS)
        if answer.status == 304:
            return None
        if answer.status in {404, 410}:
            raise CardNotFound(f"There is no agent card at {url} any more.")
        return await _examine(client, answer, answer.check().json(), is_internal=is_internal)


async def _search(client: Client, url: str) -> tuple[Answer, Any]:
    """The first candidate that holds a card, with its decoded body."""
    refused: RemoteError | None = None
    other = ""
    for candidate in candidates(url):
        answer = await fetch(client, "GET", candidate.url, headers={"Accept": "application/json"}, redirects=REDIRECTS)
        try:
            document = answer.check().json()
        except AccessDenied as error:
            refused = refused or error
            continue
        except InvalidAnswer:
            continue
        if not cards.looks_like_card(document):
            if candidate.is_well_known and not candidate.is_parent:
                raise CardInvalid(f"What is at {answer.url} is not an agent card.")
            continue
        # A card above the address is that of another agent, unless it names the address.
        if candidate.is_parent and not cards.names(cards.as_dict(cards.parse(document)), url):
            other = other or answer.url
            continue
        return answer, document
    if refused:
        raise refused
    if other:
        raise CardNotFound(f"There is no agent card for {url}. {other} is one, but of another address: add it by that.")
    raise CardNotFound(f"There is no agent card at {url}, nor where the protocol says that it should be.")


async def _examine(client: Client, answer: Answer, document: Any, *, is_internal: bool) -> Found:
    message = cards.parse(document)
    signature = await signatures.check(client, answer.url, message, document)
    card = cards.as_dict(message)
    interface = cards.best_interface(card)
    # A public card must not lead inside, whatever the allowlist says for those who live there.
    await aside(check_url, interface.url, public_only=not is_internal)
    return Found(
        url=answer.url,
        card=card,
        interface=interface,
        signature=signature,
        is_internal=is_internal,
        etag=answer.headers.get("etag", "")[:200],
        modified=answer.headers.get("last-modified", "")[:60],
    )
