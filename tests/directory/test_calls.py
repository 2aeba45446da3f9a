"""Asking remote agents from synchronous code: what is sent, and what is kept of it."""

import pytest
from django.db import DatabaseError
from django.utils import timezone

from directory import calls, memory
from directory.credentials import Secret
from directory.enrolment import add_remote_agent
from directory.exceptions import (
    AccessDenied,
    AgentDisabled,
    AgentQuarantined,
    CircuitOpen,
    CredentialUnreadable,
    NotRemote,
    OperationNotSupported,
    RemoteTaskNotFound,
    ServerFailed,
)
from directory.models import Agent, Health, OutgoingRequest
from directory.wire import Outgoing
from tests.support.remote_agents import RPC, V03, Asker, Slow, Talker, remote_agent

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


def hello(text="hello", **fields):
    return Outgoing([{"text": text}], **{"message_id": ""} | fields)


@pytest.fixture
def remote():
    with remote_agent(Slow()) as agent:
        yield agent


def test_it_sends_and_remembers(agent):
    task = calls.send(agent, hello(), principal="user:1", sender="coordinator")
    assert task.state in {"submitted", "working"}
    row = OutgoingRequest.objects.get()
    assert (row.agent, row.agent_name, row.principal, row.sender) == (agent, "Echo", "user:1", "coordinator")
    assert (row.task_id, row.context_id, row.state) == (task.id, task.context_id, task.state)
    assert row.message_id
    assert row.request == [{"text": "hello"}]
    health = Health.objects.get()
    assert health.latency > 0
    calls.cancel_task(agent, task.id)
    row.refresh_from_db()
    assert row.state == "canceled"


def test_it_gets_and_cancels_and_lists(agent):
    task = calls.send(agent, hello())
    assert calls.get_task(agent, task.id).id == task.id
    found, _ = calls.list_tasks(agent, context_id=task.context_id)
    assert [item.id for item in found] == [task.id]
    assert calls.cancel_task(agent, task.id).state == "canceled"
    with pytest.raises(RemoteTaskNotFound):
        calls.get_task(agent, "nothing")
    with pytest.raises(OperationNotSupported):
        calls.extended_card(agent)


def test_an_answer_goes_into_the_same_task():
    with remote_agent(Asker(), interfaces=((RPC, V03),)) as remote:
        agent = add_remote_agent(remote.url)
        asking = calls.send(agent, hello(), wait=True)
        task = calls.send(agent, hello("Ada", task_id=asking.id, context_id=asking.context_id), wait=True)
    assert (task.id, task.state) == (asking.id, "completed")
    assert [row.answer for row in memory.recent()] == [[{"text": "Hello, Ada!"}], [{"text": "What is your name?"}]]


def test_a_bare_message_is_remembered_too():
    with remote_agent(Talker()) as remote:
        calls.send(add_remote_agent(remote.url), hello(), wait=True)
    assert OutgoingRequest.objects.get().answer == [{"text": "You said: hello"}]


def test_a_credential_is_used():
    with remote_agent(key="s3cret") as remote:
        agent = add_remote_agent(remote.url)
        with pytest.raises(AccessDenied):
            calls.send(agent, hello())
        agent.delete()
        agent = add_remote_agent(remote.url, secret=Secret("api_key", "s3cret"))
        assert calls.send(agent, hello(), wait=True).state == "completed"


def test_a_failure_is_remembered_and_counted(remote, agent):
    remote.failures = 1
    with pytest.raises(ServerFailed):
        calls.send(agent, hello())
    assert "HTTP 500" in OutgoingRequest.objects.get().error
    health = Health.objects.get()
    assert (health.failures, health.last_error) == (1, "The server failed to handle the request (HTTP 500).")


def test_after_enough_failures_it_is_left_alone(remote, agent):
    remote.failures = 100
    for _ in range(5):
        with pytest.raises(ServerFailed):
            calls.send(agent, hello())
    remote.requests.clear()
    with pytest.raises(CircuitOpen):
        calls.send(agent, hello())
    assert not remote.requests
    assert OutgoingRequest.objects.count() == 5


@pytest.mark.parametrize(
    ("fields", "error"),
    [({"is_enabled": False}, AgentDisabled), ({"quarantined_at": timezone.now()}, AgentQuarantined)],
)
def test_nothing_is_sent_to_whom_it_may_not(remote, agent, fields, error):
    task = calls.send(agent, hello())
    # What the caller holds is from before.
    Agent.objects.update(**fields)
    remote.requests.clear()
    with pytest.raises(error):
        calls.send(agent, hello())
    assert not remote.requests
    assert OutgoingRequest.objects.count() == 1
    # What was begun can be ended all the same.
    assert calls.cancel_task(agent, task.id).state == "canceled"


def test_an_agent_that_is_gone_is_not_called(remote, agent):
    Agent.objects.filter(pk=agent.pk).delete()
    remote.requests.clear()
    with pytest.raises(AgentDisabled):
        calls.send(agent, hello())
    assert not remote.requests


def test_a_database_that_fails_afterwards_does_not_undo_the_call(agent, monkeypatch, caplog):
    def fail(*args):
        raise DatabaseError

    monkeypatch.setattr(memory, "note_answer", fail)
    monkeypatch.setattr(calls, "record_call", fail)
    assert calls.send(agent, hello()).id
    assert caplog.text.count("A call could not be recorded") == 2


def test_a_local_agent_is_not_called():
    agent = Agent.objects.create(slug="local", name="Local", handler="x")
    with pytest.raises(NotRemote):
        calls.send(agent, hello())
    assert not OutgoingRequest.objects.exists()


def test_a_credential_that_cannot_be_read_stops_it(remote, settings):
    agent = add_remote_agent(remote.url, secret=Secret("bearer", "x"))
    settings.SECRET_KEY = "another"
    remote.requests.clear()
    with pytest.raises(CredentialUnreadable):
        calls.send(agent, hello())
    assert not remote.requests
    assert not OutgoingRequest.objects.exists()
