"""What becomes of a sub-plan that failed: another tool, another agent, a new plan."""

import pytest

from agents import runtime
from agents.exceptions import Stopped
from agents.models import Decision, ToolCall
from agents.orchestration import evidence
from agents.orchestration.allocation import dismiss_left
from agents.tools.write_file import WriteFile
from directory.models import Agent
from tasks.models import SubPlan, Subtask, Task
from tasks.services import cancel_task
from tests.orchestration.script import answer, part, plan, says, step, triage, writes
from tests.support.cast import ALICE

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]

GOAL = "Find out all about it and write a report"


def planned(model, *parts) -> None:
    model.add(triage(needs_plan=True), plan(*parts))


def reads(path: str):
    return part("facts", step("Read it", "read_file", path=path), step("Work on facts"))


@pytest.mark.parametrize("strategy", ["retry_modified", "alternative"])
def test_the_failed_step_is_done_otherwise(settle, model, project, strategy):
    planned(model, reads("nothing.md"))
    call = {"tool": "read_file", "params": {"path": "main.py"}}
    model.add(says("recover", {"strategy": strategy, "call": call}), writes("facts"), answer())
    mission = settle(GOAL)
    assert mission.state == "completed"
    assert [(call.params["path"], call.state) for call in ToolCall.objects.order_by("started_at")] == [
        ("nothing.md", "failed"),
        ("main.py", "succeeded"),
    ]
    # Another tool is no reason for another agent.
    assert set(mission.children.values_list("agent__slug", flat=True)) == {"researcher"}
    row = Decision.objects.get(point="recover")
    assert (row.choice["tool"], row.choice["params"]) == ("read_file", {"path": "main.py"})
    assert "nothing.md" in row.inputs["step"]


def test_another_tool_may_do_it(settle, model, project):
    planned(model, reads("nothing.md"))
    call = {"tool": "list_files", "params": {}}
    model.add(says("recover", {"strategy": "alternative", "call": call}), writes("facts"), answer())
    assert settle(GOAL).state == "completed"
    assert Subtask.objects.get(position=1).tool == "list_files"
    assert "main.py" in next(prompt for prompt in model.prompts if "Work on facts" in prompt and "You do one" in prompt)


@pytest.mark.parametrize("strategy", ["retry", "retry_modified"])
def test_no_model_tries_it_more_often_than_it_may_be(settle, model, settings, strategy):
    settings.BUREAU_SUB_PLAN_ATTEMPTS = 2
    planned(model, part("facts"))
    model.add(writes("facts", status=400, times=0), says("recover", {"strategy": strategy, "hint": "Now!"}, times=5))
    mission = settle(GOAL)
    assert (mission.state, mission.children.count()) == ("failed", 2)
    first, last = Decision.objects.filter(point="recover").order_by("id")
    assert (first.choice["strategy"], first.is_fallback) == (strategy, False)
    assert (last.choice["strategy"], last.is_fallback) == ("abandon", True)
    assert last.error == "invalid: It was tried 2 times, which is the most."


def test_a_tool_that_is_none_is_no_answer(settle, model, project):
    planned(model, reads("nothing.md"))
    model.add(says("recover", {"strategy": "alternative", "call": {"tool": "rm_rf", "params": {}}}))
    assert settle(GOAL).state == "failed"
    row = Decision.objects.get(point="recover")
    assert (row.is_fallback, row.choice["strategy"]) == (True, "abandon")


def test_an_unrelated_remote_agent_is_no_alternative(settle, model):
    """It has no role, and nothing that it says of itself is near to the goal."""
    far = Agent.objects.create(slug="far", name="Far", kind="remote", url="http://127.0.0.1:9/", binding="JSONRPC")
    far.skills.create(skill_id="flights", name="Flights", examples=["Book a flight to Rome"])
    planned(model, part("facts"))
    model.add(writes("facts", status=400), says("recover", {"strategy": "abandon"}))
    settle(GOAL)
    asked = next(prompt for prompt in model.prompts if "has failed" in prompt)
    assert "Other agents that could do it: none." in asked


def test_a_new_plan_knows_what_goes_on(settle, model, project):
    asker = part("asker", step("Read", "read_file"), step("Work on asker"))
    planned(model, part("maps"), asker, part("atlas", needs=("maps",)))
    model.add(
        writes("maps", status=400),
        says("recover", {"strategy": "replan"}),
        plan(part("report", needs=("asker",), role="writer"), about="are being worked on"),
        writes("asker"),
        writes("report"),
        answer(),
    )
    mission = settle(GOAL)
    assert mission.state == "input-required"
    model.add(says("follow-up", {"decision": "handle"}))
    mission = settle("main.py", task=mission.pk)
    assert mission.state == "completed"
    states = {one.key: one.is_dropped for one in SubPlan.objects.all()}
    assert states == {"maps": True, "asker": False, "atlas": True, "report-anew": False}


def test_without_a_new_plan_only_what_failed_is_given_up(settle, model, project):
    asker = part("asker", step("Read", "read_file"), step("Work on asker"))
    planned(model, part("maps"), asker, part("later", needs=("asker",)))
    model.add(writes("maps", status=400), says("recover", {"strategy": "replan"}))
    model.add(says("plan", {"sub_plans": []}, times=2))
    model.add(writes("asker"), writes("later"), answer("Without maps."))
    mission = settle(GOAL)
    model.add(says("follow-up", {"decision": "handle"}))
    mission = settle("main.py", task=mission.pk)
    assert mission.state == "completed"
    assert [one.key for one in SubPlan.objects.filter(is_dropped=True)] == ["maps"]
    assert "The maps" in mission.artifacts.get().parts[0]["text"]


def test_the_specialist_that_works_here_already_gets_the_next_part(settle, model):
    first = Agent.objects.get(slug="researcher")
    about = {"role": "researcher", "handler": "specialist", "description": first.description}
    scout = Agent.objects.create(slug="a-scout", name="Scout", **about)
    scout.skills.create(skill_id="research", name="Research", examples=first.skills.get().examples)
    planned(model, part("facts"), part("more", needs=("facts",)))
    model.add(says("allocate", {"agent": "researcher"}), writes("facts"), writes("more"), answer())
    mission = settle(GOAL)
    assert list(mission.children.values_list("agent__slug", flat=True)) == ["researcher", "researcher"]
    # The first time it was close, and a model was asked; then it was clear.
    brains = Decision.objects.filter(point="allocate").order_by("id").values_list("brain", flat=True)
    assert list(brains) == ["claude", "rules"]


def test_the_agents_of_a_canceled_mission_are_dismissed(settle, model, project):
    poem = part("poem", step("Read", "read_file"), step("Work on poem"), role="poet")
    planned(model, poem)
    mission = settle(GOAL)
    made = Agent.objects.get(role="poet")
    assert (dismiss_left(), made.is_enabled) == (0, True)
    cancel_task(ALICE, mission.pk)
    assert (dismiss_left(), dismiss_left()) == (1, 0)
    made.refresh_from_db()
    assert not made.is_enabled


def test_a_long_answer_is_a_file_and_the_message_says_where(settle, model):
    planned(model, part("facts"), part("maps"))
    model.add(writes("facts"), writes("maps"), answer("A long line of the report. " * 300))
    mission = settle(GOAL)
    assert mission.status_message["parts"][0]["text"] == "Done, in 2 parts.\nFiles: answer.md."
    shown, file = mission.artifacts.get().parts
    assert (file["filename"], len(shown["text"]) < 1000) == ("answer.md", True)


@pytest.mark.parametrize("text", ["List the files of this project", "Which files are in the project?"])
def test_what_is_here_is_not_answered_from_memory(settle, model, project, text):
    """The model takes it for a plain question; it is looked up all the same."""
    model.add(triage(), says("step", text="There is main.py."), answer("There is main.py."))
    mission = settle(text)
    assert mission.state == "completed"
    assert ToolCall.objects.get().tool == "list_files"
    assert Task.objects.filter(parent=mission).count() == 1


@pytest.mark.parametrize(
    ("request_", "reply"), [("What does main.py print?", "in one sentence"), ("What does it print?", "main.py")]
)
def test_a_file_is_looked_at_whichever_message_names_it(settle, model, project, request_, reply):
    model.add(triage(is_clear=False, question="How exactly?"), triage(), says("step", text="Hello."), answer("Hello."))
    mission = settle(request_)
    assert mission.state == "input-required"
    assert settle(reply, task=mission.pk).state == "completed"
    call = ToolCall.objects.get()
    assert (call.tool, call.params["path"]) == ("read_file", "main.py")
    prompt = next(prompt for prompt in model.prompts if "You do one step" in prompt)
    assert request_ in prompt.rpartition("The step to do:")[2]


def test_what_the_coordinator_would_have_to_ask_about_is_given_out(settle, model, project, monkeypatch):
    """Nothing shows beforehand that a part will miss something: here, what it builds upon has delivered no word."""
    monkeypatch.setattr(evidence, "sub_plan_text", lambda turn, plan: "")
    facts = part("facts", step("Look", "list_files"))
    planned(model, facts, part("more", step("Read it", "read_file", path="{{facts}}"), needs=("facts",)))
    mission = settle(GOAL)
    assert (mission.state, mission.children.get().state) == ("input-required", "input-required")
    assert "Which file should I read?" in mission.status_message["parts"][0]["text"]
    model.add(says("follow-up", {"decision": "handle"}), answer())
    assert settle("main.py", task=mission.pk).state == "completed"
    assert ToolCall.objects.get(tool="read_file").params["path"] == "main.py"


@pytest.mark.parametrize(("word", "state", "acts"), [("yes", "completed", 2), ("no", "failed", 1)])
def test_another_attempt_does_not_repeat_what_may_have_happened(settle, model, monkeypatch, word, state, acts):
    """A worker died in the act; the part was canceled while it asked; the model would try it again."""
    run, begun = WriteFile.run, []

    def dies_first(self, turn, params):
        begun.append(params)
        if len(begun) == 1:
            raise Stopped
        return run(self, turn, params)

    monkeypatch.setattr(WriteFile, "is_repeatable", False)
    monkeypatch.setattr(WriteFile, "run", dies_first)
    planned(model, part("facts", step("Save it", "write_file", path="a.md", text="A"), step("Work on facts")))
    mission = settle(GOAL)
    assert "Shall I run write_file again?" in mission.status_message["parts"][0]["text"]
    model.add(says("recover", {"strategy": "retry"}))
    cancel_task(ALICE, mission.children.get().pk)
    runtime.drain("default")
    mission.refresh_from_db()
    assert (mission.state, len(begun), mission.children.count()) == ("input-required", 1, 2)
    assert "Shall I run write_file again?" in mission.status_message["parts"][0]["text"]
    model.add(says("recover", {"strategy": "abandon"}), writes("facts"), answer())
    assert settle(word, task=mission.pk).state == state
    assert len(begun) == acts
    assert not ToolCall.objects.filter(state="started").exists()
