"""SubscribeToTask: the task as it is, then what happens; or exactly what happened behind Last-Event-ID."""

import uuid

import pytest

from tasks.models import Event, Task
from tasks.results import ArtifactDraft, finish, note, plain, say, stream_chunk
from tests.a2a.peer import message, texts

pytestmark = pytest.mark.both_databases


def subscribe(peer, task_id, last=None):
    return peer.stream("SubscribeToTask", {"id": task_id}, {"Last-Event-ID": str(last)} if last is not None else None)


def test_it_begins_with_the_task_as_it_is(alice, take):
    task = alice.submit("Write a poem")
    claim = take()
    stream_chunk(claim, "poem", "Roses ", is_first=True)
    with subscribe(alice, task["id"]) as stream:
        number, first = next(stream)
        stream_chunk(claim, "poem", "are red", is_first=False)
        _, second = next(stream)
        draft = ArtifactDraft("poem", [{"text": "Roses are red"}], is_streamed=True)
        finish(claim, Task.State.COMPLETED, artifacts=[draft])
        rest = list(stream)

    assert number == 3
    assert first["task"]["status"]["state"] == "TASK_STATE_WORKING"
    assert texts(first["task"]) == ["Roses "]
    assert second["artifactUpdate"]["artifact"]["parts"] == [{"text": "are red"}]
    assert rest[-1][1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_all_subscribers_see_the_same(alice, as_peer, take):
    task = alice.submit("x")
    again = as_peer("alice", slug="echo")
    with subscribe(alice, task["id"]) as one, subscribe(again, task["id"]) as other:
        next(one), next(other)
        claim = take()
        say(claim, plain("Half way"))
        finish(claim, Task.State.COMPLETED)
        assert list(one) == list(other)


def test_it_follows_a_task_that_waits_for_an_answer(alice, take):
    task = alice.submit("x")
    finish(take(), Task.State.INPUT_REQUIRED, message=plain("What?"))
    with subscribe(alice, task["id"]) as stream:
        assert next(stream)[1]["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        alice.submit("This", taskId=task["id"])
        finish(take(), Task.State.COMPLETED)
        states = [result["statusUpdate"]["status"]["state"] for _, result in stream]

    assert states == ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]


def test_it_refuses_a_task_that_has_ended(alice, worker):
    task = alice.send("x")

    assert alice.error("SubscribeToTask", {"id": task["id"]})["code"] == -32004


def test_others_are_told_that_there_is_no_such_task(alice, bob):
    task = alice.submit("mine")

    theirs = bob.error("SubscribeToTask", {"id": task["id"]})
    assert theirs == bob.error("SubscribeToTask", {"id": str(uuid.uuid4())})
    assert theirs["code"] == -32001
    assert bob.error("SubscribeToTask", {"id": task["id"]}, headers={"Last-Event-ID": "1"}) == theirs


def test_it_resumes_without_gap_or_duplicate(alice, take):
    with alice.stream("SendStreamingMessage", message("x")) as stream:
        _, first = next(stream)
        claim = take()
        say(claim, plain("one"))
        seen = [next(stream), next(stream)]
    task_id = first["task"]["id"]
    say(claim, plain("two"))
    note(claim, Event.Kind.TOOL, 1)
    with subscribe(alice, task_id, last=seen[-1][0]) as stream:
        seen.append(next(stream))
        say(claim, plain("three"))
        finish(claim, Task.State.COMPLETED)
        seen += list(stream)

    assert [each for each, _ in seen] == [2, 3, 4, 6, 7]
    said = [result["statusUpdate"]["status"].get("message", {}).get("parts") for _, result in seen]
    assert said == [None, [{"text": "one"}], [{"text": "two"}], [{"text": "three"}], None]


def test_it_resumes_at_once_when_there_is_nothing_new(alice, take):
    task = alice.submit("x")
    with subscribe(alice, task["id"], last=1) as stream:
        finish(take(), Task.State.COMPLETED)
        assert [number for number, _ in stream] == [2, 3]


def test_it_still_tells_the_end_to_who_was_away(alice, worker):
    task = alice.send("Hello there")
    with subscribe(alice, task["id"], last=2) as stream:
        events = list(stream)

    assert [number for number, _ in events] == [3, 4]
    assert events[-1][1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_there_is_nothing_to_resume_behind_the_end(alice, worker):
    task = alice.send("x")
    last = Task.objects.get(pk=task["id"]).last_seq

    assert alice.error("SubscribeToTask", {"id": task["id"]}, headers={"Last-Event-ID": str(last)})["code"] == -32004


@pytest.mark.parametrize("last", ["99", "-1", "nonsense", "1.5", "9" * 30, "²"])
def test_it_refuses_an_event_id_that_is_none(alice, last):
    task = alice.submit("x")
    error = alice.error("SubscribeToTask", {"id": task["id"]}, headers={"Last-Event-ID": last.encode()})

    assert error["code"] == -32602


@pytest.mark.parametrize("params", [{}, {"id": ""}, {"id": 7}])
def test_it_refuses_wrong_parameters(alice, params):
    assert alice.error("SubscribeToTask", params)["code"] == -32602
