"""CancelTask: ends what has not ended, for its owner only."""

import uuid

import pytest

from tasks.exceptions import Superseded
from tasks.models import Task
from tasks.results import finish, plain
from tests.support.cast import snapshot
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.both_databases


def test_it_cancels(alice):
    task = alice.submit("x")
    canceled = alice.result("CancelTask", {"id": task["id"]})

    assert canceled["id"] == task["id"]
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"


def test_it_ends_the_wait_of_the_sender(alice, take, meanwhile):
    waiting = meanwhile(alice.send, "x")
    claim = take()
    alice.result("CancelTask", {"id": str(claim.task_id)})

    assert waiting.result(PATIENCE)["status"]["state"] == "TASK_STATE_CANCELED"
    with pytest.raises(Superseded):
        finish(claim, Task.State.COMPLETED)


def test_it_cancels_what_waits_for_an_answer(alice, take):
    task = alice.submit("x")
    finish(take(), Task.State.INPUT_REQUIRED, message=plain("What?"))

    assert alice.result("CancelTask", {"id": task["id"]})["status"]["state"] == "TASK_STATE_CANCELED"


def test_it_refuses_what_has_ended(alice, worker):
    task = alice.send("x")
    before = snapshot(task["id"])
    error = alice.error("CancelTask", {"id": task["id"]})

    assert error["code"] == -32002
    assert error["data"][0]["reason"] == "TASK_NOT_CANCELABLE"
    assert snapshot(task["id"]) == before


def test_a_second_cancel_is_refused(alice):
    task = alice.submit("x")
    alice.result("CancelTask", {"id": task["id"]})

    assert alice.error("CancelTask", {"id": task["id"]})["code"] == -32002


def test_others_are_told_that_there_is_no_such_task(alice, bob):
    task = alice.submit("mine")
    before = snapshot(task["id"])

    assert bob.error("CancelTask", {"id": task["id"]}) == bob.error("CancelTask", {"id": str(uuid.uuid4())})
    assert snapshot(task["id"]) == before


def test_an_address_reaches_only_its_agents_tasks(as_peer):
    task = as_peer("alice", slug="echo").submit("x")

    assert as_peer("alice", slug="directory").error("CancelTask", {"id": task["id"]})["code"] == -32001
    assert Task.objects.get(pk=task["id"]).state == Task.State.SUBMITTED


@pytest.mark.parametrize("params", [{}, {"id": ""}, {"id": []}, {"id": "x", "metadata": "y"}])
def test_it_refuses_wrong_parameters(alice, params):
    assert alice.error("CancelTask", params)["code"] == -32602
