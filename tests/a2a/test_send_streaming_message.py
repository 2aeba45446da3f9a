"""SendStreamingMessage: begins with the task, ends when it has ended or waits for somebody."""

import pytest

from tasks.models import Event, Task
from tasks.results import ArtifactDraft, finish, note, plain, say, stream_chunk
from tests.a2a.peer import message

pytestmark = pytest.mark.both_databases


def kinds(events):
    return [next(iter(result)) for _, result in events]


def test_it_tells_everything_in_order(alice, worker):
    with alice.stream("SendStreamingMessage", message("Hello there")) as stream:
        events = list(stream)

    assert kinds(events) == ["task", "statusUpdate", "artifactUpdate", "statusUpdate"]
    task, working, artifact, completed = (next(iter(result.values())) for _, result in events)
    assert task["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert task["history"][0]["parts"] == [{"text": "Hello there"}]
    assert working["status"]["state"] == "TASK_STATE_WORKING"
    assert artifact["artifact"]["parts"] == [{"text": "Hello there"}]
    assert artifact["lastChunk"] is True
    assert completed["status"]["state"] == "TASK_STATE_COMPLETED"
    assert {update["taskId"] for update in (working, artifact, completed)} == {task["id"]}
    assert {update["contextId"] for update in (working, artifact, completed)} == {task["contextId"]}


def test_its_ids_are_the_numbers_of_the_events(alice, worker):
    with alice.stream("SendStreamingMessage", message("Hello there")) as stream:
        assert [number for number, _ in stream] == [1, 2, 3, 4]


def test_its_headers_keep_proxies_from_holding_it_back(alice, worker):
    with alice.stream("SendStreamingMessage", message("x")) as stream:
        assert stream.response.headers["cache-control"] == "no-store"
        assert stream.response.headers["x-accel-buffering"] == "no"


def test_it_sends_chunks_as_they_come(alice, take):
    with alice.stream("SendStreamingMessage", message("Write a poem")) as stream:
        next(stream)
        claim = take()
        next(stream)
        for number, text in enumerate(["Roses ", "are ", "red."]):
            stream_chunk(claim, "poem", text, is_first=not number)
            update = next(stream)[1]["artifactUpdate"]
            assert update["artifact"]["parts"] == [{"text": text}]
            assert update.get("append", False) is bool(number)
        draft = ArtifactDraft("poem", [{"text": "Roses are red."}], is_streamed=True)
        finish(claim, Task.State.COMPLETED, artifacts=[draft])

        closing = next(stream)[1]["artifactUpdate"]
        assert (closing["append"], closing["lastChunk"]) == (True, True)
        assert closing["artifact"]["parts"] == [{"text": ""}]
        assert next(stream)[1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert list(stream) == []


def test_it_tells_progress_and_keeps_what_is_internal(alice, take):
    with alice.stream("SendStreamingMessage", message("x")) as stream:
        next(stream)
        claim = take()
        next(stream)
        note(claim, Event.Kind.DECISION, 1)
        say(claim, plain("Half way"))

        number, result = next(stream)
        assert number == 4
        assert result["statusUpdate"]["status"]["message"]["parts"] == [{"text": "Half way"}]
        finish(claim, Task.State.COMPLETED)
        assert len(list(stream)) == 1


@pytest.mark.parametrize("state", ["INPUT_REQUIRED", "AUTH_REQUIRED", "FAILED", "REJECTED"])
def test_it_ends_with_other_ends_and_with_questions(alice, take, state):
    with alice.stream("SendStreamingMessage", message("x")) as stream:
        finish(take(), Task.State[state], message=plain("Because"))
        *_, (_, last) = stream

    assert last["statusUpdate"]["status"]["state"] == f"TASK_STATE_{state}"


def test_a_follow_up_begins_behind_what_was_before(alice, take):
    asked = alice.submit("Book a flight")
    finish(take(), Task.State.INPUT_REQUIRED, message=plain("Where to?"))
    with alice.stream("SendStreamingMessage", message("Rome", taskId=asked["id"])) as stream:
        number, first = next(stream)
        finish(take(), Task.State.COMPLETED)
        rest = list(stream)

    assert first["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert len(first["task"]["history"]) == 3
    assert [each["statusUpdate"]["status"]["state"] for _, each in rest] == [
        "TASK_STATE_WORKING",
        "TASK_STATE_COMPLETED",
    ]
    assert [each for each, _ in rest] == [number + 1, number + 2]


def test_what_is_refused_is_refused_as_a_plain_reply(alice, worker):
    task = alice.send("done")

    assert alice.error("SendStreamingMessage", message("more", taskId=task["id"]))["code"] == -32004
    assert alice.error("SendStreamingMessage", message())["code"] == -32602


def test_a_stream_whose_task_is_deleted_says_so(alice, monkeypatch):
    from tasks import follow

    monkeypatch.setattr(follow, "HEARTBEAT_SECONDS", 0.1)
    with alice.stream("SendStreamingMessage", message("x")) as stream:
        next(stream)
        Event.objects.all().delete()
        Task.objects.all().delete()
        with pytest.raises(KeyError, match="result"):
            next(stream)


def test_an_idle_stream_shows_that_it_is_alive(alice, take, monkeypatch):
    from bureau.a2a import sse

    monkeypatch.setattr(sse, "HEARTBEAT_SECONDS", 0.05)
    with alice.stream("SendStreamingMessage", message("x")) as stream:
        next(stream)
        for _ in range(3):
            stream.wait_for_heartbeat()
        finish(take(), Task.State.COMPLETED)
        assert kinds(stream)[-1] == "statusUpdate"
