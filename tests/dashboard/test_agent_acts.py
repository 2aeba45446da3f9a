"""What operators do on an agent's page, and what others may not."""

from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from directory.credentials import Secret, set_credential, stored
from directory.enrolment import add_remote_agent, refresh_agent
from directory.health import record_delegation
from directory.memory import remember
from directory.models import Agent, CardRevision, Credential, Health, OutgoingRequest, ProbeResult
from directory.probing import run_probe
from directory.revisions import quarantine
from directory.wire import Outgoing
from tests.support.people import end, start
from tests.support.remote_agents import remote_agent, skill

pytestmark = pytest.mark.django_db

VERBS = (
    "refresh", "probe", "enable", "disable", "quarantine", "release", "accept", "reject", "forget-credential", "remove"
)  # fmt: skip


@pytest.fixture(autouse=True)
def loopback_allowed(settings):
    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8",)


@pytest.fixture
def remote():
    with remote_agent() as agent:
        yield agent


@pytest.fixture
def echo(remote):
    return add_remote_agent(remote.url)


def act(client, agent, verb, **form):
    return client.post(reverse("agent-act", args=[agent.slug, verb]), form, follow=True)


def state_of(agent):
    """Everything about it that an act could change."""
    return (
        Agent.objects.filter(pk=agent.pk).values().first(),
        list(CardRevision.objects.values_list("number", "state")),
        list(Credential.objects.values_list("kind", "secret")),
        ProbeResult.objects.count(),
    )


def test_a_changed_card_is_accepted_from_its_page(as_olga, olga, remote, echo):
    remote.card["skills"] = [skill(2)]
    page = act(as_olga, echo, "refresh").content.decode()
    assert "A changed card waits for you" in page
    assert "New skill: echo-2 (“Echo 2”)" in page
    page = act(as_olga, echo, "accept", revision="2").content.decode()
    assert "Revision 2 is accepted" in page
    assert "By olga, <time" in page
    echo.refresh_from_db()
    assert (echo.quarantined_at, echo.skills.get().skill_id) == (None, "echo-2")
    assert CardRevision.objects.get(number=2).decided_by == f"user:{olga.pk}"


def test_a_changed_card_is_rejected_and_the_quarantine_stays_until_it_is_ended(as_olga, remote, echo):
    remote.card["skills"] = []
    refresh_agent(echo)
    assert "stays in quarantine" in act(as_olga, echo, "reject", revision="2").content.decode()
    echo.refresh_from_db()
    assert echo.quarantined_at is not None
    assert "is out of quarantine" in act(as_olga, echo, "release").content.decode()
    echo.refresh_from_db()
    assert (echo.quarantined_at, echo.skills.count()) == (None, 1)


@pytest.mark.parametrize("number", ["1", "3", "", "x", "9" * 30])
def test_only_the_revision_that_waits_is_accepted(as_olga, remote, echo, number):
    remote.card["skills"] = []
    refresh_agent(echo)
    before = state_of(echo)
    page = act(as_olga, echo, "accept", revision=number).content.decode()
    assert "That revision has been decided on already" in page
    assert state_of(echo) == before


def test_a_card_that_changed_again_is_not_accepted_unseen(as_olga, remote, echo):
    for number in (2, 3):
        remote.card["skills"] = [skill(number)]
        refresh_agent(echo)
    assert "decided on already" in act(as_olga, echo, "accept", revision="2").content.decode()
    assert [one.state for one in CardRevision.objects.order_by("number")] == ["applied", "superseded", "pending"]


def test_one_quarantines_disables_and_enables(as_olga, echo):
    act(as_olga, echo, "quarantine")
    assert Agent.objects.get().quarantine_reason == "By olga."
    act(as_olga, echo, "disable")
    assert not Agent.objects.get().is_enabled
    act(as_olga, echo, "enable")
    assert Agent.objects.get().is_enabled


def test_a_local_agent_is_disabled_but_neither_quarantined_probed_nor_removed(as_olga, agent):
    act(as_olga, agent, "disable")
    before = state_of(agent)
    assert before[0]["is_enabled"] is False
    for verb in ("quarantine", "release", "probe", "remove", "refresh", "forget-credential", "accept"):
        assert 'class="error"' in act(as_olga, agent, verb).content.decode()
    form = {"auth": "bearer", "secret": "x"}
    assert as_olga.post(reverse("agent-credential", args=[agent.slug]), form).status_code == 400
    assert state_of(agent) == before


def test_a_remote_agent_is_removed(as_olga, echo):
    page = act(as_olga, echo, "remove").content.decode()
    assert "Echo is removed" in page
    assert not Agent.objects.exists()


def test_one_that_tasks_refer_to_stays(as_olga, alice, echo):
    start(alice, echo)
    assert "Tasks refer to that agent" in act(as_olga, echo, "remove").content.decode()
    assert Agent.objects.exists()


def test_a_credential_is_given_replaced_and_forgotten(as_olga, echo):
    for secret in ("one", "two"):
        form = {"auth": "basic", "username": "me", "secret": secret}
        page = as_olga.post(reverse("agent-credential", args=["echo"]), form, follow=True).content.decode()
        assert "Echo has a new credential." in page
        assert "User name and password, as me" in page
        assert stored(echo).secret == secret
    act(as_olga, echo, "forget-credential")
    assert stored(echo) is None
    assert "had no credential" in act(as_olga, echo, "forget-credential").content.decode()


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"secret": "x1y2"}, "Choose what kind"),
        ({"auth": "bearer", "secret": ""}, "The secret is empty"),
        ({"auth": "api_key", "secret": "x1y2", "header": "Host"}, "cannot be the header"),
        ({"auth": "oauth2", "username": "me", "secret": "x1y2", "token_url": "http://10.0.0.1/"}, "private"),
    ],
)
def test_a_credential_that_cannot_be_used_changes_nothing(as_olga, echo, form, said):
    set_credential(echo, Secret("bearer", "before"))
    page = as_olga.post(reverse("agent-credential", args=["echo"]), form)
    assert page.status_code == 400
    assert said in page.content.decode()
    assert "x1y2" not in page.content.decode()
    assert stored(echo).secret == "before"


def test_a_probe_is_asked_for_once_and_its_reasons_are_shown(as_olga, echo):
    assert "The probe is on its way." in act(as_olga, echo, "probe").content.decode()
    page = act(as_olga, echo, "probe").content.decode()
    assert 'hx-trigger="every 2s"' in page
    waiting = ProbeResult.objects.get()
    assert (waiting.state, waiting.score) == ("waiting", None)
    part = reverse("agent-probe", args=["echo"])
    assert [as_olga.get(part, {"seen": seen}).status_code for seen in ("waiting", "running")] == [204, 200]
    run_probe(waiting.pk)
    part = as_olga.get(part, {"seen": "waiting"}).content.decode()
    assert "100 of 100" in part
    assert "Refused as the protocol says." in part
    assert "hx-trigger" not in part


def test_a_probe_that_could_not_be_made_says_why(as_olga, echo):
    set_credential(echo, Secret("bearer", "x"))
    Credential.objects.update(secret="broken")
    act(as_olga, echo, "probe")
    run_probe(ProbeResult.objects.get().pk)
    page = as_olga.get(reverse("agent", args=["echo"])).content.decode()
    assert "The probe could not be made. The stored credential cannot be decrypted" in page


def test_the_page_shows_how_it_is(as_olga, alice, echo):
    Health.objects.update(
        failures=7, opened_at=timezone.now(), retry_at=timezone.now() + timedelta(hours=30), latency=0.25
    )
    record_delegation(echo, "echo-1", ok=True, seconds=2)
    record_delegation(echo, "echo-1", ok=False, seconds=4)
    remember(Outgoing([{"text": "Say parrot"}], message_id="m"), url="https://x/", name="Echo", agent=echo)
    end(start(alice, echo, "A task for it"))
    page = as_olga.get(reverse("agent", args=["echo"])).content.decode()
    for said in ("left alone", "tried again at", "250 ms", "50 % of 2 succeeded", "Say parrot", "A task for it"):
        assert said in page
    listed = as_olga.get(reverse("agents")).content.decode()
    assert "Failed 7 times in a row; tried again at" in listed
    assert "Echo" in as_olga.get(reverse("agents"), {"show": "look"}).content.decode()
    assert "No agents" in as_olga.get(reverse("agents"), {"show": "disabled"}).content.decode()


def test_people_see_it_without_what_is_the_operators(as_alice, alice, bob, echo):
    set_credential(echo, Secret("basic", "s3cret", username="our-account"))
    remember(Outgoing([{"text": "For Bob"}], message_id="m"), url="https://x/", name="Echo", agent=echo, principal="b")
    end(start(bob, echo, "Bob's own"))
    page = as_alice.get(reverse("agent", args=["echo"])).content.decode()
    assert "Repeat this" in page
    for secret in (echo.url, echo.card_url, "our-account", "For Bob", "Bob&#x27;s own", "/do/", "Conformance"):
        assert secret not in page


def test_people_are_told_of_an_agent_only_while_they_may_use_it(as_alice, as_olga, echo):
    quarantine(echo.pk, "It changed.")
    assert as_alice.get(reverse("agent", args=["echo"])).status_code == 404
    assert "Echo" not in as_alice.get(reverse("agents")).content.decode()
    assert "It changed." in as_olga.get(reverse("agents")).content.decode()
    assert as_alice.get(reverse("agents"), {"show": "look"}).status_code == 404


@pytest.mark.parametrize("verb", [*VERBS, "credential"])
def test_nobody_else_changes_anything(client, as_alice, as_olga, remote, echo, verb):
    set_credential(echo, Secret("bearer", "x"))
    remote.card["skills"] = []
    refresh_agent(echo)
    before = state_of(echo)
    address = reverse("agent-act", args=["echo", verb])
    if verb == "credential":
        address = reverse("agent-credential", args=["echo"])
    form = {"revision": "2", "auth": "bearer", "secret": "y"}
    assert as_alice.post(address, form).status_code == 403
    assert client.post(address, form).status_code == 302
    assert as_olga.get(address).status_code == 405
    assert state_of(echo) == before


def test_an_unknown_act_is_none(as_olga, echo):
    assert act(as_olga, echo, "explode").status_code == 404


def test_others_may_not_look_at_probes(as_alice, echo):
    assert as_alice.get(reverse("agent-probe", args=["echo"])).status_code == 403


def test_the_memory_is_everybodys_own_and_the_operators_to_clear(as_alice, alice, as_olga, echo):
    for who, text in ((f"user:{alice.pk}", "Alice asked"), ("client:9", "A program asked")):
        remember(Outgoing([{"text": text}], message_id="m"), url="https://x/", name="Echo", agent=echo, principal=who)
    own, everything = (client.get(reverse("memory")).content.decode() for client in (as_alice, as_olga))
    assert ("Alice asked" in own, "A program asked" in own) == (True, False)
    assert ("Alice asked" in everything, "A program asked" in everything) == (True, True)
    assert as_alice.get(reverse("clear-memory")).status_code == 405
    assert "1 request was forgotten" in as_alice.post(reverse("clear-memory"), follow=True).content.decode()
    assert OutgoingRequest.objects.get().principal == "client:9"
    assert "1 request was forgotten" in as_olga.post(reverse("clear-memory"), follow=True).content.decode()
    assert "Nothing is remembered" in as_olga.get(reverse("memory")).content.decode()
