"""The extended card: for callers who say who they are, also of agents that strangers are told nothing of."""

import httpx
import pytest

from directory.models import Agent


def test_it_is_for_those_with_a_key(alice, url, settings):
    card = alice.result("GetExtendedAgentCard", {})
    assert card["name"] == "Echo"

    settings.BUREAU_ALLOW_ANONYMOUS = True
    headers = {"A2A-Version": "1.0"}
    assert httpx.get(f"{url}/a2a/echo/tasks", headers=headers).status_code == 200
    assert httpx.get(f"{url}/a2a/echo/extendedAgentCard", headers=headers).status_code == 401


def test_it_tells_of_unpublished_agents(alice, url):
    Agent.objects.filter(slug="echo").update(is_published=False)

    assert httpx.get(f"{url}/a2a/echo/.well-known/agent-card.json").status_code == 404
    assert alice.result("GetExtendedAgentCard", {})["name"] == "Echo"


def test_a_tenant_names_the_agent(as_peer):
    assert as_peer("alice").result("GetExtendedAgentCard", {"tenant": "echo"})["name"] == "Echo"
    assert as_peer("alice").result("GetExtendedAgentCard", {})["name"] == "Assistant"
    assert as_peer("alice").error("GetExtendedAgentCard", {"tenant": "nobody"})["code"] == -32004


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_on_rest(alice, version):
    path = "/a2a/echo/extendedAgentCard" if version == "1.0" else "/a2a/echo/v1/card"
    card = alice.http.get(path, headers={"A2A-Version": version}).json()

    assert card["name"] == "Echo"
    assert card["supportsAuthenticatedExtendedCard" if version == "0.3" else "capabilities"]


def test_in_0_3(as_peer):
    card = as_peer("alice", version="0.3", slug="echo").result("agent/getAuthenticatedExtendedCard")

    assert (card["name"], card["protocolVersion"]) == ("Echo", "0.3")
