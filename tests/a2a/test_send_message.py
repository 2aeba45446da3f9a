"""SendMessage: waits by default, follows up, refuses what is not the caller's."""

import json
import uuid

import pytest

from tasks.models import Context, Message, StoredFile, Task
from tasks.results import ArtifactDraft, finish, plain
from tests.a2a.peer import message, old_message, texts
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.both_databases


def test_it_waits_for_the_end(alice, worker):
    task = alice.send("Hello there")

    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert texts(task) == ["Hello there"]
    assert task["history"][0]["role"] == "ROLE_USER"
    assert task["history"][0]["taskId"] == task["id"]
    assert task["history"][0]["contextId"] == task["contextId"]


def test_it_returns_at_once_when_told_to(alice):
    task = alice.submit("Hello there")

    assert task["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert "artifacts" not in task


def test_it_returns_when_the_agent_asks(alice, take, meanwhile):
    answer = meanwhile(alice.send, "Book a flight")
    finish(take(), Task.State.INPUT_REQUIRED, message=plain("Where to?"))

    task = answer.result(PATIENCE)
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert task["status"]["message"]["parts"] == [{"text": "Where to?"}]
    assert task["status"]["message"]["role"] == "ROLE_AGENT"


def test_a_follow_up_waits_for_what_comes_of_it(alice, take, meanwhile):
    asked = alice.submit("Book a flight")
    finish(take(), Task.State.INPUT_REQUIRED, message=plain("Where to?"))
    answer = meanwhile(alice.send, "Rome", taskId=asked["id"])
    claim = take()
    assert not answer.done()
    finish(claim, Task.State.COMPLETED, artifacts=[ArtifactDraft("ticket", [{"text": "Rome"}])])

    task = answer.result(PATIENCE)
    assert task["id"] == asked["id"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [each["parts"][0]["text"] for each in task["history"]] == ["Book a flight", "Where to?", "Rome"]


def test_it_goes_to_the_agent_of_the_address(as_peer):
    assert Task.objects.get(pk=as_peer("alice", slug="summarizer").submit("x")["id"]).agent.slug == "summarizer"
    assert Task.objects.get(pk=as_peer("alice").submit("x")["id"]).agent.slug == "assistant"


def test_it_keeps_the_callers_context(alice):
    first = alice.submit("one", contextId="My context, 1")
    second = alice.submit("two", contextId="My context, 1")

    assert first["contextId"] == second["contextId"] == "My context, 1"
    assert Context.objects.count() == 1


def test_contexts_of_two_callers_may_share_a_name(alice, bob):
    alice.submit("one", contextId="same")
    bob.submit("two", contextId="same")

    assert Context.objects.filter(key="same").count() == 2


def test_it_keeps_metadata(alice):
    task = alice.result("SendMessage", message("x", configuration={"returnImmediately": True}) | {"metadata": {"n": 1}})

    assert task["task"]["metadata"] == {"n": 1}


# Written out, because to Python 9 and 9.0 are the same.
NUMBERS = '{"count": 9, "deep": [{"none": 0}, -2, 1.0000000000000002, 9007199254740992], "share": 9.5}'


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_whole_numbers_stay_whole(as_peer, version):
    peer = as_peer("alice", version=version, slug="echo")
    given = json.loads(NUMBERS)
    if version == "1.0":
        params = message({"data": given}, configuration={"returnImmediately": True}, metadata=given)
        task = peer.result("SendMessage", params | {"metadata": given})["task"]
    else:
        params = old_message({"kind": "data", "data": given}, configuration={"blocking": False}, metadata=given)
        task = peer.result("message/send", params | {"metadata": given})

    said = task["history"][0]
    kept = Message.objects.get()
    agents = [kept.parts[0]["data"], kept.metadata, Task.objects.get().metadata]
    for found in [said["parts"][0]["data"], said["metadata"], task["metadata"], *agents]:
        assert json.dumps(found, sort_keys=True) == NUMBERS


def test_it_reads_snake_case(alice):
    params = {
        "message": {"message_id": "m-1", "role": "ROLE_USER", "parts": [{"text": "x", "media_type": "text/plain"}]},
        "configuration": {"return_immediately": True, "history_length": 1},
    }
    task = alice.result("SendMessage", params)["task"]

    assert task["history"][0]["messageId"] == "m-1"
    assert task["history"][0]["parts"] == [{"text": "x", "mediaType": "text/plain"}]


@pytest.mark.parametrize(("length", "count"), [(0, 0), (1, 1), (5, 1)])
def test_it_limits_the_history(alice, length, count):
    params = message("x", configuration={"returnImmediately": True, "historyLength": length})

    assert len(alice.result("SendMessage", params)["task"].get("history", [])) == count


def test_two_messages_may_share_an_id(alice):
    one, two = alice.submit("x", messageId="same"), alice.submit("x", messageId="same")

    assert one["id"] != two["id"]


def test_a_reference_leads_to_the_context_of_the_other_task(alice, worker):
    first = alice.send("one")
    second = alice.submit("again, shorter", referenceTaskIds=[first["id"]])

    assert second["contextId"] == first["contextId"]
    assert Task.objects.get(pk=second["id"]).references.get().pk == uuid.UUID(first["id"])


def refused(peer, params):
    """The error, with proof that the refusal left no trace."""
    before = (Task.objects.count(), Message.objects.count(), Context.objects.count(), StoredFile.objects.count())
    error = peer.error("SendMessage", params)
    assert before == (
        Task.objects.count(),
        Message.objects.count(),
        Context.objects.count(),
        StoredFile.objects.count(),
    )
    return error


RAW = {"raw": "aGVsbG8=", "filename": "a.txt"}


def test_it_refuses_a_task_that_has_ended(alice, worker):
    task = alice.send("done")
    error = refused(alice, message("more", RAW, taskId=task["id"]))

    assert error["code"] == -32004
    assert error["data"][0]["reason"] == "UNSUPPORTED_OPERATION"


@pytest.mark.parametrize("task_id", ["nonsense", str(uuid.uuid4()), "\x00", "a" * 10_000])
def test_it_refuses_a_task_that_is_not_there(alice, task_id):
    assert refused(alice, message("x", RAW, taskId=task_id))["code"] == -32001


def test_it_refuses_a_task_of_somebody_else_in_the_same_words(alice, bob):
    task = alice.submit("mine")

    theirs = refused(bob, message("x", taskId=task["id"]))
    nobodys = refused(bob, message("x", taskId=str(uuid.uuid4())))
    assert theirs == nobodys


def test_it_refuses_a_task_of_another_agent_than_the_address_names(as_peer):
    task = as_peer("alice", slug="echo").submit("x")

    assert refused(as_peer("alice", slug="summarizer"), message("x", taskId=task["id"]))["code"] == -32001


def test_it_refuses_another_context_than_the_tasks(alice):
    task = alice.submit("x")

    assert refused(alice, message("y", taskId=task["id"], contextId="other"))["code"] == -32602


def test_it_refuses_more_than_a_task_may_hold(alice, settings):
    settings.BUREAU_TASK_BYTES = 20_000
    task = alice.submit("x" * 15_000)
    alice.submit("x" * 15_000, taskId=task["id"])
    error = alice.error("SendMessage", message("one more", taskId=task["id"]))

    assert (error["code"], Message.objects.count()) == (-32602, 2)
    assert "too much" in error["message"]
    assert alice.submit("y", referenceTaskIds=[task["id"]])["contextId"] == task["contextId"]


def test_it_refuses_a_reference_to_somebody_elses_task(alice, bob):
    task = alice.submit("mine")

    assert refused(bob, message("x", RAW, referenceTaskIds=[task["id"]]))["code"] == -32001


def test_it_refuses_a_push_address_that_may_not_be_contacted(alice):
    config = {"taskPushNotificationConfig": {"url": "http://169.254.169.254/latest"}}

    assert refused(alice, message("x", configuration=config))["code"] == -32602


def test_it_refuses_a_media_type_the_card_does_not_name(as_peer):
    part = {"raw": "aGVsbG8=", "mediaType": "image/png"}

    assert refused(as_peer("alice", slug="echo"), message(part))["code"] == -32005


def test_it_refuses_a_negative_history_length(alice):
    assert refused(alice, message("x", configuration={"historyLength": -1}))["code"] == -32602


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"messageId": ""}, "message.messageId"),
        ({"parts": []}, "message.parts"),
        ({"role": "ROLE_UNSPECIFIED"}, "message.role"),
        ({"role": "ROLE_AGENT"}, "message.role"),
        ({"role": "user"}, "message.role"),
        ({"parts": [{"text": "a"}, {}]}, "message.parts[1]"),
        ({"parts": [{"raw": "not base64!"}]}, "message.parts"),
        ({"parts": [{"raw": "aGVs!bG8="}]}, "message.parts[0].raw"),
        ({"parts": [{"text": 1}]}, "message.parts.text"),
        ({"parts": "text"}, "message.parts"),
        ({"parts": [{"text": "a", "url": "https://example.org"}]}, None),
        ({"parts": [{"text": "a\x00"}]}, None),
        ({"metadata": {"\x00": 1}}, None),
        ({"contextId": "c" * 256}, None),
        ({"messageId": "m" * 256}, None),
    ],
)
def test_it_says_which_parameter_is_wrong(alice, change, field):
    error = refused(alice, message("x", **change))

    assert error["code"] == -32602
    if field:
        violations = error["data"][1]["fieldViolations"]
        assert any(field in each["field"] for each in violations), violations
        # Also in words: many a client shows nothing else.
        assert field in error["message"]
    assert error["data"][0]["metadata"] == {}


def test_a_disabled_agent_takes_no_new_task_but_finishes_the_old(as_peer):
    from agents.runtime import drain
    from directory.models import Agent
    from directory.services import forget_agents

    peer = as_peer("alice", slug="directory")
    task = peer.submit("Which agents are there?")
    Agent.objects.filter(slug="directory").update(is_enabled=False)
    forget_agents()

    # Nobody works meanwhile: what the old task says would count as a trace of the refused one.
    assert refused(peer, message("y"))["code"] == -32004
    drain("default")
    assert peer.result("GetTask", {"id": task["id"]})["status"]["state"] == "TASK_STATE_COMPLETED"


def test_it_refuses_an_agent_that_is_not_there(as_peer):
    assert refused(as_peer("alice", slug="nobody"), message("x"))["code"] == -32004
