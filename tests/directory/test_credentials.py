"""Credentials: kept encrypted, sent where they belong, shown nowhere."""

import asyncio
import logging

import pytest
from django.core import serializers
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from directory import credentials, http
from directory.credentials import Secret, authorizer_of, remove_credential, rotate, set_credential, stored
from directory.enrolment import add_remote_agent
from directory.exceptions import AccessDenied, AddressRefused, CredentialInvalid, CredentialUnreadable, InvalidAnswer
from directory.models import Agent, Credential
from tests.support.remote_agents import remote_agent, serve

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]

API_KEY = Secret("api_key", "s3cret-value")
BEARER = Secret("bearer", "s3cret-value")
BASIC = Secret("basic", "s3cret-value", username="alice")


@pytest.fixture
def remote():
    with remote_agent(key="s3cret-value") as agent:
        yield agent


def sent(agent, path="/rpc"):
    """The headers of a request to the agent's server."""

    authorizer = authorizer_of(agent, agent.url)

    async def post():
        async with http.open_client(authorizer=authorizer) as client:
            return await http.fetch(client, "POST", http.origin(agent.url) + path)

    return asyncio.run(post())


@pytest.mark.parametrize(
    ("secret", "header", "value"),
    [
        (API_KEY, "x-api-key", "s3cret-value"),
        (Secret("api_key", "s3cret-value", header="X-Other"), "x-other", "s3cret-value"),
        (BEARER, "authorization", "Bearer s3cret-value"),
        (BASIC, "authorization", "Basic YWxpY2U6czNjcmV0LXZhbHVl"),
    ],
)
def test_it_is_sent(remote, agent, secret, header, value):
    set_credential(agent, secret)
    sent(agent)
    assert remote.requests[-1]["headers"][header] == value


def test_it_is_encrypted_at_rest_and_shown_nowhere(agent, caplog):
    caplog.set_level(logging.DEBUG)
    set_credential(agent, API_KEY)
    sent(agent)
    row = Credential.objects.get()
    assert "s3cret-value" not in serializers.serialize("json", [row])
    assert "s3cret-value" not in repr(API_KEY) + repr(stored(agent)) + repr(authorizer_of(agent, agent.url)) + str(row)
    assert "s3cret-value" not in caplog.text
    assert stored(agent) == Secret("api_key", "s3cret-value", header="X-API-Key")


def test_a_new_one_takes_the_place_of_the_old(agent):
    set_credential(agent, BASIC)
    set_credential(agent, BEARER)
    assert stored(agent) == BEARER
    assert remove_credential(agent)
    assert not remove_credential(agent)
    assert stored(agent) is None
    assert authorizer_of(agent, agent.url) is None


def test_it_can_be_given_when_the_agent_is_added(remote):
    agent = add_remote_agent(remote.url, secret=API_KEY)
    assert stored(agent).secret == "s3cret-value"


BAD = {
    "no kind": Secret("password", "x"),
    "no secret": Secret("bearer", ""),
    "a line break": Secret("bearer", "x\r\nHost: evil"),
    "not ASCII": Secret("bearer", "schlüssel"),
    "too long": Secret("bearer", "x" * 9000),
    "no header name": Secret("api_key", "x", header="no good"),
    "a reserved header": Secret("api_key", "x", header="Host"),
    "no user": Secret("basic", "x"),
    "a colon": Secret("basic", "x", username="a:b"),
    "no client id": Secret("oauth2", "x", token_url="https://id.example/token"),
    "no token URL": Secret("oauth2", "x", username="me"),
}


@pytest.mark.parametrize("case", BAD)
def test_it_refuses_what_cannot_be_sent(agent, case):
    with pytest.raises(CredentialInvalid):
        set_credential(agent, BAD[case])
    assert not Credential.objects.exists()


def test_it_refuses_to_send_in_the_clear_across_the_public_network(agent, remote):
    Agent.objects.update(url="http://93.184.216.34/rpc")
    agent.refresh_from_db()
    with pytest.raises(CredentialInvalid, match="not https"):
        set_credential(agent, BEARER)
    with pytest.raises(CredentialInvalid, match="not https"):
        add_remote_agent("http://93.184.216.34/", secret=BEARER)
    assert not Credential.objects.exists()


def test_a_token_url_is_checked_like_any_other(agent, settings):
    with pytest.raises(AddressRefused):
        set_credential(agent, Secret("oauth2", "x", username="me", token_url="https://10.0.0.1/token"))
    assert not Credential.objects.exists()


# --- Keys ----------------------------------------------------------------------------------------


def test_a_new_secret_key_reads_what_the_old_one_wrote(agent, settings):
    set_credential(agent, BEARER)
    old = settings.SECRET_KEY
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "a new one", [old]
    assert stored(agent) == BEARER
    assert rotate() == 1
    settings.SECRET_KEY_FALLBACKS = []
    assert stored(agent) == BEARER


def test_without_its_key_it_cannot_be_read(agent, settings):
    set_credential(agent, BEARER)
    before = Credential.objects.values().get()
    settings.SECRET_KEY = "another"
    with pytest.raises(CredentialUnreadable):
        stored(agent)
    with pytest.raises(CredentialUnreadable):
        rotate()
    assert Credential.objects.values().get() == before


def test_it_cannot_be_read_at_another_agent(agent):
    set_credential(agent, BEARER)
    other = Agent.objects.create(slug="other", name="Other", kind="remote")
    Credential.objects.update(agent=other)
    with pytest.raises(CredentialUnreadable):
        stored(other)


# --- OAuth 2 -------------------------------------------------------------------------------------


class TokenServer:
    def __init__(self):
        self.requests = []
        # Instead of a new token each time.
        self.answer = None
        self.lasts = 3600
        self.status = 200

    async def token(self, request):
        form = (await request.body()).decode()
        self.requests.append((request.headers["authorization"], form))
        numbered = {"access_token": f"token-{len(self.requests)}", "token_type": "Bearer", "expires_in": self.lasts}
        return JSONResponse(numbered if self.answer is None else self.answer, status_code=self.status)


@pytest.fixture
def issuer():
    credentials._tokens.clear()
    server = TokenServer()
    with serve(Starlette(routes=[Route("/token", server.token, methods=["POST"])])) as url:
        server.url = f"{url}/token"
        yield server


@pytest.fixture
def oauth(agent, issuer):
    set_credential(agent, Secret("oauth2", "s3 cret", username="me", token_url=issuer.url, scope="read write"))
    return agent


def test_a_token_is_fetched_once_and_kept(remote, oauth, issuer):
    sent(oauth, "/elsewhere")
    sent(oauth, "/elsewhere")
    # The test server wants the key itself, and said no: a fresh token was tried each time.
    assert remote.requests[-1]["headers"]["authorization"].startswith("Bearer token-")
    authorization, form = issuer.requests[0]
    assert authorization == "Basic bWU6czMrY3JldA=="
    assert form == "grant_type=client_credentials&scope=read+write"


def test_a_token_that_is_accepted_is_not_fetched_again(issuer):
    with remote_agent(key="token-1") as remote:
        agent = add_remote_agent(remote.url)
        set_credential(agent, Secret("oauth2", "x", username="me", token_url=issuer.url))
        assert sent(agent, "/elsewhere").status == 405
        assert sent(agent, "/elsewhere").status == 405
    assert len(issuer.requests) == 1


def test_a_refused_token_is_renewed_once(issuer):
    with remote_agent(key="token-2") as remote:
        agent = add_remote_agent(remote.url)
        set_credential(agent, Secret("oauth2", "x", username="me", token_url=issuer.url))
        assert sent(agent, "/elsewhere").status == 405
    assert len(issuer.requests) == 2


def test_a_token_about_to_end_is_not_used(oauth, issuer):
    issuer.lasts = 10
    sent(oauth)
    count = len(issuer.requests)
    sent(oauth)
    assert len(issuer.requests) > count


@pytest.mark.parametrize(
    ("status", "answer", "error"),
    [
        (401, {"error": "invalid_client"}, AccessDenied),
        (400, {"error": "invalid_scope"}, AccessDenied),
        (200, {"token_type": "Bearer"}, InvalidAnswer),
        (200, {"access_token": 7}, InvalidAnswer),
        (200, [], InvalidAnswer),
    ],
)
def test_a_token_server_that_says_no_is_an_error(oauth, issuer, remote, status, answer, error):
    issuer.status, issuer.answer = status, answer
    before = len(remote.requests)
    with pytest.raises(error):
        asyncio.run(_headers(authorizer_of(oauth, oauth.url)))
    assert len(remote.requests) == before


async def _headers(authorizer):
    return await authorizer.headers(renew=False)
