"""The point `tool` with a model: which tool, with what; and what stands when the answer is unclear."""

import pytest

from agents.models import Decision, ToolCall
from agents.outcomes import Blocked, Ok
from agents.tools.catalog import tools
from tests.support.messages_api import Reply

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("staged")]

LOCAL = Reply(match="You decide what happens", json={"decision": "local", "reason": ""}, times=0)


def chosen(turn) -> Decision:
    return Decision.objects.get(task_id=turn.claim.task_id, point="tool")


@pytest.fixture(autouse=True)
def _local(model):
    model.add(LOCAL)


def test_a_good_answer_runs_the_tool_with_its_parameters(run, model, project):
    model.add(Reply(json={"call": {"tool": "read_file", "params": {"path": "main.py"}}, "confidence": 0.8}))
    outcome = run("assistant", "I would like to see the program")
    assert isinstance(outcome, Ok)
    assert outcome.artifacts[0].parts == [{"text": "print('hello')\n"}]
    row = chosen(run.turn)
    assert row.choice == {"tool": "read_file", "params": {"path": "main.py"}}
    assert {"tool": "read_file"} in row.candidates
    assert ToolCall.objects.get().params["path"] == "main.py"


def test_each_tool_can_only_be_named_with_its_own_parameters(run, model):
    run("assistant", "anything")
    schema = model.requests[1]["output_config"]["format"]["schema"]
    calls = {
        call["properties"]["tool"]["const"]: call for call in schema["$defs"].values() if "tool" in call["properties"]
    }
    assert set(calls) == set(tools())


def test_a_missing_parameter_is_asked_for_and_the_answer_continues_it(run, follow_up, model, project):
    model.add(Reply(json={"call": {"tool": "read_file", "params": {}}}))
    blocked = run("assistant", "show me that file")
    assert isinstance(blocked, Blocked)
    assert (blocked.missing_inputs, len(blocked.questions)) == (["path"], 1)
    assert not ToolCall.objects.exists()

    model.add(Reply(json={"call": {"tool": "read_file", "params": {"path": "main.py"}}}))
    outcome = follow_up(blocked, "main.py it is")
    assert isinstance(outcome, Ok)
    assert "show me that file" in model.prompts[-1]
    assert blocked.questions[0] in model.prompts[-1]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(json={"call": {"tool": "rm_rf", "params": {}}}), "invalid: The answer does not fit the schema"),
        (Reply(json={"call": {"tool": "echo", "params": {"words": "hi"}}}), "invalid: The answer does not fit"),
        (Reply(text="read_file, I think"), "invalid: The answer is not JSON."),
        (Reply(text="", stop_reason="refusal"), "declined: "),
        (Reply(status=400), "bad_request: "),
    ],
)
def test_an_unclear_answer_means_the_language_model(run, model, reply, error):
    model.add(reply, Reply(text="Paris."))
    outcome = run("assistant", "What is the capital of France?")
    assert isinstance(outcome, Ok)
    assert outcome.artifacts[0].parts == [{"text": "Paris."}]
    row = chosen(run.turn)
    assert (row.choice["tool"], row.is_fallback) == ("answer", True)
    assert row.error.startswith(error)


def test_when_the_model_is_away_the_rules_choose_where_they_are_sure(run, model, project):
    model.script.clear()
    model.add(Reply(status=401, times=0))
    outcome = run("assistant", "read the file main.py")
    assert isinstance(outcome, Ok)
    row = chosen(run.turn)
    assert (row.brain, row.choice["tool"], row.is_fallback) == ("rules", "read_file", True)


def test_the_explicit_form_asks_no_model(run, model):
    outcome = run("assistant", ':tool echo {"text": "hi"}')
    assert isinstance(outcome, Ok)
    assert outcome.artifacts[0].parts == [{"text": "hi"}]
    assert model.requests == []
    assert chosen(run.turn).brain == "rules"
