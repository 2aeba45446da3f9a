"""Staff who may look at everything, and change what Django's permissions say: as in the admin."""

import re
import uuid

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from agents.outcomes import Blocked
from agents.runtime import as_state
from directory.memory import remember
from directory.models import Agent, Credential, OutgoingRequest, ProbeResult
from directory.wire import Outgoing
from tasks.models import Task
from tasks.results import finish
from tests.support.cast import snapshot
from tests.support.people import make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def rita(db):
    """Staff, and nothing else; `rita("tasks.change_task")` gives her that permission."""
    user = make_user("rita")
    user.is_staff = True
    user.save()

    def signed_in(*permissions: str) -> Client:
        for name in permissions:
            app, _, codename = name.partition(".")
            user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
        client = Client()
        client.force_login(user)
        return client

    return signed_in


@pytest.fixture
def far(db):
    card = {"name": "Far", "skills": []}
    agent = Agent.objects.create(
        slug="far", name="Far", kind="remote", url="https://far.example/", binding="JSONRPC", card=card
    )
    agent.revisions.create(number=1, state="pending", card=card, found_at=timezone.now())
    Credential.objects.create(agent=agent, kind="bearer", secret="x")
    remember(Outgoing([{"text": "hi"}], "1"), url=agent.url, name="Far", agent=agent, principal="user:1", sender="x")
    return agent


def state_of(agent):
    return (
        Agent.objects.filter(pk=agent.pk).values().first(),
        list(agent.revisions.values_list("state", flat=True)),
        Credential.objects.count(),
        ProbeResult.objects.count(),
        OutgoingRequest.objects.count(),
    )


ACTS = {
    **dict.fromkeys(("refresh", "probe", "disable", "quarantine", "release"), "directory.change_remoteagent"),
    **dict.fromkeys(("accept", "reject"), "directory.change_cardrevision"),
    "forget-credential": "directory.delete_credential",
    "remove": "directory.delete_remoteagent",
}


@pytest.mark.parametrize(("verb", "permission"), ACTS.items())
def test_an_act_on_an_agent_needs_its_permission(rita, far, verb, permission):
    before = state_of(far)
    others = {"directory.view_agent", *ACTS.values()} - {permission}
    path = reverse("agent-act", args=["far", verb])
    client = rita(*others)
    assert client.post(path, {"revision": "1"}).status_code == 403
    assert path not in client.get(reverse("agent", args=["far"])).content.decode()
    assert state_of(far) == before
    assert rita(permission).post(path, {"revision": "1"}).status_code == 302


def test_so_do_credentials_new_agents_and_the_memory(rita, far):
    before = state_of(far)
    for name, arguments, permission in (
        ("agent-credential", ["far"], "directory.add_credential"),
        ("add-agent", [], "directory.add_remoteagent"),
        ("clear-memory", [], "directory.delete_outgoingrequest"),
    ):
        path = reverse(name, args=arguments)
        assert rita().post(path, {"url": "https://far.example/"}).status_code == 403
        assert state_of(far) == before
        assert rita(permission).post(path, {}).status_code in (302, 400)


def test_an_agent_of_ours_has_a_permission_of_its_own(rita, agent):
    path = reverse("agent-act", args=["assistant", "disable"])
    assert rita("directory.change_remoteagent").post(path).status_code == 403
    assert Agent.objects.get().is_enabled
    assert rita("directory.change_agent").post(path).status_code == 302
    assert not Agent.objects.get().is_enabled


def test_everything_can_be_looked_at_and_nothing_is_offered(rita, far, claim):
    client = rita()
    for path in ("/", "/agents/", "/agents/far/", "/memory/", "/questions/", f"/missions/{claim.task_id}/"):
        page = client.get(path)
        assert page.status_code == 200
        offered = set(re.findall(r'<form[^>]*method="post"[^>]*action="([^"]+)"', page.content.decode()))
        assert offered <= {reverse("logout")}, path


@pytest.fixture
def asked(claim):
    """The mission waits for an answer; the form of it."""
    state, message, _ = as_state(Blocked("", ["Which file?"]))
    finish(claim, state, message=message)
    message = Task.objects.get(pk=claim.task_id).status_message
    return {"token": str(uuid.uuid4()), "question": message["messageId"], "text": "that one"}


@pytest.mark.parametrize("name", ["say", "answer", "cancel"])
def test_a_mission_of_somebody_elses_needs_the_permission(rita, claim, asked, name):
    before = snapshot(claim.task_id)
    path = reverse(name, args=[claim.task_id])
    assert rita().post(path, asked).status_code == 403
    assert snapshot(claim.task_id) == before
    assert "It waits for alice" in rita().get("/questions/").content.decode()
    assert rita("tasks.change_task").post(path, asked).status_code == 302
    assert snapshot(claim.task_id) != before
