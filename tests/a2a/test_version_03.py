"""Protocol 0.3 at the same addresses: its names, its shapes, its errors."""

import base64

import pytest

from tasks.models import Task
from tasks.results import finish, plain
from tests.a2a.peer import message, old_message


@pytest.fixture
def old(as_peer):
    """Alice, with a program that has never heard of 1.0: it does not even name its version."""
    return as_peer("alice", version="", slug="echo")


def test_it_sends_and_waits(old, worker):
    task = old.result("message/send", old_message("Hello there"))

    assert task["kind"] == "task"
    assert task["status"]["state"] == "completed"
    assert task["status"]["timestamp"].endswith("Z")
    assert task["artifacts"][0]["parts"] == [{"kind": "text", "text": "Hello there"}]
    assert task["history"][0]["role"] == "user"
    assert task["history"][0]["kind"] == "message"


def test_nothing_is_null(old, worker):
    def nulls(value):
        if isinstance(value, dict):
            return any(nulls(each) for each in value.values())
        return value is None or (isinstance(value, list) and any(map(nulls, value)))

    assert not nulls(old.result("message/send", old_message("Hello there")))


def test_it_returns_at_once_when_told_to(old):
    task = old.result("message/send", old_message("x", configuration={"blocking": False}))

    assert task["status"]["state"] == "submitted"


def test_it_streams(old, worker):
    with old.stream("message/stream", old_message("Hello there")) as stream:
        events = [result for _, result in stream]

    assert [event["kind"] for event in events] == ["task", "status-update", "artifact-update", "status-update"]
    assert [event.get("final") for event in events] == [None, False, None, True]
    assert events[-1]["status"]["state"] == "completed"


def test_a_stream_that_ends_with_a_question_says_that_it_ends(old, take):
    with old.stream("message/stream", old_message("x")) as stream:
        finish(take(), Task.State.INPUT_REQUIRED, message=plain("What?"))
        *_, (_, last) = stream

    assert last["status"]["state"] == "input-required"
    assert last["final"] is True


def test_it_resubscribes_and_resumes(old, take):
    task = old.result("message/send", old_message("x", configuration={"blocking": False}))
    with old.stream("tasks/resubscribe", {"id": task["id"]}) as stream:
        assert next(stream)[1]["kind"] == "task"
    with old.stream("tasks/resubscribe", {"id": task["id"]}, {"Last-Event-ID": "1"}) as stream:
        finish(take(), Task.State.COMPLETED)
        assert [number for number, _ in stream] == [2, 3]


def test_it_gets_and_cancels(old):
    task = old.result("message/send", old_message("x", configuration={"blocking": False}))

    assert old.result("tasks/get", {"id": task["id"]}) == task
    assert old.result("tasks/get", {"id": task["id"], "historyLength": 0}) == task
    assert old.result("tasks/cancel", {"id": task["id"]})["status"]["state"] == "canceled"
    assert old.error("tasks/cancel", {"id": task["id"]})["code"] == -32002


def test_it_takes_files_and_data(old):
    content = base64.b64encode(b"bytes").decode()
    parts = [
        {"kind": "file", "file": {"bytes": content, "name": "a.txt", "mimeType": "text/plain"}},
        {"kind": "data", "data": {"n": [1, None]}},
    ]
    task = old.result("message/send", old_message(*parts, configuration={"blocking": False}))

    assert task["history"][0]["parts"] == parts


def test_both_versions_see_the_same_tasks(old, alice):
    task = alice.submit("x")

    assert old.result("tasks/get", {"id": task["id"]})["id"] == task["id"]


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tasks/get", {"id": "nonsense"}, -32001),
        ("tasks/get", {}, -32602),
        ("tasks/get", {"id": 1}, -32602),
        ("tasks/cancel", {"id": "nonsense"}, -32001),
        ("tasks/resubscribe", {"id": "nonsense"}, -32001),
        ("message/send", {}, -32602),
        ("message/send", {"message": {"kind": "message"}}, -32602),
        ("message/stream", {"message": "x"}, -32602),
        ("tasks/pushNotificationConfig/get", {"id": "x"}, -32001),
        ("tasks/pushNotificationConfig/list", {"id": "x"}, -32001),
        ("tasks/pushNotificationConfig/delete", {"id": "x", "pushNotificationConfigId": "y"}, -32001),
        (
            "tasks/pushNotificationConfig/set",
            {"taskId": "x", "pushNotificationConfig": {"url": "https://example.org"}},
            -32001,
        ),
        ("tasks/send", {}, -32602),
    ],
)
def test_its_errors(old, method, params, code):
    error = old.error(method, params)

    assert error["code"] == code
    assert set(error) == {"code", "message"}


def test_wrong_base64(old):
    part = {"kind": "file", "file": {"bytes": "aGVs!bG8=", "name": "a.txt"}}

    assert old.error("message/send", old_message(part))["code"] == -32602
    assert Task.objects.count() == 0


def test_a_role_that_is_not_the_users(old):
    assert old.error("message/send", old_message("x", role="agent"))["code"] == -32602


@pytest.mark.parametrize("version", ["0.3", "0.3.0", "", None])
def test_its_version(as_peer, version):
    headers = {"A2A-Version": version} if version is not None else {}

    assert as_peer("alice", version="").error("tasks/get", {"id": "x"}, headers=headers)["code"] == -32001


def test_a_listing_is_not_part_of_it(old):
    assert old.error("tasks/list", {})["code"] == -32601


def test_methods_of_1_0_need_its_header(old):
    error = old.error("SendMessage", message("x"))

    assert error["code"] == -32009
    assert "1.0" in error["message"]
