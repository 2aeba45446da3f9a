"""Agent cards: what is really there, readable for 1.0 and 0.3, and cached as HTTP has it."""

import httpx
import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.compat.v0_3.types import AgentCard as OldCard
from a2a.types import a2a_pb2 as pb
from a2a.utils.proto_utils import validate_proto_required_fields

from agents.orchestration.envelope import URI as ENVELOPE
from directory.models import Agent, Skill


@pytest.fixture
def get(url):
    def get(path="/.well-known/agent-card.json", **headers):
        return httpx.get(url + path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    return get


@pytest.mark.parametrize("path", ["/.well-known/agent-card.json", "/a2a/.well-known/agent-card.json"])
def test_the_front_doors(get, url, path):
    response = get(path)
    card = response.json()

    assert response.headers["content-type"] == "application/json"
    assert card["name"] == "Assistant"
    assert card["supportedInterfaces"] == [
        {"url": f"{url}/a2a/", "protocolBinding": binding, "protocolVersion": version}
        for binding in ("JSONRPC", "HTTP+JSON")
        for version in ("1.0", "0.3")
    ]
    (extension,) = card["capabilities"].pop("extensions")
    assert card["capabilities"] == {"streaming": True, "pushNotifications": True, "extendedAgentCard": True}
    assert extension["uri"] == ENVELOPE and extension["description"] and not extension.get("required")


def test_another_agents(get, url):
    card = get("/a2a/echo/.well-known/agent-card.json").json()
    skill = Skill.objects.get(agent__slug="echo")

    assert card["supportedInterfaces"][0]["url"] == f"{url}/a2a/echo/"
    assert card["skills"][0]["id"] == skill.skill_id
    assert card["skills"][0]["examples"] == skill.examples
    assert card["defaultInputModes"] == Agent.objects.get(slug="echo").input_modes


@pytest.mark.parametrize("slug", ["assistant", "echo", "summarizer", "directory", "file-lister", "file-reader"])
def test_it_holds_what_both_versions_require(get, slug):
    card = get(f"/a2a/{slug}/.well-known/agent-card.json").json()

    validate_proto_required_fields(parse_agent_card(dict(card)))
    assert OldCard.model_validate(card).protocol_version == "0.3"


def test_an_agent_that_says_little_has_a_valid_card_too(get):
    agent = Agent.objects.create(slug="plain", name="Plain")
    Skill.objects.create(agent=agent, skill_id="x", name="X")
    card = get("/a2a/plain/.well-known/agent-card.json").json()

    validate_proto_required_fields(parse_agent_card(card))


def test_it_declares_the_keys_that_are_needed(get, settings):
    settings.BUREAU_ALLOW_ANONYMOUS = False
    card = parse_agent_card(get().json())

    assert card.security_schemes["bearer"].http_auth_security_scheme.scheme == "bearer"
    assert card.security_schemes["apiKey"].api_key_security_scheme.name == "X-API-Key"
    assert [list(requirement.schemes) for requirement in card.security_requirements] == [["bearer"], ["apiKey"]]


def test_it_declares_that_none_is_needed(get, settings):
    settings.BUREAU_ALLOW_ANONYMOUS = True
    card: pb.AgentCard = parse_agent_card(get().json())

    assert not card.security_requirements
    assert card.security_schemes


@pytest.mark.parametrize("change", [{"is_published": False}, {"is_enabled": False}])
def test_what_is_not_published_is_not_there(get, change):
    Agent.objects.filter(slug="echo").update(**change)
    hidden = get("/a2a/echo/.well-known/agent-card.json")
    unknown = get("/a2a/nobody/.well-known/agent-card.json")

    assert (hidden.status_code, hidden.json()) == (404, {"error": "There is no such agent."})
    assert (unknown.status_code, unknown.json()) == (hidden.status_code, hidden.json())


def test_it_may_be_kept_for_a_while(get):
    assert get().headers["cache-control"] == "public, max-age=60"


def test_it_is_not_sent_again_to_who_has_it(get):
    first = get()
    by_tag = get(If_None_Match=first.headers["etag"])
    by_time = get(If_Modified_Since=first.headers["last-modified"])

    assert (by_tag.status_code, by_tag.content) == (304, b"")
    assert by_tag.headers["etag"] == first.headers["etag"]
    assert (by_time.status_code, by_time.content) == (304, b"")
    assert get(If_None_Match='"other"').status_code == 200


def test_a_changed_card_is_sent_again(get, monkeypatch):
    from bureau.a2a import cards

    first = get("/a2a/echo/.well-known/agent-card.json")
    Skill.objects.filter(agent__slug="echo").update(description="Says it twice.")
    # HTTP's times have no fractions, and this test takes less than one of their seconds.
    monkeypatch.setattr(cards, "_last_seen", {slug: each._replace(etag="") for slug, each in cards._last_seen.items()})
    again = get("/a2a/echo/.well-known/agent-card.json", If_None_Match=first.headers["etag"])

    assert again.status_code == 200
    assert again.json()["skills"][0]["description"] == "Says it twice."
    assert again.headers["last-modified"] >= first.headers["last-modified"]


def test_head_and_other_methods(url):
    assert httpx.head(f"{url}/.well-known/agent-card.json").headers["content-type"] == "application/json"
    refused = httpx.post(f"{url}/.well-known/agent-card.json")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
