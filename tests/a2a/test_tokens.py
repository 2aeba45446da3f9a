"""Bearer tokens of a configured issuer, whose keys are on a real server."""

import time

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from bureau.a2a.tokens import KEYS
from directory.models import Agent
from tasks.models import Task
from tests.a2a.peer import Peer, envelope, message
from tests.support.remote_agents import remote_agent
from tests.support.waiting import PATIENCE

ISSUER = "https://issuer.example.org"
AUDIENCE = "bureau"
KEY = rsa.generate_private_key(65537, 2048)
OTHER = rsa.generate_private_key(65537, 2048)


def published(key, kid="k1"):
    return RSAAlgorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": kid, "alg": "RS256"}


@pytest.fixture
def issuer(settings, monkeypatch):
    for name in ("WAIT_SECONDS", "PAUSE_SECONDS"):
        monkeypatch.setattr(f"bureau.a2a.tokens.{name}", 10 * PATIENCE)
    settings.BUREAU_JWT_ISSUER = ISSUER
    settings.BUREAU_JWT_AUDIENCE = AUDIENCE
    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8",)
    settings.BUREAU_ALLOW_ANONYMOUS = False
    with remote_agent() as server:
        server.documents["/keys.json"] = {"keys": [published(KEY)]}
        settings.BUREAU_JWT_JWKS_URL = f"{server.url}/keys.json"
        KEYS.forget()
        yield server
    KEYS.forget()


def token(key=KEY, kid="k1", algorithm="RS256", **claims):
    given = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "alice",
        "exp": time.time() + 10 * PATIENCE,
        "scope": "send read cancel",
    }
    given = {name: value for name, value in (given | claims).items() if value is not None}
    return jwt.encode(given, key, algorithm=algorithm, headers={"kid": kid})


@pytest.fixture
def bearer(url, issuer):
    """`bearer(token(...))`"""
    peers = []

    def make(text):
        peers.append(Peer(url, text, slug="echo"))
        return peers[-1]

    yield make
    for peer in peers:
        peer.close()


def submit(peer):
    return peer.post(envelope("SendMessage", message("x", configuration={"returnImmediately": True})))


def test_the_subject_owns_what_it_sends(bearer):
    task = submit(bearer(token())).json()["result"]["task"]

    assert Task.objects.get().owner == "token:alice"
    assert bearer(token(name="Alice A.")).result("GetTask", {"id": task["id"]})["id"] == task["id"]
    assert bearer(token(sub="bob")).error("GetTask", {"id": task["id"]})["code"] == -32001


@pytest.mark.parametrize(
    "wrong",
    [
        {"exp": time.time() - 3600},
        {"exp": None},
        {"nbf": time.time() + 100_000},
        {"aud": "another"},
        {"aud": None},
        {"iss": "https://another.example.org"},
        {"sub": None},
        {"sub": ""},
        {"key": OTHER},
        {"kid": "another"},
        {"key": "x" * 40, "algorithm": "HS256"},
        {"pad": "x" * 9000},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_is_not_valid_is_refused(bearer, wrong):
    response = submit(bearer(token(**wrong)))

    assert response.status_code == 401
    assert not Task.objects.exists()


def test_a_token_without_a_signature_is_refused(bearer):
    unsigned = jwt.encode({"iss": ISSUER, "aud": AUDIENCE, "sub": "a", "exp": time.time() + 60}, None, algorithm="none")

    assert submit(bearer(unsigned)).status_code == 401


def test_a_clock_that_is_a_little_off(bearer, settings):
    settings.BUREAU_JWT_SKEW_SECONDS = 30.0

    assert submit(bearer(token(exp=time.time() - 5, nbf=time.time() + 5))).status_code == 200


@pytest.mark.parametrize("claim", [{"scope": "read profile"}, {"scope": None, "scp": ["read"]}, {"scope": None}])
def test_its_scopes_say_what_it_may(bearer, claim):
    peer = bearer(token(**claim))

    assert submit(peer).status_code == 403
    assert peer.post(envelope("ListTasks", {})).status_code == (200 if claim != {"scope": None} else 403)
    assert not Task.objects.exists()


def test_scopes_with_a_prefix(bearer, settings):
    settings.BUREAU_JWT_SCOPE_PREFIX = "bureau:"

    assert submit(bearer(token())).status_code == 403
    assert submit(bearer(token(scope="bureau:send"))).status_code == 200


@pytest.mark.parametrize(
    ("claim", "echo", "directory"),
    [
        (["echo"], True, False),
        ("directory echo", True, True),
        (["directory", 7], False, True),
        ("*", True, True),
        (["nobody"], False, False),
    ],
)
def test_a_claim_may_name_the_agents(bearer, settings, claim, echo, directory):
    settings.BUREAU_JWT_AGENTS_CLAIM = "bureau_agents"
    peer = bearer(token(bureau_agents=claim))

    for slug, is_there in (("echo", echo), ("directory", directory)):
        body = envelope("SendMessage", message("x", configuration={"returnImmediately": True}))
        reply = peer.post(body, path=f"/a2a/{slug}/").json()
        assert ("result" in reply) is is_there
        assert is_there or reply["error"]["code"] == -32004
    assert Task.objects.count() == echo + directory


@pytest.mark.parametrize("claim", [None, [], "", [7], {"echo": True}, 1])
def test_a_token_that_names_no_agent_is_refused_where_it_has_to(bearer, settings, claim):
    settings.BUREAU_JWT_AGENTS_CLAIM = "bureau_agents"

    assert submit(bearer(token(bureau_agents=claim))).status_code == 401
    assert not Task.objects.exists()


def test_keys_are_read_once_and_again_for_a_new_one(bearer, issuer, monkeypatch):
    peer = bearer(token())
    submit(peer)
    submit(peer)
    issuer.documents["/keys.json"] = {"keys": [published(OTHER, "k2")]}
    new = token(OTHER, "k2")
    assert submit(bearer(new)).status_code == 401
    monkeypatch.setattr("bureau.a2a.tokens.PAUSE_SECONDS", 0.0)
    assert submit(bearer(new)).status_code == 200
    assert [request["path"] for request in issuer.requests] == ["/keys.json"] * 2


def test_keys_that_cannot_be_read_let_nobody_in(bearer, settings):
    settings.BUREAU_JWT_JWKS_URL = "http://127.0.0.1:9/keys.json"

    assert submit(bearer(token())).status_code == 401


def test_a_long_subject_fits(bearer):
    assert submit(bearer(token(sub="x" * 500))).status_code == 200
    assert Task.objects.get().owner.startswith("token:sha256:")


def test_api_keys_go_on(bearer, make_key):
    assert submit(bearer(make_key("client"))).status_code == 200


def test_the_card_declares_it(bearer, url):
    import httpx

    card = httpx.get(f"{url}/.well-known/agent-card.json").json()

    assert card["securitySchemes"]["token"]["httpAuthSecurityScheme"]["bearerFormat"] == "JWT"
    assert {"schemes": {"token": {}}} in card["securityRequirements"]
    assert Agent.objects.exists()
