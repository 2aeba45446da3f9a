"""A person agrees before something is done: risky acts, uncertain answers, and what would cost too much."""

import pytest

from agents.models import Budget, Decision, ToolCall
from tasks.models import SubPlan
from tests.orchestration.script import answer, part, plan, says, step, triage, writes
from tests.support.messages_api import Reply

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]

GOAL = "Find out all about it and write a report"


def said(mission) -> str:
    return mission.status_message["parts"][0]["text"]


def asks(mission) -> dict:
    assert mission.state == "input-required", said(mission)
    return mission.status_message["metadata"]["asks"]


class TestRiskyActByRules:
    """`write_file` outside the output folder, without a model."""

    @pytest.fixture
    def mission(self, settle, project):
        mission = settle(f"Write 'Hello' to {project}/a.md")
        assert asks(mission)["kind"] == "confirm"
        assert "Write 5 bytes to a.md in" in said(mission)
        return mission

    def test_it_is_done_when_it_was_approved(self, settle, project, mission):
        assert settle("yes", task=mission.pk).state == "completed"
        assert (project / "a.md").read_text() == "Hello"

    def test_it_is_not_done_when_it_was_refused(self, settle, project, mission):
        mission = settle("no, leave it", task=mission.pk)
        assert (mission.state, mission.status_message["metadata"]["errorClass"]) == ("failed", "not_confirmed")
        assert not (project / "a.md").exists()
        assert not ToolCall.objects.exists()

    def test_what_was_changed_is_asked_about_again(self, settle, project, mission):
        again = settle(f"Yes, but to {project}/b.md", task=mission.pk)
        assert "Write 5 bytes to b.md in" in said(again)
        assert asks(again)["digest"] != asks(mission)["digest"]
        assert not ToolCall.objects.exists()
        assert settle("yes", task=mission.pk).state == "completed"
        assert (project / "b.md").read_text() == "Hello"
        assert not (project / "a.md").exists()

    @pytest.mark.parametrize(
        "text",
        [
            "Yes, to {}/b.md",
            "Так, але до {}/b.md",
            "ok, don't",
            "yes... no, wait",
            "Sure I'm not",
            "так, не треба",
            "ok, what happens to the file that is there?",
            "Repeat the question, please",
            "sure, once I have a copy",
        ],
    )
    def test_what_only_begins_like_a_yes_is_none(self, settle, project, mission, text):
        assert asks(settle(text.format(project), task=mission.pk))["kind"] == "confirm"
        assert not ToolCall.objects.exists()
        assert not list(project.glob("[ab].md"))

    @pytest.mark.parametrize("text", ["Yes.", "ok, go ahead!", "Так, будь ласка.", "y", "Sure, do it at once please"])
    def test_a_yes_in_other_words_is_one(self, settle, mission, text):
        assert settle(text, task=mission.pk).state == "completed"

    @pytest.mark.parametrize("text", ["No problem, go ahead", "no objections"])
    def test_what_only_begins_like_a_no_is_none(self, settle, mission, text):
        assert asks(settle(text, task=mission.pk))["kind"] == "confirm"
        assert not ToolCall.objects.exists()

    def test_what_is_neither_is_asked_again(self, settle, project, mission):
        again = settle("What would that be good for?", task=mission.pk)
        assert asks(again) == asks(mission)
        assert not ToolCall.objects.exists()
        row = Decision.objects.get(point="confirm")
        assert (row.brain, row.choice, row.inputs["params"]["text"]) == ("rules", {"decision": "ask"}, "Hello")


class TestRiskyActByModel:
    """The same act as a step of a plan, in the hands of a specialist."""

    @pytest.fixture
    def mission(self, settle, model, project):
        model.add(triage(needs_plan=True))
        model.add(
            plan(
                part("file", step("Write it", "write_file", path=f"{project}/a.md", text="Hello"), step("Work on file"))
            )
        )
        model.add(writes("file"), answer())
        mission = settle(GOAL)
        assert asks(mission)["asks"]["kind"] == "confirm"
        return mission

    def test_what_was_changed_is_asked_about_again(self, settle, model, project, mission):
        call = {"tool": "write_file", "params": {"path": f"{project}/b.md", "text": "Hello"}}
        model.add(Reply(match="You choose the tool", json={"call": call}))
        again = settle("Rather to b.md", task=mission.pk)
        assert "Write 5 bytes to b.md in" in said(again)
        assert asks(again)["asks"]["digest"] != asks(mission)["asks"]["digest"]
        assert not ToolCall.objects.exists()
        assert settle("yes", task=mission.pk).state == "completed"
        assert (project / "b.md").read_text() == "Hello"
        assert not (project / "a.md").exists()

    def test_a_model_that_is_no_help_changes_nothing(self, settle, model, mission):
        model.add(Reply(match="You choose the tool", text="no JSON"))
        again = settle("Rather to the other one", task=mission.pk)
        assert asks(again)["asks"]["digest"] == asks(mission)["asks"]["digest"]
        assert not ToolCall.objects.exists()

    def test_a_yes_holds_for_that_payload_alone(self, settle, model, project, mission):
        from tasks.models import Subtask

        row = Subtask.objects.get(tool="write_file")
        Subtask.objects.filter(pk=row.pk).update(params=row.params | {"text": "Something else"})
        again = settle("yes", task=mission.pk)
        assert "Write 14 bytes" in said(again)
        assert not ToolCall.objects.exists()


class TestRiskyActWithoutAPlan:
    def test_the_model_reads_what_should_be_different(self, settle, model, project):
        def call(name: str) -> dict:
            return {"tool": "write_file", "params": {"path": f"{project}/{name}", "text": "Hello"}}

        model.add(triage(call=call("a.md")), triage(call=call("b.md")))
        mission = settle("Keep a note that says hello")
        assert "a.md" in said(mission)
        again = settle("Rather in b", task=mission.pk)
        assert "Rather in b" in model.prompts[-1]
        assert "Write 5 bytes to a.md" in model.prompts[-1]
        assert "Write 5 bytes to b.md in" in said(again)
        assert settle("yes", task=mission.pk).state == "completed"
        assert ((project / "b.md").exists(), (project / "a.md").exists(), len(model.requests)) == (True, False, 2)


class TestDoubt:
    """BUREAU_CONFIRM=model: the model may ask about what the policy leaves open."""

    @pytest.mark.parametrize(("decision", "state"), [("ask", "input-required"), ("proceed", "completed")])
    def test_the_model_decides(self, settle, model, project, settings, decision, state):
        settings.BUREAU_CONFIRM = "model"
        call = {"tool": "write_file", "params": {"path": "a.md", "text": "Hello"}}
        model.add(triage(call=call), says("confirm", {"decision": decision}))
        assert settle("Keep a note that says hello").state == state
        assert (project / "output" / "a.md").exists() == (state == "completed")

    def test_a_part_that_may_be_asked_about_is_not_done_by_the_coordinator_who_cannot_ask(
        self, settle, model, project, settings
    ):
        settings.BUREAU_CONFIRM = "model"
        model.add(triage(needs_plan=True), plan(part("note", step("Keep it", "write_file", path="a.md", text="Hello"))))
        model.add(says("confirm", {"decision": "ask"}), answer())
        mission = settle(GOAL)
        assert asks(mission)["asks"]["kind"] == "confirm"
        assert settle("yes", task=mission.pk).state == "completed"
        assert (project / "output" / "a.md").read_text() == "Hello"


class TestLowConfidence:
    def test_the_rules_ask_before_they_deliver_less_than_half(self, settle, project):
        mission = settle("Read README.md, read gone.md, and read lost.md")
        assert asks(mission)["kind"] == "confidence"
        assert "confidence 0.33" in said(mission)
        mission = settle("yes", task=mission.pk)
        assert mission.state == "completed"
        assert mission.artifacts.filter(name="answer").exists()

    def test_what_was_refused_is_not_delivered(self, settle, project):
        mission = settle("Read README.md, read gone.md, and read lost.md")
        mission = settle("No.", task=mission.pk)
        assert (mission.state, said(mission)) == ("failed", "The answer was not delivered, because you refused it.")
        assert not mission.artifacts.filter(name="answer").exists()


def costly(model, *parts, **usage):
    """A plan of two parts. Every call at a step took as much as `usage` says, so far."""
    for _ in range(2):
        Decision.objects.create(
            task=earlier(), point="step", brain="claude", attempts=1, model="claude-sonnet-5-5", **usage
        )
    model.add(triage(needs_plan=True), plan(*(parts or (part("facts"), part("maps")))))
    model.add(writes("facts"), writes("maps"), answer())


def earlier():
    from directory.models import Agent
    from tasks.content import Incoming
    from tasks.models import Task
    from tasks.services import cancel_task, send_message
    from tests.support.cast import BOB

    sent = send_message(BOB, Agent.objects.get(slug="echo"), Incoming.from_text("Earlier"))
    cancel_task(BOB, sent.task_id)
    return Task.objects.get(pk=sent.task_id)


class TestCost:
    def test_a_plan_that_takes_too_large_a_share_is_asked_about_with_its_estimate(self, settle, model):
        costly(model, input_tokens=200_000, output_tokens=120_000)
        mission = settle(GOAL)
        assert asks(mission)["kind"] == "confirm"
        text = said(mission)
        for piece in (
            "Carry out a plan of 2 parts:",
            "1. The facts (researcher)",
            "- Work on maps",
            "3 calls",
            "644,000",
        ):
            assert piece in text
        # Two steps at $2 and $10 a million, and the answer at a tenth of a dollar and half of one.
        assert "$3.20" in text
        assert not SubPlan.objects.exists()
        row = Decision.objects.get(point="confirm")
        assert (row.choice, row.rationale in text) == ({"decision": "ask"}, True)
        assert settle("yes", task=mission.pk).state == "completed"
        assert SubPlan.objects.count() == 2
        assert Budget.objects.get(pk=mission.pk).usd_limit == 5

    def test_what_is_more_than_is_left_doubles_the_budget_when_it_was_approved(self, settle, model, settings):
        settings.BUREAU_BUDGET_USD = 2
        costly(model, input_tokens=200_000, output_tokens=120_000)
        mission = settle(GOAL)
        assert "the budget is doubled" in said(mission)
        assert settle("yes", task=mission.pk).state == "completed"
        assert Budget.objects.get(pk=mission.pk).usd_limit == 4

    def test_a_plan_that_was_refused_is_not_begun(self, settle, model):
        costly(model, input_tokens=200_000, output_tokens=120_000)
        mission = settle(GOAL)
        before = len(model.requests)
        mission = settle("no", task=mission.pk)
        assert (mission.state, mission.status_message["metadata"]["errorClass"]) == ("failed", "not_confirmed")
        assert (SubPlan.objects.count(), len(model.requests)) == (0, before)

    def test_a_plan_that_was_changed_is_made_and_asked_about_anew(self, settle, model):
        costly(model, input_tokens=200_000, output_tokens=120_000)
        mission = settle(GOAL)
        model.add(triage(needs_plan=True), plan(part("facts"), part("maps", step("Work on old maps"))))
        again = settle("Only old maps", task=mission.pk)
        assert "Only old maps" in model.prompts[-1]
        assert "- Work on old maps" in said(again)
        assert asks(again)["digest"] != asks(mission)["digest"]
        model.add(writes("old maps"))
        assert settle("go ahead", task=mission.pk).state == "completed"

    def test_what_is_cheap_is_not_asked_about(self, settle, model):
        costly(model, input_tokens=2_000, output_tokens=500)
        assert settle(GOAL).state == "completed"
        assert not Decision.objects.filter(point="confirm").exists()

    @pytest.mark.parametrize(("share", "state"), [(0, "completed"), (0.9, "completed"), (0.1, "input-required")])
    def test_the_share_is_a_setting(self, settle, model, settings, share, state):
        settings.BUREAU_CONFIRM_SHARE = share
        costly(model, input_tokens=200_000, output_tokens=120_000)
        assert settle(GOAL).state == state

    def test_more_calls_than_are_left_are_asked_about(self, settle, model, settings):
        settings.BUREAU_BUDGET_CALLS = 4
        costly(model, input_tokens=2_000, output_tokens=500)
        mission = settle(GOAL)
        assert "3 calls to the model" in said(mission)
        assert "2 calls to the model" in said(mission)

    def test_a_single_act_is_asked_about_with_its_payload(self, settle, model, settings):
        settings.BUREAU_BUDGET_TOKENS = 100_000
        text = "The bees are well. " * 12_000
        model.add(triage(call={"tool": "summarize", "params": {"text": text}}))
        mission = settle("Sum it up")
        assert 'summarize {"text": "The bees are well.' in said(mission)
        assert "is estimated to take 1 call to the model, 77," in said(mission)
        assert not ToolCall.objects.exists()

    def test_without_a_model_nothing_costs(self, settle, project, settings):
        settings.BUREAU_BUDGET_CALLS = 1
        assert settle("Read README.md, and read main.py").state == "completed"
