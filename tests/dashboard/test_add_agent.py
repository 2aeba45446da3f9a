"""Add by URL, as a plain form: the card first, then that very card; each failure is a sentence on the form."""

import pytest
from django.urls import reverse

from directory.credentials import stored
from directory.models import Agent, CardRevision, Credential, Health, Skill
from tests.support.remote_agents import remote_agent, skill

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def loopback_allowed(settings):
    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8",)


@pytest.fixture
def remote():
    with remote_agent(name="Parrot") as agent:
        yield agent


def look(client, url, **more):
    return client.post(reverse("add-agent"), {"url": url, "look": "yes", **more})


def add(client, looked, **more):
    """Send the second form, as the page of the first answer has it."""
    form = {"url": looked.context["form"]["url"].value(), "digest": looked.context["digest"], "add": "yes"}
    return client.post(reverse("add-agent"), form | more, follow=True)


def nothing_was_added():
    return not any(model.objects.exists() for model in (Agent, Skill, Health, Credential, CardRevision))


def test_the_card_is_shown_before_anything_is_stored(as_olga, remote):
    page = look(as_olga, remote.url).content.decode()
    assert "Parrot" in page
    assert f"{remote.url}/rpc (JSONRPC 1.0)" in page
    assert "Repeat this" in page
    assert nothing_was_added()


def test_the_agent_that_was_looked_at_is_added(as_olga, olga, remote):
    page = add(as_olga, look(as_olga, remote.url), slug="polly").content.decode()
    assert "Parrot is in the directory now, as polly." in page
    agent = Agent.objects.get()
    assert (agent.slug, agent.kind, agent.is_published) == ("polly", "remote", False)
    assert CardRevision.objects.get().decided_by == f"user:{olga.pk}"


def test_what_the_card_asks_for_is_filled_in_and_the_secret_is_stored_unseen(as_olga):
    with remote_agent(key="s3cret") as remote:
        looked = look(as_olga, remote.url)
        assert looked.context["form"]["auth"].value() == "api_key"
        page = add(as_olga, looked, auth="api_key", header="X-API-Key", secret="s3cret").content.decode()
    assert stored(Agent.objects.get()).secret == "s3cret"
    assert "API key in X-API-Key" in page
    assert "s3cret" not in page


def test_a_card_that_changed_meanwhile_is_shown_again_and_not_added(as_olga, remote):
    looked = look(as_olga, remote.url)
    remote.card["skills"] = [skill(2, name="Something else")]
    page = add(as_olga, looked)
    assert page.status_code == 400
    assert "The card has changed since you looked at it." in page.content.decode()
    assert "Something else" in page.content.decode()
    assert nothing_was_added()
    assert Agent.objects.count() == 0 and add(as_olga, page).status_code == 200
    assert Skill.objects.get().name == "Something else"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "This field is required."),
        ("http://10.0.0.1/", "10.0.0.1 is a private address"),
        ("http://169.254.169.254/latest/", "metadata"),
        ("http://[::1]:8000/", "loopback"),
        ("file:///etc/passwd", "http"),
        ("http://127.0.0.1:1/", "The server could not be reached."),
        ("http://2130706433/", "odd spelling"),
    ],
)
def test_an_address_that_cannot_be_used_is_said_to_be(as_olga, url, said):
    for form in ({"look": "yes"}, {"add": "yes", "digest": "0" * 64}):
        page = as_olga.post(reverse("add-agent"), {"url": url, **form})
        assert page.status_code == 400
        assert said in page.content.decode()
    assert nothing_was_added()


def test_an_address_without_a_card_is_said_to_have_none(as_olga):
    with remote_agent(card_paths=()) as remote:
        page = look(as_olga, remote.url)
    assert "There is no agent card at" in page.content.decode()
    assert nothing_was_added()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"auth": "bearer", "secret": ""}, "The secret is empty"),
        ({"auth": "basic", "secret": "x"}, "Give the user name."),
        ({"slug": "no good"}, "Enter a valid"),
        ({"slug": "Upper"}, "cannot be a short name"),
        ({"auth": "magic", "secret": "x"}, "Select a valid choice"),
        ({"digest": "nonsense"}, "Enter a valid value."),
    ],
)
def test_what_cannot_be_kept_is_said_beside_the_card(as_olga, remote, fields, said):
    page = add(as_olga, look(as_olga, remote.url), **fields)
    assert page.status_code == 400
    assert said in page.content.decode()
    assert "Repeat this" in page.content.decode()
    assert nothing_was_added()


def test_what_was_typed_as_a_secret_is_never_sent_back(as_olga, remote):
    fields = {"auth": "basic", "secret": "s3cret"}
    assert "s3cret" not in look(as_olga, remote.url, **fields).content.decode()
    assert "s3cret" not in add(as_olga, look(as_olga, remote.url), **fields).content.decode()


def test_one_that_is_known_is_said_to_be(as_olga, remote):
    add(as_olga, look(as_olga, remote.url))
    page = look(as_olga, remote.url)
    assert "That agent is in the directory already, as parrot." in page.content.decode()
    assert Agent.objects.count() == 1


def test_the_second_of_two_quick_ones_changes_nothing(as_olga, remote):
    looked = look(as_olga, remote.url)
    add(as_olga, looked)
    page = add(as_olga, looked)
    assert (page.status_code, Agent.objects.count()) == (400, 1)


def test_a_card_is_only_text(as_olga):
    evil = "<script>alert(1)</script>"
    with remote_agent(name=evil, skills=[skill(name=evil, description=evil, examples=[evil])]) as remote:
        looked = look(as_olga, remote.url)
        assert "<script>alert" not in looked.content.decode()
        assert "<script>alert" not in add(as_olga, looked).content.decode()


def test_people_and_strangers_are_refused(client, as_alice, remote):
    for method in ("get", "post"):
        assert getattr(as_alice, method)(reverse("add-agent"), {"url": remote.url}).status_code == 403
        assert getattr(client, method)(reverse("add-agent"), {"url": remote.url}).status_code == 302
    assert not remote.requests
    assert nothing_was_added()


def test_looking_changes_nothing(as_olga):
    assert as_olga.get(reverse("add-agent"), {"url": "https://agent.example"}).status_code == 200
    assert nothing_was_added()
