"""Whole missions with a scripted model: a diamond, failures, questions, agreement, budgets, cancel."""

import pytest

from agents import runtime
from agents.budget import CLOSED, QUESTION
from agents.exceptions import Stopped
from agents.models import Budget, Decision, ToolCall
from agents.orchestration.coordinator import Coordinator
from directory.models import Agent
from tasks.content import Incoming
from tasks.models import SubPlan, Subtask, Task
from tasks.services import cancel_task, send_message
from tests.orchestration.script import DIAMOND, answer, part, plan, says, step, triage, writes
from tests.support.cast import ALICE
from tests.support.messages_api import Reply

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]

GOAL = "Find out all about it and write a report"


def text_of(mission) -> str:
    return mission.artifacts.get(name="answer").parts[0]["text"]


def said(mission) -> str:
    return mission.status_message["parts"][0]["text"]


def states(mission) -> dict[str, str]:
    found = {}
    for one in SubPlan.objects.filter(mission=mission).select_related("task"):
        found[one.key] = "dropped" if one.is_dropped else one.task.state if one.task else "none"
    return found


def planned(model, *parts, **more) -> None:
    model.add(triage(needs_plan=True), plan(*parts, **more))


def test_a_diamond_of_five_sub_plans(settle, model):
    planned(model, *DIAMOND)
    model.add(*(writes(key) for key in ("facts", "left", "right", "middle", "report")), answer("The report."))
    mission = settle(GOAL)
    assert (mission.state, text_of(mission)) == ("completed", "The report.")
    assert states(mission) == dict.fromkeys(("facts", "left", "right", "middle", "report"), "completed")
    children = {one.key: one.task for one in SubPlan.objects.select_related("task")}
    assert {child.root_id for child in children.values()} == {mission.pk}
    assert {child.context_id for child in children.values()} == {mission.context_id}
    report = children["report"].messages.first()
    assert all(f"Result of {key}." in report.parts[0]["text"] for key in ("left", "right", "middle"))
    points = list(mission.decisions.values_list("point", flat=True))
    assert points[:5] == ["clarify", "decompose", "route", "tool", "plan"]
    assert points.count("allocate") == 5
    # Five steps, and triage, plan and synthesis: nothing else was asked.
    assert len(model.requests) == 8
    for task in [mission, *children.values()]:
        numbers = list(task.events.order_by("seq").values_list("seq", flat=True))
        assert numbers == list(range(1, task.last_seq + 1))


def test_an_agent_is_made_for_a_role_that_nobody_has(settle, model):
    planned(model, part("poem", role="Poet Laureate"))
    model.add(writes("poem"), answer())
    mission = settle(GOAL)
    made = Agent.objects.get(role="poet-laureate")
    assert mission.children.get().agent == made
    assert made.options["mission"] == str(mission.pk)
    assert (made.is_enabled, made.is_published) == (False, False)
    candidates = Decision.objects.get(point="allocate").candidates
    assert candidates == [{"agent": made.slug, "score": 1.05, "why": "has the role"}]


def test_a_sub_plan_that_fails_for_a_moment_is_tried_again(settle, model):
    planned(model, part("facts"))
    model.add(writes("facts", status=529, times=4), writes("facts"), answer())
    mission = settle(GOAL)
    assert mission.state == "completed"
    assert sorted(mission.children.values_list("state", flat=True)) == ["completed", "failed"]
    row = Decision.objects.get(point="recover")
    assert (row.brain, row.choice["strategy"], row.inputs["kind"]) == ("rules", "retry", "transient network")


def test_it_goes_to_another_specialist(settle, model):
    Agent.objects.create(slug="scout", name="Scout", role="researcher", handler="specialist")
    planned(model, part("facts"))
    model.add(
        says("allocate", {"agent": "researcher"}, times=0),
        writes("facts", status=400),
        says("recover", {"strategy": "alternative"}),
        writes("facts"),
        answer(),
    )
    mission = settle(GOAL)
    assert mission.state == "completed"
    assert list(mission.children.order_by("created_at").values_list("agent__slug", flat=True)) == [
        "researcher",
        "scout",
    ]


def test_done_steps_are_not_done_again(settle, model, project):
    planned(model, part("facts", step("Read it", "read_file", path="main.py"), step("Work on facts")))
    model.add(
        writes("facts", status=400),
        says("recover", {"strategy": "retry_modified", "hint": "Be brief."}),
        says("step", about="Be brief", text="Short."),
        answer(),
    )
    mission = settle(GOAL)
    assert mission.state == "completed"
    assert ToolCall.objects.count() == 1
    assert Subtask.objects.filter(state="done").count() == 2


def test_the_rest_is_planned_anew(settle, model):
    planned(model, part("facts"), part("maps", needs=("facts",)), part("report", needs=("maps",), role="writer"))
    model.add(
        writes("facts"),
        writes("maps", status=400),
        says("recover", {"strategy": "replan"}),
        plan(part("report", needs=("facts",), role="writer")),
        writes("report"),
        answer("A report without maps."),
    )
    mission = settle(GOAL)
    assert (mission.state, text_of(mission)) == ("completed", "A report without maps.")
    assert states(mission) == {
        "facts": "completed",
        "maps": "dropped",
        "report": "dropped",
        "report-anew": "completed",
    }


def test_what_cannot_be_done_is_named_in_the_answer(settle, model):
    planned(model, part("facts"), part("maps"), part("atlas", needs=("maps",)))
    model.add(
        writes("facts"), writes("maps", status=400), says("recover", {"strategy": "abandon"}), answer("Some facts.")
    )
    mission = settle(GOAL)
    assert mission.state == "completed"
    assert states(mission) == {"facts": "completed", "maps": "dropped", "atlas": "dropped"}
    assert "The maps" in text_of(mission)
    assert "The atlas" in text_of(mission)
    assert text_of(mission).endswith("Some facts.")
    assert "1 of 3 parts done." in said(mission)


def test_when_nothing_can_be_done_the_mission_fails(settle, model):
    planned(model, part("facts"))
    model.add(writes("facts", status=400), says("recover", {"strategy": "abandon"}))
    mission = settle(GOAL)
    assert mission.state == "failed"
    assert mission.status_message["metadata"]["errorClass"] == "nothing_done"
    assert mission.artifacts.count() == 0


def test_a_question_before_the_plan(settle, model):
    model.add(triage(is_clear=False, question="About what?"))
    mission = settle("Write a report")
    assert (mission.state, said(mission)) == ("input-required", "About what?")
    planned(model, part("facts"))
    model.add(writes("facts"), answer("About bees."))
    mission = settle("About bees", task=mission.pk)
    assert (mission.state, text_of(mission)) == ("completed", "About bees.")
    assert "About bees" in model.prompts[1]


def test_a_question_of_a_specialist_comes_up_and_the_answer_goes_down(settle, model, project):
    planned(model, part("facts", step("Read the file", "read_file"), step("Work on facts")), part("maps"))
    model.add(writes("maps"), writes("facts"), answer())
    mission = settle(GOAL)
    assert mission.state == "input-required"
    assert mission.status_message["metadata"]["missingInputs"] == ["path"]
    assert "Researcher asks" in said(mission)
    child = Task.objects.get(parent=mission, state="input-required")
    model.add(says("follow-up", {"decision": "human"}), says("follow-up", {"decision": "handle"}))
    mission = settle("Wait a moment", task=mission.pk)
    assert mission.state == "input-required"
    assert Task.objects.get(pk=child.pk).messages.count() == 2
    mission = settle("main.py", task=mission.pk)
    assert mission.state == "completed"
    assert Task.objects.get(pk=child.pk).state == "completed"
    assert ToolCall.objects.get().params["path"] == "main.py"


def risky(model, project):
    path = str(project / "notes.md")
    planned(model, part("file", step("Write it", "write_file", path=path, text="Hello"), step("Work on file")))
    model.add(writes("file"), answer())
    return path


def test_what_is_risky_is_done_when_a_person_agrees(settle, model, project):
    path = risky(model, project)
    mission = settle(GOAL)
    assert mission.state == "input-required", said(mission)
    assert "Write 5 bytes to notes.md in " in said(mission)
    assert not (project / "notes.md").exists()
    mission = settle("yes", task=mission.pk)
    assert mission.state == "completed"
    assert (project / "notes.md").read_text() == "Hello"
    assert ToolCall.objects.get().params == {"path": path, "text": "Hello"}


def test_what_is_refused_is_not_done(settle, model, project):
    risky(model, project)
    mission = settle(GOAL)
    mission = settle("no", task=mission.pk)
    assert mission.state == "failed"
    assert "you refused" in said(mission)
    assert not (project / "notes.md").exists()
    assert ToolCall.objects.count() == 0


def test_an_answer_that_is_not_sure_of_itself_is_asked_about(settle, model):
    planned(model, part("facts"))
    model.add(writes("facts"), answer("Perhaps.", confidence=0.2), answer("Certainly not.", confidence=0.3))
    mission = settle(GOAL)
    assert mission.state == "input-required"
    assert "Perhaps." in said(mission)
    mission = settle("It is wrong", task=mission.pk)
    assert mission.state == "input-required"
    assert "It is wrong" in model.prompts[-1]
    mission = settle("yes", task=mission.pk)
    assert (mission.state, text_of(mission)) == ("completed", "Certainly not.")


def test_conflicts_come_first(settle, model):
    planned(model, part("facts"))
    model.add(writes("facts"), answer("Four.", conflicts=["One says three, one says four."]))
    assert text_of(settle(GOAL)).startswith("The results contradict each other:\n- One says three, one says four.")


def test_a_budget_that_runs_out_is_asked_about_and_raised(settle, model, settings):
    settings.BUREAU_BUDGET_CALLS, settings.BUREAU_CONFIRM_SHARE = 3, 0
    planned(model, part("facts"), part("maps"))
    model.add(writes("facts"), writes("maps"), answer())
    mission = settle(GOAL)
    assert mission.state == "input-required"
    assert "may call the model 3 times" in said(mission)
    assert len(model.requests) == 3
    mission = settle("raise", task=mission.pk)
    assert mission.state == "completed"
    budget = Budget.objects.get(pk=mission.pk)
    assert (budget.calls, budget.calls_limit, budget.reservations.count()) == (5, 6, 0)


@pytest.mark.parametrize(("word", "state"), [("finish with what there is", "completed"), ("stop", "failed")])
def test_a_budget_that_runs_out_may_end_the_mission(settle, model, settings, word, state):
    settings.BUREAU_BUDGET_CALLS, settings.BUREAU_CONFIRM_SHARE = 3, 0
    planned(model, part("facts"), part("maps"))
    model.add(writes("facts"), writes("maps"))
    mission = settle(GOAL)
    mission = settle(word, task=mission.pk)
    assert mission.state == state
    assert len(model.requests) == 3
    if state == "completed":
        assert "The budget of the mission was used up".lower() in text_of(mission).lower()
        assert set(mission.children.values_list("state", flat=True)) <= {"completed", "canceled"}


def test_one_budget_is_one_question_however_many_wait_for_it(settle, model, settings):
    settings.BUREAU_BUDGET_CALLS, settings.BUREAU_CONFIRM_SHARE = 2, 0
    planned(model, part("facts"), part("maps"))
    mission = settle(GOAL)
    assert set(mission.children.values_list("state", flat=True)) == {"input-required"}
    assert said(mission) == f"The mission may call the model 2 times, and has.\n{QUESTION}"


def test_what_ends_before_it_has_begun_says_why(settle, model, settings):
    settings.BUREAU_BUDGET_TOKENS = 1000
    mission = settle(GOAL)
    assert "may take 1,000 tokens" in said(mission)
    mission = settle("finish with what there is", task=mission.pk)
    assert (mission.state, said(mission)) == ("failed", CLOSED)
    assert model.requests == []
    assert set(Decision.objects.values_list("error", flat=True)) == {f"budget: {CLOSED}"}


def test_what_is_too_little_for_a_first_call_can_be_raised(settle, model, settings):
    settings.BUREAU_BUDGET_TOKENS = 1000
    mission = settle(GOAL)
    for limit in (2000, 4000):
        mission = settle("raise", task=mission.pk)
        assert f"may take {limit:,} tokens" in said(mission)
        assert model.requests == []


@pytest.mark.parametrize("words", ["Don't stop, raise it", "raise it, or stop", "no idea", "never finish it"])
def test_what_is_unclear_about_the_budget_is_asked_again(settle, model, settings, words):
    settings.BUREAU_BUDGET_CALLS, settings.BUREAU_CONFIRM_SHARE = 3, 0
    planned(model, part("facts"), part("maps"))
    model.add(writes("facts"), writes("maps"), answer())
    mission = settle(GOAL)
    mission = settle(words, task=mission.pk)
    assert (mission.state, said(mission)) == ("input-required", QUESTION)
    budget = Budget.objects.get(pk=mission.pk)
    assert (budget.calls_limit, budget.is_closed, len(model.requests)) == (3, False, 3)
    assert settle("raise it, no hurry", task=mission.pk).state == "completed"


def test_a_worker_that_dies_while_it_ends_a_mission_leaves_nothing_at_work(settle, model, settings, monkeypatch):
    """It had dropped what was left, and canceled none of it yet."""
    settings.BUREAU_BUDGET_CALLS, settings.BUREAU_CONFIRM_SHARE = 3, 0
    planned(model, part("facts"), part("maps"))
    model.add(writes("facts"), writes("maps"))
    mission = settle(GOAL)
    cancel, died = Coordinator._cancel, []

    def dies_once(self, plan):
        if not died:
            died.append(plan)
            raise Stopped
        cancel(self, plan)

    monkeypatch.setattr(Coordinator, "_cancel", dies_once)
    mission = settle("finish", task=mission.pk)
    assert (len(died), mission.state) == (1, "completed")
    assert set(mission.children.values_list("state", flat=True)) == {"completed", "canceled"}


def test_cancel_stops_every_leg(settle, model):
    planned(model, *DIAMOND)
    model.add(writes("facts"), Reply(match="Work on", fault="hang", times=0))
    agent = Agent.objects.get(slug="assistant")
    sent = send_message(ALICE, agent, Incoming.from_text(GOAL))
    from tasks.claims import claim_next

    runtime.run_turn(claim_next("default", "w"))
    runtime.run_turn(claim_next("default", "w"))
    runtime.run_turn(claim_next("default", "w"))
    assert Task.objects.filter(parent=sent.task_id, state="submitted").count() == 3
    cancel_task(ALICE, sent.task_id)
    assert not Task.objects.filter(root=sent.task_id).exclude(state__in=Task.TERMINAL).exists()
    assert claim_next("default", "w") is None


def test_a_plan_is_repaired_once(settle, model):
    model.add(triage(needs_plan=True))
    model.add(plan(part("a", needs=("b",)), part("b", needs=("a",))), plan(part("a")), writes("a"), answer())
    mission = settle(GOAL)
    assert mission.state == "completed"
    assert "wait for each other" in model.prompts[2]
    row = Decision.objects.get(point="plan")
    assert (row.attempts, row.is_fallback) == (2, False)


@pytest.mark.parametrize(
    "bad",
    [
        Reply(match="You plan how", text="no json", times=2),
        Reply(match="You plan how", json={"sub_plans": []}, times=2),
        Reply(match="You plan how", status=400),
        Reply(match="You plan how", stop_reason="refusal"),
        Reply(
            match="You plan how", json={"sub_plans": [part("a", step("x", "read_file", path="{{step 1}}"))]}, times=2
        ),
    ],
)
def test_without_a_usable_plan_it_is_answered_as_a_whole(settle, model, bad):
    model.add(triage(needs_plan=True), bad, Reply(match="You write the answer", text="As a whole."))
    mission = settle(GOAL)
    assert (mission.state, text_of(mission)) == ("completed", "As a whole.")
    assert Decision.objects.get(point="plan").is_fallback
    assert SubPlan.objects.count() == 0
