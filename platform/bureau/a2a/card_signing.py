"""Signatures of our own cards (A2A 1.0, section 8.4) with the key in BUREAU_CARD_KEY_FILE, and its public half."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from a2a.types import a2a_pb2 as pb
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, SECP384R1, SECP521R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from django.conf import settings

if TYPE_CHECKING:
    from jwt.algorithms import Algorithm

CURVES = {SECP256R1: "ES256", SECP384R1: "ES384", SECP521R1: "ES512"}
# RFC 7638: the members that a thumbprint is made of.
MEMBERS = {"EC": ("crv", "kty", "x", "y"), "RSA": ("e", "kty", "n"), "OKP": ("crv", "kty", "x")}


class CardKeyUnusable(ValueError):
    """BUREAU_CARD_KEY_FILE holds no private key (PEM) of a kind that cards can be signed with."""

    def __init__(self) -> None:
        super().__init__(self.__doc__)


class CardKey(NamedTuple):
    """The key that cards are signed with. `public` is its JWK."""

    private: Any
    algorithm: str
    public: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.public["kid"])


def card_key() -> CardKey | None:
    """The configured key, or None. Raises CardKeyUnusable, OSError."""
    path: Path | None = settings.BUREAU_CARD_KEY_FILE
    return _load(path.read_bytes()) if path else None


def sign(card: pb.AgentCard, key: CardKey, keys_url: str) -> None:
    """Add a signature to the card, which says where to find the key."""
    from a2a.utils.signing import ProtectedHeader, create_agent_card_signer

    header: ProtectedHeader = {"alg": key.algorithm, "kid": key.id, "jku": keys_url, "typ": "JOSE"}
    create_agent_card_signer(key.private, header)(card)


def sign_document(document: Mapping[str, Any], key: CardKey, keys_url: str) -> dict[str, Any]:
    """A signature over these members as they are, which are more than those of 1.0.

    `sign` covers what is left of a card when a reader of 1.0 has dropped what it does not know; who reads section
    8.4.3 to the letter drops nothing but defaults, of which there must be none, and `signatures`.
    """
    from jwt import api_jws

    members = {name: value for name, value in document.items() if name != "signatures"}
    # As RFC 8785 has it: there are no numbers in a card, and all names are ASCII.
    payload = json.dumps(members, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    header = {"kid": key.id, "jku": keys_url, "typ": "JOSE"}
    protected, _, signature = api_jws.encode(payload, key.private, key.algorithm, headers=header).split(".")
    return {"protected": protected, "signature": signature}


@lru_cache(maxsize=2)
def _load(pem: bytes) -> CardKey:
    try:
        private = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise CardKeyUnusable from None
    algorithm = _algorithm(private)
    public = {name: value for name, value in _jwk(algorithm, private).items() if value}
    thumbprint = json.dumps({name: public[name] for name in MEMBERS[public["kty"]]}, separators=(",", ":"))
    kid = base64.urlsafe_b64encode(hashlib.sha256(thumbprint.encode()).digest()).rstrip(b"=").decode()
    return CardKey(private, algorithm, {**public, "kid": kid, "alg": algorithm, "use": "sig"})


def _algorithm(private: Any) -> str:
    if isinstance(private, EllipticCurvePrivateKey) and type(private.curve) in CURVES:
        return CURVES[type(private.curve)]
    if isinstance(private, RSAPrivateKey) and private.key_size >= 2048:
        return "RS256"
    if isinstance(private, Ed25519PrivateKey):
        return "EdDSA"
    raise CardKeyUnusable


def _jwk(algorithm: str, private: Any) -> dict[str, Any]:
    """The public half."""
    from jwt.algorithms import get_default_algorithms

    kind: Algorithm = get_default_algorithms()[algorithm]
    found: dict[str, Any] = json.loads(kind.to_jwk(private.public_key()))
    found.pop("key_ops", None)
    return found
