"""Remote agents in the admin: added by URL, given credentials, judged, and shown without their secrets."""

import pytest
from django.apps import apps
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse

from directory.credentials import Secret, set_credential, stored
from directory.enrolment import add_remote_agent, refresh_agent
from directory.health import record_delegation
from directory.memory import remember
from directory.models import Agent, CardRevision, Credential, DelegationRule, OutgoingRequest, ProbeResult
from directory.probe import probe_agent
from directory.wire import Outgoing
from tests.support.remote_agents import remote_agent, skill

pytestmark = pytest.mark.django_db

OURS = [
    model
    for model in apps.get_app_config("directory").get_models()
    if model._meta.model_name not in {"agent", "skill", "apiclient"}
]


@pytest.fixture
def operator():
    return get_user_model().objects.create_superuser("olga")


@pytest.fixture
def as_operator(operator):
    client = Client()
    client.force_login(operator)
    return client


@pytest.fixture
def as_reader():
    """Staff who may read everything, and no more."""
    from django.contrib.auth.models import Permission

    user = get_user_model().objects.create_user("rita", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    client = Client()
    client.force_login(user)
    return client


def address(name, page="changelist", *args):
    return reverse(f"admin:directory_{name}_{page}", args=args)


def act(client, name, action, *rows):
    form = {"action": action, "_selected_action": [row.pk for row in rows]}
    return client.post(address(name), form, follow=True).content.decode()


@pytest.mark.parametrize("model", OURS, ids=lambda model: model.__name__)
def test_every_list_and_row_opens(as_operator, remote, agent, model):
    set_credential(agent, Secret("bearer", "s3cret"))
    record_delegation(agent, "", ok=True, seconds=1)
    remember(Outgoing([{"text": "hi"}], message_id="m"), url="https://x/", name="Echo", agent=agent)
    probe_agent(agent)
    DelegationRule.objects.create(effect="deny")
    name = model._meta.model_name
    for query in ("", "?q=something"):
        assert as_operator.get(address(name) + query).status_code == 200
    page = as_operator.get(address(name, "change", model.objects.first().pk))
    assert page.status_code == 200
    assert "s3cret" not in page.content.decode()


def test_an_agent_is_added_by_its_url(as_operator, remote):
    assert "URL" in as_operator.get(address("remoteagent", "add")).content.decode()
    form = {"url": remote.url, "slug": "parrot", "auth": "bearer", "secret": "s3cret"}
    page = as_operator.post(address("remoteagent", "add"), form, follow=True).content.decode()
    assert "Echo is in the directory now, as parrot." in page
    assert stored(Agent.objects.get(slug="parrot")).secret == "s3cret"


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"url": "http://127.0.0.1:1/"}, "The server could not be reached."),
        ({"url": "http://10.0.0.1/"}, "10.0.0.1 is a private address"),
        ({"url": ""}, "This field is required."),
        ({"url": "http://127.0.0.1:1/", "auth": "bearer"}, "The secret is empty"),
    ],
)
def test_what_cannot_be_added_is_said(as_operator, form, said):
    page = as_operator.post(address("remoteagent", "add"), form | {"secret": form.get("secret", "")}).content.decode()
    assert said in page
    assert not Agent.objects.exists()


def test_what_was_typed_as_a_secret_is_not_sent_back(as_operator):
    form = {"url": "http://127.0.0.1:1/", "auth": "bearer", "secret": "s3cret"}
    assert "s3cret" not in as_operator.post(address("remoteagent", "add"), form).content.decode()


def test_a_reader_may_not_add_act_or_forget(as_reader, remote, agent):
    assert as_reader.get(address("remoteagent", "add")).status_code == 403
    assert as_reader.post(address("remoteagent", "add"), {"url": remote.url}).status_code == 403
    act(as_reader, "remoteagent", "quarantine", agent)
    remote.card["skills"] = []
    revision = refresh_agent(agent)
    act(as_reader, "cardrevision", "accept", revision)
    remember(Outgoing([{"text": "hi"}], message_id="m"), url="https://x/", name="Echo")
    act(as_reader, "outgoingrequest", "clear", OutgoingRequest.objects.get())
    revision.refresh_from_db()
    assert revision.state == "pending"
    assert Agent.objects.get().quarantine_reason.startswith("Its card changed")
    assert OutgoingRequest.objects.exists()


def test_a_credential_is_entered_and_replaced(as_operator, agent):
    form = {"agent": agent.pk, "auth": "basic", "username": "me", "secret": "one"}
    assert "has a new credential" in as_operator.post(address("credential", "add"), form, follow=True).content.decode()
    as_operator.post(address("credential", "add"), form | {"secret": "two"})
    assert stored(agent).secret == "two"
    assert Credential.objects.count() == 1
    row = Credential.objects.get()
    assert as_operator.post(address("credential", "change", row.pk), {"header": "X"}).status_code == 403
    as_operator.post(address("credential", "delete", row.pk), {"post": "yes"})
    assert stored(agent) is None


def test_a_changed_card_is_accepted_by_whoever_is_signed_in(as_operator, operator, remote, agent):
    remote.card["skills"] = [skill(2)]
    assert "New skill: echo-2" in act(as_operator, "remoteagent", "refresh", agent)
    revision = CardRevision.objects.get(state="pending")
    assert "decided" in act(as_operator, "cardrevision", "accept", revision)
    revision.refresh_from_db()
    assert (revision.state, revision.decided_by) == ("accepted", f"user:{operator.pk}")
    assert agent.skills.get().skill_id == "echo-2"
    assert "decided on already" in act(as_operator, "cardrevision", "reject", revision)


def test_quarantine_and_release(as_operator, agent):
    act(as_operator, "remoteagent", "quarantine", agent)
    agent.refresh_from_db()
    assert agent.quarantine_reason == "By olga."
    assert "is out" in act(as_operator, "remoteagent", "release", agent)
    agent.refresh_from_db()
    assert agent.quarantined_at is None


def test_probe_enable_and_disable(as_operator, agent):
    assert "is going to be probed" in act(as_operator, "remoteagent", "probe", agent)
    assert ProbeResult.objects.get().state == "waiting"
    act(as_operator, "remoteagent", "disable", agent)
    assert not Agent.objects.get().is_enabled
    act(as_operator, "remoteagent", "enable", agent)
    assert Agent.objects.get().is_enabled


def test_an_agent_that_is_gone_is_said_to_be(as_operator):
    with remote_agent() as remote:
        agent = add_remote_agent(remote.url)
    assert "could not be reached" in act(as_operator, "remoteagent", "refresh", agent)


def test_rules_are_written_and_checked(as_operator, agent):
    form = {"effect": "deny", "priority": "1", "is_enabled": "on", "target_agent": agent.pk, "target_tag": ""}
    as_operator.post(address("delegationrule", "add"), form)
    assert str(DelegationRule.objects.get()) == "deny anybody → echo"
    page = as_operator.post(address("delegationrule", "add"), form | {"target_tag": "echo"}).content.decode()
    assert "A rule is about an agent, a role or a tag" in page
    assert DelegationRule.objects.count() == 1


def test_the_memory_is_cleared(as_operator):
    for _ in range(2):
        remember(Outgoing([{"text": "hi"}], message_id="m"), url="https://x/", name="Echo")
    assert "2 forgotten" in act(as_operator, "outgoingrequest", "clear", OutgoingRequest.objects.first())
    assert not OutgoingRequest.objects.exists()


def test_what_a_stranger_wrote_is_only_text(as_operator):
    evil = "<script>alert(1)</script>"
    with remote_agent(name=evil, skills=[skill(name=evil, description=evil)]) as remote:
        agent = add_remote_agent(remote.url)
    for page in (address("remoteagent"), address("remoteagent", "change", agent.pk)):
        assert "<script>alert" not in as_operator.get(page).content.decode()
