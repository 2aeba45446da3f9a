"""Signed cards: whose key counts, and what becomes of a card that was changed after it was signed."""

import base64
import copy
import json

import jwt
import pytest
from a2a.types import AgentCard
from a2a.utils.signing import create_agent_card_signer
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf.json_format import MessageToDict, ParseDict
from jwt.algorithms import ECAlgorithm

from directory.enrolment import add_remote_agent, refresh_agent
from directory.exceptions import SignatureInvalid
from directory.models import Agent
from tests.support.remote_agents import RPC, V03, remote_agent

pytestmark = pytest.mark.django_db


class Signer:
    def __init__(self, kid="key-1"):
        self.kid = kid
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.jwks = {"keys": [ECAlgorithm.to_jwk(self.key.public_key(), as_dict=True) | {"kid": kid, "alg": "ES256"}]}

    def header(self, jku):
        return {"kid": self.kid, "alg": "ES256", "typ": "JOSE", **({"jku": jku} if jku else {})}

    def sign(self, card, jku):
        message = ParseDict(copy.deepcopy(card), AgentCard())
        return MessageToDict(create_agent_card_signer(self.key, self.header(jku))(message))

    def sign_as_sent(self, card, jku, *, without=()):
        """Over the members of a 0.3 card; a2a-sdk 0.3 leaves those out that have their default value."""
        signed = {name: value for name, value in card.items() if value not in ("", [], {}) and name not in without}
        payload = json.dumps(signed, sort_keys=True, separators=(",", ":"), ensure_ascii=bool(without))
        token = jwt.api_jws.encode(payload.encode(), self.key, algorithm="ES256", headers=self.header(jku))
        protected, _, signature = token.split(".")
        return card | {"signatures": [{"protected": protected, "signature": signature}]}


@pytest.fixture
def signer():
    return Signer()


@pytest.fixture
def remote(signer):
    """An agent that publishes the signer's key at its own host."""
    with remote_agent() as agent:
        agent.documents["/keys.json"] = signer.jwks
        yield agent


def test_a_good_signature_is_verified(remote, signer):
    remote.card = signer.sign(remote.card, f"{remote.url}/keys.json")
    agent = add_remote_agent(remote.url)
    assert agent.signature == Agent.Signature.VERIFIED
    assert "key-1" in agent.signature_note


@pytest.mark.parametrize("without", [(), ("protocolVersion", "preferredTransport")])
def test_a_good_signature_of_0_3_is_verified(signer, without):
    with remote_agent(interfaces=((RPC, V03),), name="Échø") as remote:
        remote.documents["/keys.json"] = signer.jwks
        remote.card = signer.sign_as_sent(remote.card, f"{remote.url}/keys.json", without=without)
        assert add_remote_agent(remote.url).signature == Agent.Signature.VERIFIED


@pytest.mark.parametrize("change", [{"description": "Something else."}, {"name": "Mallory"}])
def test_a_card_changed_after_signing_is_refused(remote, signer, change):
    remote.card = signer.sign(remote.card, f"{remote.url}/keys.json") | change
    with pytest.raises(SignatureInvalid):
        add_remote_agent(remote.url)
    assert not Agent.objects.exists()


def test_a_signature_by_another_key_of_the_same_name_is_refused(remote):
    remote.card = Signer().sign(remote.card, f"{remote.url}/keys.json")
    with pytest.raises(SignatureInvalid):
        add_remote_agent(remote.url)
    assert not Agent.objects.exists()


def test_a_shared_secret_signs_nothing(remote):
    secret = {"kty": "oct", "kid": "key-1", "k": base64.urlsafe_b64encode(b"s" * 32).decode(), "alg": "HS256"}
    remote.documents["/keys.json"] = {"keys": [secret]}
    payload = json.dumps(remote.card, sort_keys=True, separators=(",", ":")).encode()
    header = {"kid": "key-1", "jku": f"{remote.url}/keys.json"}
    protected, _, signature = jwt.api_jws.encode(payload, b"s" * 32, algorithm="HS256", headers=header).split(".")
    remote.card |= {"signatures": [{"protected": protected, "signature": signature}]}
    assert add_remote_agent(remote.url).signature == Agent.Signature.UNVERIFIED


def test_keys_of_another_host_prove_nothing(remote, signer):
    remote.card = signer.sign(remote.card, "http://keys.invalid/keys.json")
    agent = add_remote_agent(remote.url)
    assert agent.signature == Agent.Signature.UNVERIFIED
    assert "own host" in agent.signature_note


def test_keys_at_another_port_of_its_host_prove_nothing(remote, signer):
    with remote_agent() as other:
        other.documents["/keys.json"] = signer.jwks
        remote.card = signer.sign(remote.card, f"{other.url}/keys.json")
        assert add_remote_agent(remote.url).signature == Agent.Signature.UNVERIFIED
    assert not other.requests


def test_a_key_id_that_is_none_is_refused(remote, signer):
    remote.documents["/keys.json"] = signer.jwks
    jku = f"{remote.url}/keys.json"
    remote.card = signer.sign(remote.card, jku)
    good = remote.card["signatures"][0]
    odd = {"protected": encoded({"kid": ["key-1"], "jku": jku, "alg": "ES256"}), "signature": good["signature"]}
    remote.card["signatures"] = [odd, good | {"signature": "AAAA"}]
    with pytest.raises(SignatureInvalid):
        add_remote_agent(remote.url)
    assert not Agent.objects.exists()


@pytest.mark.parametrize("keys", [None, {}, {"keys": "none"}, {"keys": [{"kid": "key-1"}, 7]}, [1]])
def test_keys_that_cannot_be_had_verify_nothing(remote, signer, keys):
    remote.documents["/keys.json"] = keys
    remote.card = signer.sign(remote.card, f"{remote.url}/keys.json")
    assert add_remote_agent(remote.url).signature == Agent.Signature.UNVERIFIED


def encoded(document):
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode()


@pytest.mark.parametrize(
    "protected", ["", "!!!", "eyJ", encoded([1]), encoded({"kid": ["key-1"]}), encoded({"jku": 7})]
)
def test_a_signature_that_cannot_be_read_verifies_nothing(remote, protected):
    remote.card |= {"signatures": [{"protected": protected, "signature": "x"}]}
    assert add_remote_agent(remote.url).signature == Agent.Signature.UNVERIFIED


def test_losing_the_signature_is_for_an_operator_to_see(remote, signer):
    unsigned = remote.card
    remote.card = signer.sign(unsigned, f"{remote.url}/keys.json")
    agent = add_remote_agent(remote.url)
    remote.card = unsigned
    revision = refresh_agent(agent)
    assert revision.grounds == ["security"]
    assert "verified" in revision.changes[0]
    agent.refresh_from_db()
    assert agent.quarantined_at
    assert agent.signature == Agent.Signature.VERIFIED


def test_a_broken_signature_puts_it_in_quarantine(remote, signer):
    remote.card = signer.sign(remote.card, f"{remote.url}/keys.json")
    agent = add_remote_agent(remote.url)
    remote.card |= {"description": "Somebody else wrote this."}
    with pytest.raises(SignatureInvalid):
        refresh_agent(agent)
    agent.refresh_from_db()
    assert "signature" in agent.quarantine_reason
    assert agent.description == "Repeats the message."


def test_signing_anew_is_no_change(remote, signer):
    """ES256 gives another signature each time."""
    plain = remote.card
    remote.card = signer.sign(plain, f"{remote.url}/keys.json")
    agent = add_remote_agent(remote.url)
    remote.card = signer.sign(plain, f"{remote.url}/keys.json")
    assert refresh_agent(agent) is None
    agent.refresh_from_db()
    assert agent.quarantined_at is None
