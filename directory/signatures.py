"""Signatures of agent cards (A2A 1.0, section 8.4: JWS over the canonical form of the card).

A signature says that the holder of a key wrote the card. Which key counts is the question: only those
that the card's own host publishes are believed, since anybody can sign a copy with a key of their own.
"""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from a2a.types.a2a_pb2 import AgentCard

from directory.exceptions import AddressRefused, RemoteError, SignatureInvalid
from directory.http import Client, fetch, origin
from directory.models import Agent

# Asymmetric ones only: with a shared secret anybody who can check could also sign.
ALGORITHMS = ["ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "EdDSA"]
MAX_SIGNATURES = 5


@dataclass(frozen=True, slots=True)
class Checked:
    """What is known of a card's signatures: a value of `Agent.Signature`, and why or by whom."""

    state: str
    note: str = ""


async def check(client: Client, card_url: str, card: AgentCard, document: Mapping[str, Any]) -> Checked:
    """Verify the signatures of a card that came as `document` from `card_url`.

    "" without any, "verified" when one holds, "unverified" when no key could be had. Raises
    SignatureInvalid when there is a key and no signature fits.
    """
    if not card.signatures:
        return Checked(Agent.Signature.NONE)
    headers = list(_headers(card))
    places = {jku for header in headers if isinstance(jku := header.get("jku"), str) and _same_origin(jku, card_url)}
    if not places:
        return Checked(Agent.Signature.UNVERIFIED, "Its signatures name no key at its own host.")
    keys: dict[str, Any] = {}
    for place in sorted(places):
        try:
            keys |= usable_keys((await fetch(client, "GET", place, redirects=1)).check().json())
        except RemoteError as error:
            return Checked(Agent.Signature.UNVERIFIED, f"Its keys could not be read: {error}"[:200])
    known = [kid for header in headers if isinstance(kid := header.get("kid"), str) and kid in keys]
    if not known:
        return Checked(Agent.Signature.UNVERIFIED, "The keys at its host are not those it was signed with.")
    _verify(card, document, keys)
    return Checked(Agent.Signature.VERIFIED, f"Signed with key {known[0]} of {origin(card_url)}."[:200])


def _same_origin(url: str, other: str) -> bool:
    try:
        return origin(url) == origin(other)
    except AddressRefused:
        return False


def _headers(card: AgentCard) -> Iterator[dict[str, Any]]:
    """The protected headers that can be read."""
    for signature in list(card.signatures)[:MAX_SIGNATURES]:
        text = signature.protected
        try:
            header = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        except (binascii.Error, ValueError, RecursionError):
            continue
        if isinstance(header, dict):
            yield header


def usable_keys(document: Any) -> dict[str, Any]:
    """The usable keys of a JWK set, by id."""
    from jwt import PyJWK, PyJWTError

    found = {}
    entries = document.get("keys") if isinstance(document, dict) else None
    for entry in entries if isinstance(entries, list) else []:
        if not isinstance(entry, dict) or entry.get("kty") == "oct" or not isinstance(entry.get("kid"), str):
            continue
        try:
            found[entry["kid"]] = PyJWK.from_dict(entry)
        except (PyJWTError, ValueError, TypeError):
            continue
    return found


def _verify(card: AgentCard, document: Mapping[str, Any], keys: Mapping[str, Any]) -> None:
    """Raises SignatureInvalid unless a signature fits the card, in the form of 1.0 or as it was sent (0.3)."""
    from a2a.utils.signing import SignatureVerificationError, create_signature_verifier
    from jwt import PyJWTError

    def key(kid: str | None, jku: str | None) -> Any:
        if not isinstance(kid, str) or kid not in keys:
            raise PyJWTError("unknown key")
        return keys[kid]

    try:
        create_signature_verifier(key, ALGORITHMS)(card)
    except SignatureVerificationError:
        if not _fits_as_sent(document, keys):
            raise SignatureInvalid from None


def _fits_as_sent(document: Mapping[str, Any], keys: Mapping[str, Any]) -> bool:
    """Whether a signature is over the members that were sent: cards of 0.3 have other ones than 1.0's."""
    from jwt import PyJWTError, api_jws

    signatures = document.get("signatures")
    for entry in (signatures if isinstance(signatures, list) else [])[:MAX_SIGNATURES]:
        for payload in _payloads(document):
            try:
                token = f"{entry['protected']}.{payload}.{entry['signature']}"
                key = keys[api_jws.get_unverified_header(token)["kid"]]
                api_jws.decode(token, key, algorithms=ALGORITHMS)
            except (PyJWTError, KeyError, TypeError, ValueError):
                continue
            return True
    return False


def _payloads(document: Mapping[str, Any]) -> Iterator[str]:
    """What may have been signed, encoded: all members, or as a2a-sdk 0.3 has it, those without a default value."""
    from a2a.compat.v0_3.types import AgentCard as OlderCard
    from pydantic import ValidationError

    forms: list[Any] = [{name: value for name, value in document.items() if name != "signatures"}]
    try:
        older = OlderCard.model_validate(document)
    except (ValidationError, RecursionError):
        older = None
    if older:
        forms.append(older.model_dump(exclude={"signatures"}, exclude_defaults=True, exclude_none=True, by_alias=True))
    for form in map(_without_empty, forms):
        for is_ascii in (False, True):
            text = json.dumps(form, ensure_ascii=is_ascii, sort_keys=True, separators=(",", ":"))
            yield base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def _without_empty(value: Any) -> Any:
    """Without the members that an encoder may write or leave out: "", [] and {}."""
    if isinstance(value, dict):
        inner = {key: _without_empty(item) for key, item in value.items()}
        return {key: item for key, item in inner.items() if item not in ("", [], {}, None)}
    if isinstance(value, list):
        return [item for item in map(_without_empty, value) if item not in ("", [], {}, None)]
    return value
