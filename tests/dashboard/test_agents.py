import pytest

from directory.models import Agent, Health, Skill

pytestmark = pytest.mark.django_db


def test_it_lists_agents_with_their_skills(as_alice, agent):
    page = as_alice.get("/agents/").content.decode()
    assert "Assistant" in page
    assert "Water plants" in page


def test_it_searches(as_alice, agent):
    assert b"Assistant" in as_alice.get("/agents/", {"q": "plants"}).content
    assert b"No agents" in as_alice.get("/agents/", {"q": "dragons"}).content


def test_an_agent_has_examples_to_try_and_addresses(as_alice, agent, settings):
    settings.BUREAU_PUBLIC_URL = "https://bureau.example"
    page = as_alice.get("/agents/assistant/").content.decode()
    assert "/missions/new/?agent=assistant&amp;text=Water%20the%20plants" in page
    assert "https://bureau.example/a2a/assistant/.well-known/agent-card.json" in page


def test_the_memory_names_no_agent_that_one_is_not_told_of(as_alice, as_olga, agent):
    far = {"kind": "remote", "url": "https://far.example/", "binding": "JSONRPC", "is_enabled": False}
    Agent.objects.create(slug="far", name="Secret project", **far)
    assert as_alice.get("/memory/", {"agent": "far"}).status_code == 404
    assert "Secret project" in as_olga.get("/memory/", {"agent": "far"}).content.decode()


def test_a_disabled_agent_is_for_operators_only(as_alice, as_olga, agent):
    agent.is_enabled = False
    agent.save()
    assert as_alice.get("/agents/assistant/").status_code == 404
    page = as_olga.get("/agents/assistant/").content.decode()
    assert "disabled" in page
    assert "/missions/new/?agent" not in page


def test_a_remote_agent_that_was_made_without_a_card_has_a_page_too(as_olga):
    Agent.objects.create(slug="odd", name="Odd", kind="remote", url="https://odd.example.org/")
    assert "not known" in as_olga.get("/agents/odd/").content.decode()
    for part in ("/agents/", "/agents/?show=remote"):
        assert "never seen" in as_olga.get(part).content.decode()


def test_the_list_costs_the_same_for_many(as_olga, django_assert_max_num_queries):
    made = Agent.objects.bulk_create(
        Agent(slug=f"far-{number}", name=f"Far {number}", kind="remote") for number in range(60)
    )
    Health.objects.bulk_create(Health(agent=agent) for agent in made)
    Skill.objects.bulk_create(Skill(agent=agent, skill_id="x", name="X") for agent in made)
    with django_assert_max_num_queries(8):
        page = as_olga.get("/agents/").content.decode()
    assert "Page 1 of 2" in page
    assert "Far 9" in as_olga.get("/agents/", {"page": "2"}).content.decode()


def test_it_filters(as_olga, agent):
    Agent.objects.create(slug="off", name="Off", handler="x", is_enabled=False)
    assert "Off" not in as_olga.get("/agents/", {"show": "remote"}).content.decode()
    assert "Assistant" not in as_olga.get("/agents/", {"show": "disabled"}).content.decode()
    assert "Off" in as_olga.get("/agents/", {"show": "disabled"}).content.decode()
    assert as_olga.get("/agents/", {"show": "nonsense"}).status_code == 404


def test_htmx_gets_the_list_alone(as_olga, agent):
    part = as_olga.get("/agents/", HTTP_HX_REQUEST="true").content.decode()
    assert "Assistant" in part
    assert "<html" not in part


def test_agents_that_are_disabled_come_last(as_olga, agent):
    Agent.objects.create(slug="aaa", name="Analyst of one mission", is_enabled=False)
    page = as_olga.get("/agents/").content.decode()
    assert page.index("/agents/assistant/") < page.index("/agents/aaa/")
