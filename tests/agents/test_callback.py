"""The address at which remote agents tell us that something has happened."""

from datetime import timedelta

import pytest
from django.utils import timezone

from agents import following, runtime
from agents.models import RemoteLeg
from directory.enrolment import add_remote_agent
from directory.services import hash_key
from tasks.aio import in_db
from tasks.content import Incoming
from tasks.models import Task
from tasks.services import send_message
from tests.support.cast import ALICE
from tests.support.remote_agents import Slow, remote_agent

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def leg(settings, valkey):
    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8",)
    with remote_agent(Slow(), capabilities={"pushNotifications": True}) as remote:
        send_message(ALICE, add_remote_agent(remote.url), Incoming.from_text("Hello"))
        runtime.drain("default")
        leg = RemoteLeg.objects.get()
        assert leg.callback_hash
        leg.callback_hash, leg.due_at = hash_key("secret"), timezone.now() + timedelta(hours=1)
        leg.save()
        yield leg


@pytest.mark.parametrize("header", [{"X-A2A-Notification-Token": "secret"}, {"Authorization": "Bearer secret"}])
def test_it_makes_the_leg_due_and_believes_nothing(client, leg, header):
    body = {"statusUpdate": {"status": {"state": "TASK_STATE_COMPLETED"}}}
    answer = client.post(f"/callbacks/{leg.pk}/", body, content_type="application/json", headers=header)
    assert answer.status_code == 204
    called = RemoteLeg.objects.get()
    assert called.due_at == called.pushed_at <= timezone.now()
    assert Task.objects.get().state == "working"


@pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer guess"}, {"X-A2A-Notification-Token": ""}])
def test_without_the_secret_nothing_is_there(client, leg, header):
    answer = client.post(f"/callbacks/{leg.pk}/", {}, content_type="application/json", headers=header)
    assert answer.status_code == 404
    assert RemoteLeg.objects.get().due_at == leg.due_at


def test_an_ended_leg_stays_as_it_is(client, leg):
    RemoteLeg.objects.update(phase="ended", due_at=None)
    headers = {"Authorization": "Bearer secret"}
    assert client.post(f"/callbacks/{leg.pk}/", {}, content_type="application/json", headers=headers).status_code == 204
    assert RemoteLeg.objects.get().due_at is None


def test_a_push_during_a_look_is_not_forgotten(client, leg, monkeypatch):
    """The answer may be older than what the push tells of."""
    original = following._ask_all

    async def called_meanwhile(ready, reports):
        answers = await original(ready, reports)
        headers = {"Authorization": "Bearer secret"}
        url = f"/callbacks/{leg.pk}/"
        await in_db(lambda: client.post(url, {}, content_type="application/json", headers=headers))
        return answers

    RemoteLeg.objects.update(due_at=timezone.now())
    monkeypatch.setattr(following, "_ask_all", called_meanwhile)
    assert following.follow_due() == 1
    monkeypatch.undo()
    called = RemoteLeg.objects.get()
    assert called.due_at == called.pushed_at
    assert following.follow_due() == 1
    # Without another one it is looked at later.
    assert RemoteLeg.objects.get().due_at > timezone.now()
    assert following.follow_due() == 0
