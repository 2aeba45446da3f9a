"""An agent is added by any address of it, and what its card says is checked first."""

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse
from starlette.routing import Route

from directory.cards import auth_needs
from directory.enrolment import add_remote_agent, remove_agent
from directory.exceptions import (
    AccessDenied,
    AddressRefused,
    AgentExists,
    AgentInUse,
    CardInvalid,
    CardNotFound,
    NoCommonInterface,
    NotRemote,
    RedirectRefused,
    SlugTaken,
    Unreachable,
)
from directory.models import Agent, CardRevision, Credential, Health, Skill
from tests.support.remote_agents import REST, RPC, V03, V1, remote_agent, serve, skill

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


def nothing_was_added():
    return not any(model.objects.exists() for model in (Agent, Skill, Health, Credential, CardRevision))


@pytest.fixture
def echo():
    with remote_agent() as agent:
        yield agent


@pytest.mark.parametrize("path", ["", "/", "/.well-known/agent-card.json", "/rpc", "/rpc/", "/rpc#part"])
def test_it_adds_by_base_card_or_interface(echo, path):
    agent = add_remote_agent(echo.url + path)
    assert (agent.slug, agent.kind, agent.name) == ("echo", "remote", "Echo")
    assert (agent.url, agent.binding, agent.protocol_version) == (f"{echo.url}/rpc", RPC, V1)
    assert agent.card_url == f"{echo.url}/.well-known/agent-card.json"
    assert agent.is_internal
    assert not agent.is_published
    assert agent.signature == ""


def test_it_stores_skills_with_examples_and_the_card(echo):
    agent = add_remote_agent(echo.url)
    stored = agent.skills.get()
    assert (stored.skill_id, stored.name, stored.tags) == ("echo-1", "Echo 1", ["echo"])
    assert stored.examples == ["Repeat this"]
    assert agent.card["skills"][0]["id"] == "echo-1"
    assert agent.revisions.get().state == "applied"
    assert agent.health.card_etag


@pytest.mark.parametrize("path", ["/.well-known/agent-card.json", "/.well-known/agent.json"])
def test_it_reads_cards_of_0_3_and_before(path):
    with remote_agent(interfaces=((RPC, V03), (REST, V03)), card_paths=(path,)) as remote:
        agent = add_remote_agent(remote.url)
    assert (agent.binding, agent.protocol_version) == (RPC, V03)
    assert [item["protocolBinding"] for item in agent.card["supportedInterfaces"]] == [RPC, REST]


@pytest.mark.parametrize(
    ("interfaces", "chosen"),
    [
        (((RPC, V03), (RPC, V1)), (RPC, V1)),
        (((REST, V1), (RPC, V1)), (RPC, V1)),
        (((RPC, V03), (REST, V1)), (REST, V1)),
        (((REST, V1),), (REST, V1)),
        (((REST, V03),), (REST, V03)),
    ],
)
def test_it_chooses_the_best_interface(interfaces, chosen):
    card = {
        "supportedInterfaces": [
            {"url": f"http://127.0.0.1:1/{number}", "protocolBinding": binding, "protocolVersion": version}
            for number, (binding, version) in enumerate(interfaces)
        ]
    }
    with remote_agent(**card) as remote:
        agent = add_remote_agent(remote.url)
    assert (agent.binding, agent.protocol_version) == chosen


def test_it_knows_what_the_agent_wants_to_let_us_in():
    schemes = {
        "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
        "oauth": {
            "oauth2SecurityScheme": {
                "flows": {"clientCredentials": {"tokenUrl": "https://id.example/token", "scopes": {"a": "b"}}}
            }
        },
    }
    wants = [{"schemes": {"bearer": {"list": []}}}, {"schemes": {"oauth": {"list": ["a"]}}}]
    with remote_agent(securitySchemes=schemes, securityRequirements=wants) as remote:
        agent = add_remote_agent(remote.url)
    needs = auth_needs(agent.card)
    assert [need.kind for need in needs] == ["bearer", "oauth2"]
    assert needs[1].token_url == "https://id.example/token"
    assert needs[1].scopes == ("a",)


@pytest.mark.parametrize("interfaces", [((RPC, V1),), ((RPC, V03),)])
def test_it_knows_the_key_of_both_versions(interfaces):
    with remote_agent(interfaces=interfaces, key="k") as remote:
        agent = add_remote_agent(remote.url)
    assert [(need.kind, need.header) for need in auth_needs(agent.card)] == [("api_key", "X-API-Key")]


def test_it_cleans_and_limits_what_the_card_says():
    nasty = skill(1, id="Echo it!/\u202e", name="E\x00cho\u200b\n1", examples=["x" * 3000] * 40, tags=["a"] * 500)
    with remote_agent(name="  Very\n\tlong\u202e " + "n" * 500, skills=[nasty, nasty, *[skill()] * 300]) as remote:
        agent = add_remote_agent(remote.url)
    assert agent.name.startswith("Very long n")
    assert len(agent.name) == 120
    first = agent.skills.order_by("id").first()
    assert (first.skill_id, first.name) == ("echo-it", "E\ufffdcho 1")
    assert (len(first.examples), len(first.examples[0]), len(first.tags)) == (20, 500, 20)
    assert agent.skills.filter(skill_id="echo-it-2").exists()
    assert agent.skills.count() <= 100


def test_a_slug_may_be_chosen_and_is_made_unique(echo):
    assert add_remote_agent(echo.url, slug="parrot").slug == "parrot"
    with remote_agent() as other, remote_agent() as third:
        assert add_remote_agent(other.url).slug == "echo"
        assert add_remote_agent(third.url).slug == "echo-2"


@pytest.mark.parametrize("slug", ["parrot", "Not A Slug", "x" * 65])
def test_it_refuses_a_slug_that_is_taken_or_none(echo, slug):
    Agent.objects.create(slug="parrot", name="Parrot")
    with pytest.raises(SlugTaken):
        add_remote_agent(echo.url, slug=slug)
    assert Agent.objects.count() == 1
    assert not Health.objects.exists()


def test_it_adds_an_agent_once(echo):
    add_remote_agent(echo.url)
    with pytest.raises(AgentExists, match="as echo"):
        add_remote_agent(f"{echo.url}/rpc", slug="other")
    assert Agent.objects.count() == 1


def test_the_loser_of_two_adding_it_is_told(echo, monkeypatch):
    from directory import enrolment

    create = enrolment._create

    def late(found, *args):
        Agent.objects.create(slug="quicker", name="Quicker", card_url=found.url)
        return create(found, *args)

    monkeypatch.setattr(enrolment, "_create", late)
    with pytest.raises(AgentExists):
        add_remote_agent(echo.url)
    assert [agent.slug for agent in Agent.objects.all()] == ["quicker"]
    assert not Skill.objects.exists()


def test_it_does_not_add_itself(echo, settings):
    settings.BUREAU_PUBLIC_URL = echo.url
    with pytest.raises(AgentExists, match="itself"):
        add_remote_agent(echo.url + "/a2a/echo/")
    assert not echo.requests
    assert nothing_was_added()


def test_it_refuses_addresses_inside(echo, settings):
    settings.BUREAU_OUTBOUND_ALLOW = ()
    with pytest.raises(AddressRefused):
        add_remote_agent(echo.url)
    assert not echo.requests
    assert nothing_was_added()


def test_it_refuses_a_card_that_leads_inside():
    card = {"supportedInterfaces": [{"url": "http://10.0.0.1/", "protocolBinding": RPC, "protocolVersion": V1}]}
    with remote_agent(**card) as remote, pytest.raises(AddressRefused):
        add_remote_agent(remote.url)
    assert nothing_was_added()


def test_a_public_card_may_not_lead_to_what_the_allowlist_allows(echo, monkeypatch):
    """The allowlist is for those who live there, not for strangers to point at."""
    from directory import discovery

    monkeypatch.setattr(discovery, "is_public", lambda url: True)
    real = discovery.open_client
    monkeypatch.setattr(discovery, "open_client", lambda **options: real(**options | {"public_only": False}))
    with pytest.raises(AddressRefused):
        add_remote_agent(echo.url)
    assert nothing_was_added()


def test_it_says_when_nothing_in_common_is_spoken():
    card = {
        "supportedInterfaces": [
            {"url": "http://127.0.0.1:1", "protocolBinding": "GRPC", "protocolVersion": V1},
            {"url": "http://127.0.0.1:1", "protocolBinding": RPC, "protocolVersion": "7.0"},
        ]
    }
    with remote_agent(**card) as remote, pytest.raises(NoCommonInterface, match=r"GRPC 1.0, JSONRPC 7.0"):
        add_remote_agent(remote.url)
    assert nothing_was_added()


def test_it_says_when_nobody_is_there():
    with pytest.raises(Unreachable):
        add_remote_agent("http://127.0.0.1:1/")
    assert nothing_was_added()


BROKEN = {
    "not JSON": (PlainTextResponse("<html>"), CardNotFound),
    "no object": (JSONResponse([1]), CardInvalid),
    "no card": (JSONResponse({"hello": 1}), CardInvalid),
    "no name": (JSONResponse({"name": " ", "url": "http://127.0.0.1/"}), CardInvalid),
    "wrong types": (JSONResponse({"name": "x", "url": "http://127.0.0.1/", "skills": "none"}), CardInvalid),
    "no address": (JSONResponse({"name": "x", "supportedInterfaces": []}), CardInvalid),
    "an invisible name": (JSONResponse({"name": "\u200b", "url": "http://127.0.0.1/"}), CardInvalid),
    "too long an address": (JSONResponse({"name": "x", "url": "http://127.0.0.1/" + "x" * 600}), CardInvalid),
    "nested too deeply": (
        PlainTextResponse('{"name": "x", "url": "http://127.0.0.1/", "extra": ' + "[" * 100_000 + "]" * 100_000 + "}"),
        CardNotFound,
    ),
    "elsewhere": (RedirectResponse("http://localhost:1/"), RedirectRefused),
}


@pytest.mark.parametrize("case", BROKEN)
def test_it_refuses_what_is_no_card(case):
    response, error = BROKEN[case]

    async def card(request):
        return response

    with (
        serve(Starlette(routes=[Route("/.well-known/agent-card.json", card)])) as url,
        pytest.raises(error),
    ):
        add_remote_agent(url)
    assert nothing_was_added()


def test_the_card_of_another_address_is_not_taken_for_this_one(echo):
    with pytest.raises(CardNotFound, match="but of another address"):
        add_remote_agent(f"{echo.url}/somebody/else/")
    assert nothing_was_added()


def test_a_card_behind_a_login_says_so():
    async def card(request):
        return PlainTextResponse("no", status_code=401)

    with serve(Starlette(routes=[Route("/.well-known/agent-card.json", card)])) as url, pytest.raises(AccessDenied):
        add_remote_agent(url)
    assert nothing_was_added()


def test_it_removes(echo):
    agent = add_remote_agent(echo.url)
    remove_agent(agent)
    assert nothing_was_added()


def test_it_keeps_what_tasks_refer_to(echo):
    from tasks.content import Incoming
    from tasks.services import send_message
    from tests.support.cast import ALICE

    agent = add_remote_agent(echo.url)
    send_message(ALICE, agent, Incoming.from_text("hello"))
    with pytest.raises(AgentInUse):
        remove_agent(agent)
    assert agent.skills.exists()


def test_a_local_agent_is_not_removed():
    agent = Agent.objects.create(slug="local", name="Local", handler="x")
    with pytest.raises(NotRemote):
        remove_agent(agent)
    assert Agent.objects.filter(slug="local").exists()
