"""The front door, from message to settled task, through the runtime."""

import threading

import pytest
from django.db import connection

from agents import runtime
from agents.models import Decision, ToolCall
from agents.outcomes import Ok, Rejected
from directory.models import Agent
from tasks.claims import release
from tasks.content import Incoming
from tasks.models import Event, Task
from tasks.services import cancel_task, send_message
from tests.support.cast import ALICE
from tests.support.messages_api import Reply
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]

READ = {"tool": "read_file", "params": {"path": "main.py"}}
ANSWER = {"tool": "answer", "params": {}}


@pytest.fixture
def settle(seeded):
    """Send, let a worker run what is due, and return the task."""

    def send(text, *parts, task=None, references=None) -> Task:
        agent = Agent.objects.get(slug="assistant")
        sent = send_message(ALICE, agent, Incoming.from_text(text, *parts, references=references), task_id=task)
        runtime.drain("default")
        return Task.objects.get(pk=sent.task_id)

    return send


def texts(task) -> list[str]:
    return [part["text"] for artifact in task.artifacts.all() for part in artifact.parts if "text" in part]


def test_a_request_is_done_by_the_rules_and_on_record(settle, project):
    task = settle("Summarise the file README.md")
    assert task.state == "completed"
    assert texts(task) == ["- Bureau runs agents for people.\n- It keeps a record of all they do.\n"]
    assert "no language model was used" in task.status_message["parts"][0]["text"]
    assert list(task.decisions.values_list("point", "brain")) == [("route", "rules"), ("tool", "rules")]
    assert list(task.tool_calls.values_list("tool", "state")) == [("summarize", "succeeded")]
    kinds = list(task.events.order_by("seq").values_list("kind", flat=True))
    assert kinds == ["status", "status", "decision", "decision", "tool", "tool", "artifact", "status"]


def test_a_request_is_done_with_a_model_and_on_record(settle, model):
    model.add(
        Reply(
            json={"is_clear": True, "needs_plan": False, "decision": "local", "call": {"tool": "answer", "params": {}}}
        ),
        Reply(text="Paris is the capital of France."),
    )
    task = settle("What is the capital of France?")
    assert (task.state, texts(task)) == ("completed", ["Paris is the capital of France."])
    assert list(task.decisions.values_list("point", "model", "is_fallback")) == [
        ("clarify", "claude-haiku-5-5", False),
        ("decompose", "claude-haiku-5-5", False),
        ("route", "claude-haiku-5-5", False),
        ("tool", "claude-haiku-5-5", False),
        ("fulfil", "claude-sonnet-5-5", False),
    ]
    assert task.artifacts.get().is_complete


def test_without_a_model_nothing_is_made_up(settle):
    task = settle("What is the capital of France?")
    assert (task.state, task.artifacts.count()) == ("rejected", 0)
    assert "ANTHROPIC_API_KEY" in task.status_message["parts"][0]["text"]


def test_a_failed_model_fails_the_task_with_the_reason(settle, model):
    model.add(Reply(status=401, times=0))
    task = settle("What is the capital of France?")
    assert (task.state, task.artifacts.count()) == ("failed", 0)
    assert task.status_message["metadata"] == {"errorClass": "model_auth"}
    assert "refused the key" in task.status_message["parts"][0]["text"]


def test_a_question_waits_for_its_answer(settle, project):
    asked = settle("read a file")
    assert asked.state == "input-required"
    assert asked.status_message["metadata"]["missingInputs"] == ["path"]
    done = settle("main.py", task=asked.pk)
    assert (done.state, texts(done)) == ("completed", ["print('hello')\n"])


def test_a_refinement_works_on_the_earlier_result(settle, project):
    (project / "long.txt").write_text("The first sentence of a text. " + "Another sentence about nothing much. " * 3)
    earlier = settle("read the file long.txt")
    task = settle("summarise that in 1 sentence", references=[str(earlier.pk)])
    assert texts(task) == ["- The first sentence of a text.\n"]


def test_a_crash_after_the_act_does_not_repeat_it(settle, project, monkeypatch):
    """The worker dies between the act and the outcome; the next one ends the task with the recorded result."""
    settled = runtime._settle
    monkeypatch.setattr(runtime, "_settle", lambda turn, outcome, end: release(turn.claim))
    agent = Agent.objects.get(slug="assistant")
    sent = send_message(ALICE, agent, Incoming.from_text("read main.py"))
    from tasks.claims import claim_next

    runtime.run_turn(claim_next("default", "first"))
    (project / "main.py").write_text("changed meanwhile")
    monkeypatch.setattr(runtime, "_settle", settled)
    runtime.drain("default")
    task = Task.objects.get(pk=sent.task_id)
    assert (task.state, texts(task)) == ("completed", ["print('hello')\n"])
    assert (ToolCall.objects.count(), Decision.objects.count()) == (1, 2)
    assert Event.objects.filter(task=task, kind="artifact").count() == 1


@pytest.mark.parametrize("fault", ["hang", "hang_midway"])
def test_a_cancel_frees_the_worker_while_the_model_is_silent(seeded, model, valkey, fault):
    model.add(Reply(match="You write the answer", text="never to be finished " * 20, fault=fault))
    sent = send_message(ALICE, Agent.objects.get(slug="assistant"), Incoming.from_text("Tell me everything"))
    worker = threading.Thread(target=lambda: (runtime.drain("default"), connection.close()))
    worker.start()
    wait_until(lambda: len(model.requests) == 2, what="the question to the large model")
    cancel_task(ALICE, sent.task_id)
    worker.join(60)
    assert not worker.is_alive()
    task = Task.objects.get(pk=sent.task_id)
    assert (task.state, task.artifacts.filter(is_complete=True).count()) == ("canceled", 0)


def test_it_has_the_tools_that_its_options_name(run, seeded):
    Agent.objects.filter(slug="assistant").update(options={"tools": ["echo"]})
    assert isinstance(run("assistant", "echo hello"), Ok)
    outcome = run("assistant", ":tool list_files")
    assert isinstance(outcome, Rejected)
    assert outcome.reason.endswith("The tools are: echo.")


def test_a_refinement_keeps_the_name_with_a_new_id(settle, model, project):
    model.add(
        Reply(match="decide", json={"is_clear": True, "needs_plan": False, "decision": "local", "call": READ}),
        Reply(match="decide", json={"is_clear": True, "needs_plan": False, "decision": "local", "call": ANSWER}),
        Reply(match="You write the answer", text="Shorter."),
    )
    first = settle("Show me the program")
    second = settle("Make it shorter", references=[str(first.pk)])
    assert (second.context_id, texts(second)) == (first.context_id, ["Shorter."])
    one, two = first.artifacts.get(), second.artifacts.get()
    assert (one.name, two.name, one.pk == two.pk, two.version) == ("main.py", "main.py", False, 2)
    assert "print('hello')" in model.prompts[-1]
