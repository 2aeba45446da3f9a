"""GetTask: one task of the caller's, with as much history as asked for."""

import re
import uuid

import pytest

from tasks.models import Task
from tasks.results import ArtifactDraft, finish, plain, stream_chunk
from tests.a2a.peer import texts

pytestmark = pytest.mark.both_databases


def test_it_gives_the_task(alice, worker):
    sent = alice.send("Hello there")

    assert alice.result("GetTask", {"id": sent["id"]}) == sent


def test_it_holds_nothing_but_what_the_schema_names(alice, worker):
    task = alice.result("GetTask", {"id": alice.send("Hello there")["id"]})

    assert set(task) == {"id", "contextId", "status", "artifacts", "history"}
    assert set(task["status"]) <= {"state", "message", "timestamp"}
    assert set(task["artifacts"][0]) == {"artifactId", "name", "parts"}
    assert set(task["history"][0]) == {"messageId", "contextId", "taskId", "role", "parts"}


def test_its_time_is_utc_with_milliseconds(alice):
    stamp = alice.submit("x")["status"]["timestamp"]

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z", stamp)


@pytest.mark.parametrize(("length", "kept"), [(None, 2), (0, 0), (1, 1), (2, 2), (9, 2)])
def test_it_limits_the_history_to_the_newest(alice, take, length, kept):
    task = alice.submit("first")
    finish(take(), Task.State.COMPLETED, message=plain("last"))

    params = {"id": task["id"]} | ({} if length is None else {"historyLength": length})
    history = alice.result("GetTask", params).get("history", [])
    assert [each["parts"][0]["text"] for each in history] == (["first", "last"][-kept:] if kept else [])


def test_it_shows_what_has_been_streamed_so_far(alice, take):
    task = alice.submit("Write a poem")
    claim = take()
    for number, text in enumerate(["Roses ", "are ", "red"]):
        stream_chunk(claim, "poem", text, is_first=not number)

    assert texts(alice.result("GetTask", {"id": task["id"]})) == ["Roses are red"]


def test_it_gives_data_as_it_was_made(alice, take):
    data = {"list": [1, 2.5, None, True, {"deep": "ü"}], "empty": {}}
    task = alice.submit("x")
    finish(take(), Task.State.COMPLETED, artifacts=[ArtifactDraft("data", [{"data": data}, {"data": None}])])

    assert alice.result("GetTask", {"id": task["id"]})["artifacts"][0]["parts"] == [{"data": data}, {"data": None}]


@pytest.mark.parametrize("task_id", ["nonsense", str(uuid.uuid4()), "\x00", "0", "💥"])
def test_it_finds_nothing_else(alice, task_id):
    error = alice.error("GetTask", {"id": task_id})

    assert error["code"] == -32001
    assert error["data"][0]["reason"] == "TASK_NOT_FOUND"
    assert error["data"][0]["domain"] == "a2a-protocol.org"


def test_others_are_told_that_there_is_no_such_task(alice, bob):
    task = alice.submit("mine")

    assert bob.error("GetTask", {"id": task["id"]}) == bob.error("GetTask", {"id": str(uuid.uuid4())})


def test_the_front_door_sees_the_tasks_of_all_agents(as_peer):
    task = as_peer("alice", slug="echo").submit("x")

    assert as_peer("alice").result("GetTask", {"id": task["id"]})["id"] == task["id"]
    assert as_peer("alice", slug="directory").error("GetTask", {"id": task["id"]})["code"] == -32001


@pytest.mark.parametrize("params", [{}, {"id": ""}, {"id": 1}, {"id": None}, {"id": "x", "historyLength": "many"}])
def test_it_refuses_wrong_parameters(alice, params):
    assert alice.error("GetTask", params)["code"] == -32602


def test_it_refuses_a_negative_history_length(alice):
    task = alice.submit("x")

    assert alice.error("GetTask", {"id": task["id"], "historyLength": -1})["code"] == -32602


def test_it_ignores_what_it_does_not_know(alice):
    task = alice.submit("x")

    assert alice.result("GetTask", {"id": task["id"], "futureField": {"a": 1}})["id"] == task["id"]
