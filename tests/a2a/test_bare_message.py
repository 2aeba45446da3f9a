"""Agents that need no task: what they complete is answered as a message. Their tasks are on record all the same."""

import json

import pytest

from directory.models import Agent
from tasks.models import Task
from tasks.results import ArtifactDraft, finish, plain
from tests.a2a.peer import message, old_message
from tests.support.receivers import receiver
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.both_databases


@pytest.fixture(autouse=True)
def _quick(url):
    Agent.objects.filter(slug="echo").update(needs_task=False)


def test_it_is_a_message(alice, worker):
    result = alice.result("SendMessage", message("Hello there", contextId="mine"))
    said = result["message"]

    assert list(result) == ["message"]
    assert (said["role"], said["contextId"], said["parts"]) == ("ROLE_AGENT", "mine", [{"text": "Hello there"}])
    assert "taskId" not in said
    (task_id,) = said["referenceTaskIds"]
    assert alice.result("GetTask", {"id": task_id})["status"]["state"] == "TASK_STATE_COMPLETED"


def test_what_it_says_comes_before_what_it_delivers(alice, take, meanwhile):
    sent = meanwhile(alice.result, "SendMessage", message("x"))
    said = plain("Here it is:")
    finish(take(), Task.State.COMPLETED, message=said, artifacts=[ArtifactDraft("a", [{"data": {"b": 1}}])])

    found = sent.result(PATIENCE)["message"]
    assert (found["messageId"], found["parts"]) == (said["messageId"], [{"text": "Here it is:"}, {"data": {"b": 1}}])


def test_it_is_waited_for_although_nobody_wants_to_wait(alice, worker):
    result = alice.result("SendMessage", message("x", configuration={"returnImmediately": True}))

    assert result["message"]["parts"] == [{"text": "x"}]


def test_a_stream_is_this_message_and_nothing_else(alice, worker):
    with alice.stream("SendStreamingMessage", message("Hello there")) as stream:
        lines = [line for line in stream.response.iter_lines() if line]

    (line,) = lines
    assert json.loads(line.removeprefix("data: "))["result"]["message"]["parts"] == [{"text": "Hello there"}]


def test_it_has_heartbeats_until_then(alice, take, monkeypatch):
    for module in ("exchange", "sse"):
        monkeypatch.setattr(f"bureau.a2a.{module}.HEARTBEAT_SECONDS", 0.05)
    with alice.stream("SendStreamingMessage", message("x")) as stream:
        stream.wait_for_heartbeat()
        finish(take(), Task.State.COMPLETED, message=plain("Done."))
        ((_, result),) = list(stream)

    assert result["message"]["parts"] == [{"text": "Done."}]


@pytest.mark.parametrize("state", [Task.State.INPUT_REQUIRED, Task.State.FAILED])
def test_what_is_more_than_said_is_a_task(alice, take, meanwhile, state):
    sent = meanwhile(alice.send, "x")
    finish(take(), state, message=plain("What?"))
    assert sent.result(PATIENCE)["status"]["message"]["parts"] == [{"text": "What?"}]

    def stream():
        with alice.stream("SendStreamingMessage", message("x")) as events:
            return [next(iter(result)) for _, result in events]

    streamed = meanwhile(stream)
    finish(take(), state, message=plain("What?"))
    assert streamed.result(PATIENCE) == ["task"]


def test_an_answer_to_its_question_goes_to_the_task(alice, take, meanwhile):
    asked = meanwhile(alice.send, "x")
    finish(take(), Task.State.INPUT_REQUIRED, message=plain("What?"))
    answered = meanwhile(alice.send, "This", taskId=asked.result(PATIENCE)["id"])
    finish(take(), Task.State.COMPLETED, message=plain("Thanks."))

    assert answered.result(PATIENCE)["status"]["state"] == "TASK_STATE_COMPLETED"


def test_who_wants_to_be_told_of_its_events_gets_the_task(alice, worker, settings):
    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8",)
    with receiver() as hook:
        assert alice.send("x", configuration={"taskPushNotificationConfig": {"url": hook.url}})["id"]


def test_silence_is_a_task(alice, take, meanwhile):
    sent = meanwhile(alice.send, "x")
    finish(take(), Task.State.COMPLETED)

    assert sent.result(PATIENCE)["status"]["state"] == "TASK_STATE_COMPLETED"


def test_on_http_json(alice, worker):
    headers = {"A2A-Version": "1.0", "Content-Type": "application/a2a+json"}
    sent = alice.http.post("/a2a/echo/message:send", json=message("Hi"), headers=headers).json()
    streamed = alice.http.post("/a2a/echo/message:stream", json=message("Hi"), headers=headers).text

    assert sent["message"]["parts"] == [{"text": "Hi"}]
    assert json.loads(streamed.removeprefix("data: "))["message"]["parts"] == [{"text": "Hi"}]


def test_in_0_3(as_peer, worker):
    old = as_peer("old", version="0.3", slug="echo")
    said = old.result("message/send", old_message("Hi"))
    with old.stream("message/stream", old_message("Hi")) as stream:
        ((_, streamed),) = list(stream)

    assert (said["kind"], said["role"], said["parts"]) == ("message", "agent", [{"kind": "text", "text": "Hi"}])
    assert (streamed["kind"], streamed["parts"]) == ("message", said["parts"])
    body = {"request": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "Hi"}]}}
    rest = old.http.post("/a2a/echo/v1/message:send", json=body).json()
    assert rest["message"]["content"] == [{"text": "Hi"}]


def test_the_older_protocol_knows_tasks_only(as_peer, worker):
    older = as_peer("older", version="", slug="echo")
    params = {"id": "mine", "message": {"role": "user", "parts": [{"type": "text", "text": "Hi"}]}}

    assert older.result("tasks/send", params)["status"]["state"] == "completed"


def test_a_caller_that_leaves_loses_nothing(alice, take):
    with alice.http.stream("POST", alice.path, content=b"{}") as _:
        pass
    alice.send_and_go(message("x"), Task.objects.exists)
    finish(take(), Task.State.COMPLETED, message=plain("Done."))

    assert alice.result("ListTasks")["tasks"][0]["status"]["message"]["parts"] == [{"text": "Done."}]
