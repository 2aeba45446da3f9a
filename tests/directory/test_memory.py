"""The rolling memory: outgoing requests and their answers, newest first, bounded, and cleared on demand."""

from datetime import timedelta

import pytest
from django.utils import timezone

from directory import memory
from directory.exceptions import TimedOut
from directory.models import Agent, OutgoingRequest
from directory.wire import Outgoing, RemoteMessage, RemoteTask

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


@pytest.fixture
def agent():
    return Agent.objects.create(slug="remote", name="Remote", kind="remote")


def remember(agent, text="hello", principal="user:1"):
    message = Outgoing([{"text": text}], message_id="m")
    return memory.remember(message, url="https://x/", name="Remote", agent=agent, principal=principal)


def texts(rows):
    return [row.request[0]["text"] for row in rows]


def test_the_newest_come_first(agent):
    for text in "abc":
        remember(agent, text)
    assert texts(memory.recent()) == ["c", "b", "a"]
    assert texts(memory.recent(limit=2)) == ["c", "b"]


def test_it_is_kept_apart_by_principal(agent):
    remember(agent, "mine")
    remember(agent, "yours", principal="user:2")
    assert texts(memory.recent("user:1")) == ["mine"]
    assert memory.clear("user:1") == 1
    assert texts(memory.recent()) == ["yours"]
    assert memory.clear() == 1
    assert not OutgoingRequest.objects.exists()


def test_it_is_bounded_by_number(agent, monkeypatch):
    monkeypatch.setattr(memory, "MAX_REQUESTS", 3)
    for text in "abcde":
        remember(agent, text)
    assert texts(OutgoingRequest.objects.all()) == ["e", "d", "c"]


def test_it_is_bounded_by_age(agent):
    remember(agent, "old")
    OutgoingRequest.objects.update(created_at=timezone.now() - memory.MAX_AGE - timedelta(minutes=1))
    assert texts(memory.recent()) == []
    remember(agent, "new")
    assert texts(OutgoingRequest.objects.all()) == ["new"]


def test_answers_are_noted_as_they_come(agent):
    first = remember(agent)
    task = RemoteTask("t", "c", "working")
    memory.note_answer(first, task)
    done = RemoteTask("t", "c", "completed", artifacts=[{"artifactId": "a", "parts": [{"text": "done"}]}])
    memory.note_task(agent, done)
    row = OutgoingRequest.objects.get()
    assert (row.task_id, row.context_id, row.state, row.answer) == ("t", "c", "completed", [{"text": "done"}])
    assert row.answered_at


def test_a_bare_message_and_an_error_are_answers_too(agent):
    memory.note_answer(remember(agent), RemoteMessage({"messageId": "x", "role": "agent", "parts": [{"text": "hi"}]}))
    memory.note_error(remember(agent), TimedOut())
    late, early = memory.recent()
    assert early.answer == [{"text": "hi"}]
    assert late.error == "The server did not answer in time."


def test_what_is_forgotten_stays_forgotten(agent):
    pk = remember(agent)
    memory.clear()
    memory.note_answer(pk, RemoteTask("t", "c", "working"))
    memory.note_task(agent, RemoteTask("t", "c", "working"))
    memory.note_error(pk, TimedOut())
    assert not OutgoingRequest.objects.exists()


def test_what_came_in_is_never_there(agent):
    """A task that some agent of ours was asked for is not asked for by us."""
    memory.note_task(agent, RemoteTask("t", "c", "completed"))
    assert not OutgoingRequest.objects.exists()


def test_long_text_and_bytes_are_cut(agent):
    parts = [{"raw": "A" * 100_000, "filename": "a.bin"}, {"text": "x" * 100_000}, {"text": "never seen"}]
    pk = memory.remember(Outgoing(parts, message_id="m"), url="https://x/", name="Remote", agent=agent)
    memory.note_answer(pk, RemoteMessage({"messageId": "x", "role": "agent", "parts": parts}))
    row = OutgoingRequest.objects.get()
    for kept in (row.request, row.answer):
        assert kept[0] == {"raw": "…", "filename": "a.bin"}
        assert len(kept[1]["text"]) <= memory.MAX_TEXT + 1
        assert len(kept) == 2


def test_it_survives_the_agent(agent):
    remember(agent)
    agent.delete()
    row = OutgoingRequest.objects.get()
    assert (row.agent, row.agent_name) == (None, "Remote")
