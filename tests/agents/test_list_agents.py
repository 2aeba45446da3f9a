"""`list_agents`: the directory as it is, in two forms."""

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from agents.outcomes import Ok
from directory.identity import Caller
from directory.models import Agent, ApiClient, Credential, DelegationRule
from directory.services import create_api_client

pytestmark = pytest.mark.django_db


def person(**fields):
    """Somebody with an account here."""
    return Caller.from_user(User.objects.create(username="somebody", **fields))


def program(**fields):
    """A program with a key."""
    client, _ = create_api_client(f"program {ApiClient.objects.count()}", **fields)
    return Caller.from_client(client)


def data_of(outcome):
    return outcome.artifacts[0].parts[1]["data"]


@pytest.mark.parametrize(
    "text", ["list agents simple", '{"format": "simple"}', ':tool list_agents {"format": "simple"}']
)
def test_the_simple_form_names_them(run, text):
    outcome = run("directory", text)
    assert isinstance(outcome, Ok)
    data = data_of(outcome)
    assert data["count"] == len(data["agents"]) == 9
    assert data["agents"][0] == {"id": "assistant", "name": "Assistant"}
    assert "echo: Echo" in outcome.artifacts[0].parts[0]["text"].splitlines()


@pytest.mark.parametrize("text", ["list agents", "who is there?", "{}", "list agents, in detail"])
def test_the_detailed_form_tells_what_they_can_do(run, text, settings):
    settings.BUREAU_PUBLIC_URL = "https://bureau.example.org"
    entry = next(agent for agent in data_of(run("directory", text))["agents"] if agent["id"] == "echo")
    assert entry["url"] == "https://bureau.example.org/a2a/echo/"
    assert (entry["kind"], entry["role"]) == ("local", "tester")
    assert entry["skills"][0]["id"] == "echo"
    assert entry["skills"][0]["examples"]


def test_remote_agents_are_listed_with_their_address(run, seeded):
    Agent.objects.create(slug="far", name="Far", kind="remote", url="https://far.example.org/a2a")
    entry = next(agent for agent in data_of(run("directory", "list agents"))["agents"] if agent["id"] == "far")
    assert (entry["kind"], entry["url"]) == ("remote", "https://far.example.org/a2a")


def test_programs_are_not_told_of_disabled_and_unpublished_agents(run, begin):
    Agent.objects.filter(slug="echo").update(is_enabled=False)
    Agent.objects.filter(slug="file-reader").update(is_published=False)
    begin.caller = program()
    names = {agent["id"] for agent in data_of(run("directory", "list agents"))["agents"]}
    assert names == {
        "assistant",
        "directory",
        "file-lister",
        "librarian",
        "researcher",
        "summarizer",
        "writer",
    }


@pytest.fixture
def far(seeded):
    """Three remote agents: outside and unpublished, outside and published, inside and unpublished."""
    for slug, fields in {
        "quiet": {},
        "known": {"is_published": True},
        "inner": {"is_internal": True},
    }.items():
        url = f"https://{slug}.example.org/a2a"
        made = {"name": slug.title(), "kind": "remote", "url": url, "is_published": False} | fields
        agent = Agent.objects.create(slug=slug, **made)
        Credential.objects.create(agent=agent, kind="bearer", secret="hidden-secret", username="our-account")


def listed(run, text="list agents"):
    outcome = run("directory", text)
    text, data = (part for part in outcome.artifacts[0].parts)
    for secret in ("hidden-secret", "our-account", "bearer"):
        assert secret not in f"{text} {data}"
    return {one["id"]: one.get("url", "") for one in data["data"]["agents"]}


def test_people_are_told_of_all_they_may_give_work_to(run, begin, far, settings):
    begin.caller = person()
    settings.BUREAU_PUBLIC_URL = "https://bureau.example.org"
    Agent.objects.filter(slug="file-reader").update(is_published=False)
    found = listed(run)
    assert "file-reader" in found
    assert found["quiet"] == "https://quiet.example.org/a2a"
    # Where it is inside our network is no business of theirs.
    assert found["inner"] == "https://bureau.example.org/a2a/inner/"


def test_operators_are_told_where_agents_inside_are(run, begin, far):
    begin.caller = person(is_staff=True)
    assert listed(run)["inner"] == "https://inner.example.org/a2a"


def test_a_program_is_told_of_those_its_key_is_good_for_by_our_address(run, begin, far, settings):
    settings.BUREAU_PUBLIC_URL = "https://bureau.example.org"
    begin.caller = program()
    found = listed(run)
    assert found["known"] == "https://known.example.org/a2a"
    for slug in ("quiet", "inner"):
        assert found[slug] == f"https://bureau.example.org/a2a/{slug}/"
    assert {"quiet", "inner", "known"} <= listed(run, ':tool list_agents {"format": "simple"}').keys()


def test_a_program_for_some_agents_is_told_of_those_and_of_published_ones(run, begin, far):
    begin.caller = program(agents=["directory", "quiet"])
    assert {"quiet", "known", "inner"} & listed(run).keys() == {"quiet", "known"}


def test_so_is_a_token_for_some_agents(run, begin, far):
    begin.caller = Caller("token:peer", "peer", agents=frozenset(["directory", "quiet"]))
    assert {"quiet", "known", "inner"} & listed(run).keys() == {"quiet", "known"}


def test_somebody_whose_account_is_closed_is_told_of_published_agents_alone(run, begin, far):
    begin.caller = person()
    User.objects.update(is_active=False)
    assert {"quiet", "known", "inner"} & listed(run).keys() == {"known"}


def test_a_revoked_key_is_told_of_published_agents_alone(run, begin, far):
    begin.caller = program()
    ApiClient.objects.update(revoked_at=timezone.now())
    assert {"quiet", "known", "inner"} & listed(run).keys() == {"known"}


def test_nobody_is_told_of_an_agent_that_may_not_be_asked(run, begin, far):
    Agent.objects.filter(slug="quiet").update(quarantined_at=timezone.now())
    DelegationRule.objects.create(effect="deny", target_agent=Agent.objects.get(slug="known"))
    Agent.objects.filter(slug="inner").update(is_enabled=False)
    for caller in (person(), program()):
        begin.caller = caller
        assert not {"quiet", "known", "inner"} & listed(run).keys()


def test_an_empty_directory_is_said_to_be_empty(run, begin, seeded):
    begin.caller = program()
    Agent.objects.exclude(slug="directory").delete()
    Agent.objects.update(is_published=False)
    outcome = run("directory", "list agents")
    assert outcome.message == "0 agents."
    assert outcome.artifacts[0].parts[0]["text"] == "No agents are known here yet."


def test_an_unknown_form_is_asked_about(run):
    outcome = run("directory", '{"format": "pretty"}')
    assert "format: Input should be 'detailed' or 'simple'" in outcome.why
