"""The point `fulfil`: text from the model, streamed; and a clear failure where there is none."""

import pytest

from agents.models import Decision
from agents.outcomes import Error, Ok, Rejected
from tasks.files import file_part, store_file
from tasks.models import Artifact, Event
from tests.support.cast import ALICE, BOB
from tests.support.messages_api import Reply

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("staged")]

LOCAL = Reply(match="You decide what happens", json={"decision": "local", "reason": ""}, times=0)
ANSWER = Reply(match="You choose the tool", json={"call": {"tool": "answer", "params": {}}}, times=0)


@pytest.fixture(autouse=True)
def _answer(model):
    model.add(LOCAL, ANSWER)


def fulfilled(turn) -> Decision:
    return Decision.objects.get(task_id=turn.claim.task_id, point="fulfil")


def test_the_answer_is_streamed_into_an_artifact(run, model, monkeypatch):
    monkeypatch.setattr("agents.turn.CHUNK_SECONDS", 0.0)
    text = "Paris is the capital of France, and has been for a very long time indeed."
    model.add(Reply(text=text, usage={"input_tokens": 1000, "output_tokens": 100}))
    outcome = run("assistant", "What is the capital of France?")

    assert isinstance(outcome, Ok)
    assert outcome.message == ""
    draft = outcome.artifacts[0]
    assert (draft.name, draft.parts, draft.is_streamed) == ("answer", [{"text": text}], True)
    chunks = Event.objects.filter(task_id=run.turn.claim.task_id, kind="artifact").values_list("payload", flat=True)
    assert len(chunks) > 1
    assert "".join(chunk["parts"][0]["text"] for chunk in chunks) == text
    row = fulfilled(run.turn)
    assert (row.brain, row.model) == ("claude", "claude-sonnet-5-5")
    assert row.choice == {"artifact": "answer", "characters": len(text), "stop_reason": "end_turn"}
    assert f"{row.cost_usd:.6f}" == "0.003000"
    assert Event.objects.filter(kind="decision").count() == 3


def test_it_asks_the_large_model_without_a_schema(run, model, settings):
    settings.BUREAU_MODEL_LARGE = "some-large-model"
    run("assistant", "Hello?")
    body = model.requests[-1]
    assert body["model"] == "some-large-model"
    assert "output_config" not in body


def test_an_answer_that_is_cut_off_says_so(run, model):
    model.add(Reply(text="Once upon a", stop_reason="max_tokens"))
    outcome = run("assistant", "Tell me everything")
    assert isinstance(outcome, Ok)
    assert "cut off" in outcome.message
    assert outcome.artifacts[0].metadata == {"truncated": True}
    assert fulfilled(run.turn).choice["stop_reason"] == "max_tokens"


def test_a_refusal_rejects_the_task(run, model):
    model.add(Reply(text="", stop_reason="refusal"))
    outcome = run("assistant", "Tell me everything")
    assert isinstance(outcome, Rejected)
    assert fulfilled(run.turn).error.startswith("declined: ")


@pytest.mark.parametrize(
    ("reply", "error_class"),
    [
        (Reply(status=401, times=0), "model_auth"),
        (Reply(status=529, times=0), "model_overloaded"),
        (Reply(status=400, times=0), "model_bad_request"),
        (Reply(text="", times=0), "model_invalid"),
        (Reply(fault="disconnect", times=0), "model_unreachable"),
    ],
)
def test_without_an_answer_the_task_fails_and_nothing_is_made_up(run, model, reply, error_class):
    model.add(reply)
    outcome = run("assistant", "What is the capital of France?")
    assert isinstance(outcome, Error)
    assert outcome.error_class == error_class
    row = fulfilled(run.turn)
    assert (row.choice, bool(row.error), row.model) == ({}, True, "claude-sonnet-5-5")
    assert not Artifact.objects.filter(is_complete=True).exists()


def test_a_stream_that_breaks_is_begun_again_and_replaces_what_came_before(run, model):
    model.add(Reply(text="Wrong beginning " * 9, fault="disconnect_midway"), Reply(text="The whole answer."))
    outcome = run("assistant", "What is the capital of France?")
    assert outcome.artifacts[0].parts == [{"text": "The whole answer."}]
    payloads = list(Event.objects.filter(kind="artifact").values_list("payload", flat=True))
    assert [payload["append"] for payload in payloads][-1] is False
    assert fulfilled(run.turn).attempts == 2


def test_attached_files_are_read_and_shown_as_documents(run, model):
    note = file_part(store_file(ALICE.principal, "note.txt", "text/plain", b"The code is 4711."))
    image = file_part(store_file(ALICE.principal, "cat.png", "image/png", b"\x89PNG\0\0"))
    run("assistant", "What is the code?", note, image)
    prompt = model.prompts[-1]
    assert "from 'note.txt'\nThe code is 4711." in prompt
    assert "[not readable: cat.png is a binary file" in prompt


def test_files_of_others_are_not_read(run, model):
    part = file_part(store_file(BOB.principal, "diary.txt", "text/plain", b"Dear diary"))
    run("assistant", "What is in it?", part)
    assert "Dear diary" not in model.prompts[-1]
    assert "no longer there" in model.prompts[-1]


def test_an_earlier_task_it_refers_to_is_shown(run, model):
    from agents.runtime import as_state
    from tasks.results import finish

    model.add(Reply(text="A poem about the sea."))
    first = run("assistant", "Write a poem")
    state, message, artifacts = as_state(first)
    finish(run.turn.claim, state, message=message, artifacts=artifacts)
    run("assistant", "Make it shorter", references=[str(run.turn.claim.task_id)])
    assert "from 'Write a poem'\nA poem about the sea." in model.prompts[-1]


def test_rules_write_nothing(run, settings):
    settings.ANTHROPIC_BASE_URL = ""
    outcome = run("assistant", ":tool answer")
    assert isinstance(outcome, Error)
    assert outcome.error_class == "no_model"
    assert "ANTHROPIC_API_KEY" in outcome.message
