"""What whoever looks around finds: a catalog, a list of agents, and the key that cards are signed with."""

import asyncio
import base64
import json

import httpx
import jwt
import pytest
from a2a.client.card_resolver import parse_agent_card
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from directory import signatures
from directory.http import open_client
from directory.models import Agent


@pytest.fixture
def get(url):
    return lambda path, **kwargs: httpx.get(f"{url}/.well-known/{path}", **kwargs)


def pem(key):
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@pytest.fixture
def key_file(tmp_path, settings):
    def make(key):
        path = tmp_path / "card.pem"
        path.write_bytes(pem(key))
        settings.BUREAU_CARD_KEY_FILE = path

    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8",)
    return make


def test_the_catalog(get, url):
    response = get("api-catalog")
    ours, *apis = response.json()["linkset"]

    assert response.headers["content-type"].startswith("application/linkset+json")
    assert ours["anchor"] == f"{url}/.well-known/api-catalog"
    head = httpx.head(f"{url}/.well-known/api-catalog")
    assert head.headers["link"] == f'<{url}/.well-known/api-catalog>; rel="api-catalog"'
    assert f"{url}/a2a/echo/" in [item["href"] for item in ours["item"]]
    for api in apis:
        card = httpx.get(api["service-meta"][0]["href"]).json()
        assert card["supportedInterfaces"][0]["url"] == api["anchor"]


def test_the_list_of_agents(get, url):
    Agent.objects.filter(slug="directory").update(is_published=False)
    Agent.objects.filter(slug="file-lister").update(is_enabled=False)
    found = {agent["url"]: agent for agent in get("agents.json").json()["agents"]}

    assert f"{url}/a2a/directory/" not in found
    assert f"{url}/a2a/file-lister/" not in found
    echo = found[f"{url}/a2a/echo/"]
    assert (echo["name"], echo["skills"][0]["id"]) == ("Echo", "echo")
    assert httpx.get(echo["card"]).status_code == 200


@pytest.mark.parametrize("path", ["api-catalog", "agents.json", "jwks.json"])
def test_they_are_only_read(url, path):
    assert httpx.head(f"{url}/.well-known/{path}").status_code == 200
    refused = httpx.post(f"{url}/.well-known/{path}")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


def test_without_a_key_nothing_is_signed(get):
    assert get("jwks.json").json() == {"keys": []}
    assert "signatures" not in get("agent-card.json").json()


@pytest.mark.parametrize(
    "make",
    [
        lambda: ec.generate_private_key(ec.SECP256R1()),
        lambda: ec.generate_private_key(ec.SECP384R1()),
        lambda: rsa.generate_private_key(65537, 2048),
        ed25519.Ed25519PrivateKey.generate,
    ],
    ids=["ES256", "ES384", "RS256", "EdDSA"],
)
def test_a_signed_card_verifies(get, url, key_file, make):
    key_file(make())
    (key,) = get("jwks.json").json()["keys"]
    assert not {"d", "p", "q"} & set(key)
    document = get("agent-card.json").json()

    async def check():
        async with open_client() as client:
            card = parse_agent_card(dict(document))
            return await signatures.check(client, f"{url}/.well-known/agent-card.json", card, document)

    assert asyncio.run(check()).state == Agent.Signature.VERIFIED


def test_a_signed_card_verifies_to_the_letter_of_the_specification(get, key_file):
    """Over what was sent, without `signatures` and in canonical form: no type of the protocol is asked (8.4.3)."""
    key_file(ec.generate_private_key(ec.SECP256R1()))
    (key,) = get("jwks.json").json()["keys"]
    document = get("agent-card.json").json()
    signatures = document.pop("signatures")
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    payload = base64.urlsafe_b64encode(canonical).rstrip(b"=").decode()

    def verifies(signature):
        token = f"{signature['protected']}.{payload}.{signature['signature']}"
        try:
            return bool(jwt.api_jws.decode(token, jwt.PyJWK.from_dict(key), algorithms=["ES256"]))
        except jwt.InvalidSignatureError:
            return False

    assert [verifies(signature) for signature in signatures] == [False, True]
    assert "false" not in canonical.decode()
    for signature in signatures:
        header = jwt.get_unverified_header(f"{signature['protected']}..")
        assert (header["alg"], header["typ"], header["kid"]) == ("ES256", "JOSE", key["kid"])


def test_a_signed_card_stays_cached(get, key_file):
    key_file(ec.generate_private_key(ec.SECP256R1()))
    first = get("agent-card.json")
    again = get("agent-card.json", headers={"If-None-Match": first.headers["etag"]})

    assert first.content == get("agent-card.json").content
    assert again.status_code == 304


def test_a_key_that_cannot_be_used_is_said(key_file, tmp_path, settings):
    from bureau.checks import card_signing

    key_file(rsa.generate_private_key(65537, 1024))
    assert [problem.id for problem in card_signing(None)] == ["bureau.E010"]
    settings.BUREAU_CARD_KEY_FILE = tmp_path / "missing"
    assert [problem.id for problem in card_signing(None)] == ["bureau.E010"]
