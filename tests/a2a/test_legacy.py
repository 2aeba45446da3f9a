"""The methods from before `message/send`: the sender names the task."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tasks.models import Message, Task
from tasks.results import plain
from tests.a2a.peer import envelope
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.both_databases


@pytest.fixture
def old(as_peer):
    return as_peer("old", version="", slug="echo")


def params(text="Hello there", name="my-task", **fields):
    return {"id": name, "message": {"role": "user", "parts": [{"type": "text", "text": text}]}, **fields}


def test_send(old, worker):
    task = old.result("tasks/send", params(sessionId="s-1", metadata={"a": 1}))

    timestamp = task["status"].pop("timestamp")
    assert timestamp.endswith("Z")
    assert task == {
        "id": "my-task",
        "sessionId": "s-1",
        "status": {"state": "completed"},
        "artifacts": [{"index": 0, "name": "echo", "parts": [{"type": "text", "text": "Hello there"}]}],
        "metadata": {"a": 1},
    }


def test_send_subscribe(old, worker):
    with old.stream("tasks/sendSubscribe", params()) as stream:
        events = [event for _, event in stream]

    assert [event["id"] for event in events] == ["my-task"] * 4
    assert [event.get("final") for event in events] == [False, False, None, True]
    assert [event["status"]["state"] for event in events if "status" in event] == ["submitted", "working", "completed"]
    assert events[2]["artifact"]["parts"] == [{"type": "text", "text": "Hello there"}]
    assert events[2]["artifact"]["lastChunk"] is True


def test_get(old, worker):
    task = old.result("tasks/send", params(historyLength=5))

    assert task["history"][0] == {"role": "user", "parts": [{"type": "text", "text": "Hello there"}]}
    assert old.result("tasks/get", {"id": "my-task", "historyLength": 5}) == task
    assert old.error("tasks/get", {"id": "another"})["code"] == -32001


def test_cancel(old, take):
    with old.stream("tasks/sendSubscribe", params()) as stream:
        next(stream)
        assert old.result("tasks/cancel", {"id": "my-task"})["status"]["state"] == "canceled"

    assert old.error("tasks/cancel", {"id": "my-task"})["code"] == -32002
    assert old.error("tasks/cancel", {"id": "another"})["code"] == -32001


def test_the_same_id_again_is_a_follow_up(old, take, meanwhile):
    from tasks.results import finish

    asked = meanwhile(old.result, "tasks/send", params())
    finish(take(), Task.State.INPUT_REQUIRED, message=plain("Which one?"))
    assert asked.result(PATIENCE)["status"]["message"] == {
        "role": "agent",
        "parts": [{"type": "text", "text": "Which one?"}],
    }

    answered = meanwhile(old.result, "tasks/send", params("That one"))
    finish(take(), Task.State.COMPLETED, message=plain("Thanks."))
    assert answered.result(PATIENCE)["status"]["state"] == "completed"
    assert (Task.objects.count(), Message.objects.filter(role="user").count()) == (1, 2)
    assert old.error("tasks/send", params("More"))["code"] == -32004


def test_names_are_the_senders_own(old, as_peer, worker):
    other = as_peer("other", version="", slug="echo")
    old.result("tasks/send", params("one"))

    assert other.error("tasks/get", {"id": "my-task"})["code"] == -32001
    assert other.result("tasks/send", params("two"))["artifacts"][0]["parts"][0]["text"] == "two"
    assert Task.objects.count() == 2


def test_a_task_of_0_3_keeps_its_shape(old, worker):
    task = old.result(
        "message/send",
        {"message": {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "x"}]}},
    )

    assert old.result("tasks/get", {"id": task["id"]})["kind"] == "task"


def test_files_and_data(old, worker):
    parts = [
        {"type": "file", "file": {"name": "a.txt", "mimeType": "text/plain", "bytes": "aGVsbG8="}},
        {"type": "file", "file": {"uri": "https://example.org/x"}},
        {"type": "data", "data": {"a": 1}, "metadata": {"b": 2}},
    ]
    asked = params(historyLength=1)
    asked["message"]["parts"] += parts
    task = old.result("tasks/send", asked)

    assert next(message for message in task["history"] if message["role"] == "user")["parts"][1:] == parts


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"id": ""}, -32602),
        ({"message": {"role": "user", "parts": []}}, -32602),
        ({"message": {"role": "agent", "parts": [{"type": "text", "text": "x"}]}}, -32602),
        ({"message": {"role": "user", "parts": [{"type": "file", "file": {}}]}}, -32602),
        ({"message": {"role": "user", "parts": [{"type": "file", "file": {"bytes": "?"}}]}}, -32602),
        ({"historyLength": -1}, -32602),
        ({"pushNotification": {"url": "https://example.org"}}, -32003),
    ],
)
def test_what_is_refused(old, change, code):
    assert old.error("tasks/send", params() | change)["code"] == code
    assert not Task.objects.exists()


@pytest.mark.parametrize("path", ["/.well-known/agent.json", "/a2a/echo/.well-known/agent.json"])
def test_its_card(url, path, settings):
    settings.BUREAU_ALLOW_ANONYMOUS = False
    card = httpx.get(url + path).json()

    assert card["url"] == url + path.replace("/.well-known/agent.json", "/" if "a2a" in path else "/a2a/")
    assert card["capabilities"] == {"streaming": True, "pushNotifications": False, "stateTransitionHistory": False}
    assert card["authentication"] == {"schemes": ["bearer"]}
    assert card["skills"][0]["examples"]


def test_two_first_messages_at_once_begin_one_task(old, as_peer, worker):
    again = as_peer("old", version="", slug="echo")
    with ThreadPoolExecutor(2) as pool:
        replies = list(
            pool.map(lambda peer: peer.post(envelope("tasks/send", params())).json(), (old, again)),
        )

    # The later one is a follow-up, unless the task has ended by then.
    assert [reply for reply in replies if "result" in reply]
    assert all(reply["error"]["code"] == -32004 for reply in replies if "error" in reply), replies
    assert Task.objects.count() == 1


def test_the_loser_of_two_first_messages_becomes_a_follow_up(old, monkeypatch, take, meanwhile):
    """It saw no task of that name, and there was one by the time it wrote."""
    from bureau.a2a import legacy
    from tasks.exceptions import TaskNotFound
    from tasks.results import finish

    first = meanwhile(old.result, "tasks/send", params())
    claim = take()
    real, looks = legacy.fetch_task, []

    def late(*args, **kwargs):
        looks.append(args)
        if len(looks) == 1:
            raise TaskNotFound
        return real(*args, **kwargs)

    monkeypatch.setattr(legacy, "fetch_task", late)
    second = meanwhile(old.result, "tasks/send", params("more"))
    wait_until(lambda: Message.objects.filter(role="user").count() == 2, what="the follow-up")
    finish(claim, Task.State.FAILED, message=plain("Enough."), even_unread=True)

    assert first.result(PATIENCE)["status"]["state"] == second.result(PATIENCE)["status"]["state"] == "failed"
    assert (Task.objects.count(), len(looks)) == (1, 2)
