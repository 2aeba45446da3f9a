"""Each decision point of a mission: a good answer, an unclear one, no JSON, a refusal, a timeout, overload."""

import pytest

from agents.brain import get_brain
from agents.conversation import Conversation
from agents.models import Decision
from agents.orchestration import points, progress
from agents.outcomes import Blocked
from agents.points import FULFIL, ROUTE, TOOL, ChoicePoint, TextPoint, Triage
from agents.tools.catalog import tools
from tests.agents.conftest import begin, run
from tests.orchestration.script import part, says, step
from tests.support.messages_api import Reply

__all__ = ["begin", "run"]

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]

CALL = {"tool": "echo", "params": {"text": "hi"}}
CASES = {
    "clarify": (points.CLARIFY, Triage, {"is_clear": False, "question": "Which?"}, "is_clear"),
    "decompose": (points.DECOMPOSE, Triage, {"needs_plan": True}, "needs_plan"),
    "triage": (
        points.TRIAGE,
        Triage,
        {"is_clear": True, "needs_plan": False, "decision": "local", "call": CALL},
        "tool",
    ),
    "route": (ROUTE, Triage, {"decision": "reject", "reason": "No."}, "decision"),
    "tool": (TOOL, Triage, {"call": CALL}, "tool"),
    "plan": (points.PLAN, points.PlanCase, {"sub_plans": [part("a", step("x"))]}, "sub_plans"),
    "allocate": (
        points.ALLOCATE,
        lambda c, t: points.AllocateCase(c, t, "a:0", "a", "goal", "role", (("x", 1.0, "w"), ("y", 0.95, "w"))),
        {"agent": "y"},
        "agent",
    ),
    "follow-up": (
        progress.FOLLOW_UP,
        lambda c, t: progress.FollowUpCase(c, t, "m", "Which file?", "Later"),
        {"decision": "human"},
        "decision",
    ),
    "recover": (
        progress.RECOVER,
        lambda c, t: progress.RecoverCase(c, t, "a:0", "a", "goal", 0, "no_text", "It is empty.", ("y",)),
        {"strategy": "alternative"},
        "strategy",
    ),
    "synthesise": (
        progress.SYNTHESISE,
        lambda c, t: progress.SynthesisCase(c, t, "answer", "goal", (("a", "Facts", "done", "It is so."),)),
        {"final_answer": "So it is.", "conflicts": [], "notes": ""},
        "final_answer",
    ),
    "confirm": (
        progress.CONFIRM,
        lambda c, t: progress.ConfirmCase(c, t, "d", "Write a file", "d", is_risky=False),
        {"decision": "proceed"},
        "decision",
    ),
}
# What stands when the answer is no JSON, as docs/brain.md says.
FALLBACK = {
    "clarify": True,
    "decompose": False,
    "triage": "answer",
    "route": "local",
    "tool": "answer",
    "plan": [],
    "allocate": "x",
    "follow-up": "human",
    "recover": "abandon",
    "synthesise": "## Facts\n\nIt is so.",
    "confirm": "ask",
}
ASK = "Do something remarkable about the weather of last year"
UNUSABLE = {
    "no JSON": Reply(text="I would rather not say", times=0),
    "another schema": Reply(json={"something": "else"}, times=0),
    "cut off": Reply(text='{"is_clear": tr', stop_reason="max_tokens", times=0),
    "refused": Reply(stop_reason="refusal", times=0),
    "refused by the server": Reply(status=400, times=0),
    "overloaded": Reply(status=529, times=0),
    "timeout": Reply(fault="hang", times=0),
}


def decide(begin, name):
    point, make, _, field = CASES[name]
    turn = begin("assistant", ASK)
    choice = get_brain().decide(turn, point, make(Conversation(turn), list(tools().values())))
    return choice, getattr(choice.answer, field)


@pytest.mark.parametrize("name", CASES)
def test_a_good_answer_is_followed_and_recorded(begin, model, name):
    _, _, good, field = CASES[name]
    model.add(Reply(json={**good, "rationale": "So.", "confidence": 0.8}))
    choice, found = decide(begin, name)
    assert (choice.is_fallback, choice.answer.confidence, len(model.requests)) == (False, 0.8, 1)
    if name in ("triage", "tool"):
        assert (choice.answer.tool, choice.answer.params) == ("echo", {"text": "hi"})
    elif name != "plan":
        assert found == good[field]
    rows = Decision.objects.all()
    assert {row.brain for row in rows} == {"claude"}
    assert sum(row.attempts for row in rows) == 1
    assert ASK in model.prompts[0] or name in ("allocate", "follow-up", "recover")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("fault", UNUSABLE)
def test_without_a_clear_answer_the_fallback_stands(begin, model, settings, name, fault):
    if fault == "timeout":
        settings.BUREAU_MODEL_TIMEOUT = 0.3
    reply = UNUSABLE[fault]
    model.add(Reply(**{**reply.__dict__}))
    choice, found = decide(begin, name)
    assert choice.is_fallback
    assert choice.error
    row = Decision.objects.first()
    assert (row.is_fallback, bool(row.error)) == (True, True)
    expected = FALLBACK[name]
    if name in ("triage", "route") and fault == "refused":
        assert choice.answer.decision == "reject"
    else:
        assert found == expected


# What stands where no model is asked, for what the rules are not sure of.
OFF = FALLBACK | {"follow-up": "handle", "confirm": "proceed"}


@pytest.mark.parametrize("name", [name for name in CASES if name != "triage"])
def test_a_point_that_is_off_asks_no_model(begin, model, settings, name):
    settings.BUREAU_POINTS_OFF = (name,)
    choice, found = decide(begin, name)
    assert model.requests == []
    assert (found, choice.is_fallback) == (OFF[name], False)
    assert {row.brain for row in Decision.objects.all()} == {"rules"}


def test_every_point_can_be_switched_off():
    from bureau import env

    names = {point.name for point in (*points_of(points), *points_of(progress), ROUTE, TOOL, FULFIL)}
    # Triage is its parts; a step is the plan's, and a summary the tool's.
    allowed = names - {"triage", "step"}
    assert env.POINTS_OFF.kind.parse(",".join(sorted(allowed))) == tuple(sorted(allowed))
    for name in ("triage", "step"):
        with pytest.raises(ValueError, match="is none of"):
            env.POINTS_OFF.kind.parse(name)


def points_of(module) -> list:
    return [value for value in vars(module).values() if isinstance(value, ChoicePoint | TextPoint)]


@pytest.mark.parametrize("off", [("route",), ("tool",), ("route", "tool")])
def test_where_a_part_of_triage_is_off_the_others_are_asked_one_by_one(run, model, settings, project, off):
    settings.BUREAU_POINTS_OFF = off
    model.add(
        Reply(match="does it need a plan\\?", json={"needs_plan": False}),
        Reply(match="choose between two ways", json={"decision": "local"}),
        Reply(match="You choose the tool", json={"call": CALL}),
        Reply(match="You write the answer", text="Rain."),
    )
    outcome = run("assistant", "Tell me something remarkable about the weather of last year")
    expected = [{"text": "Rain."}] if "tool" in off else [{"text": "hi"}]
    assert outcome.artifacts[0].parts == expected
    asked = set(Decision.objects.filter(brain="claude").values_list("point", flat=True))
    assert asked.isdisjoint(off)
    assert asked >= {"decompose"}


def test_nothing_is_written_where_that_is_off(run, model, settings):
    settings.BUREAU_POINTS_OFF = ("fulfil",)
    outcome = run("assistant", "Write a poem about the sea")
    assert (outcome.error_class, "switched off" in outcome.message) == ("no_model", True)
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    ("error_class", "attempt", "strategy"),
    [
        ("model_timeout", 0, "retry"),
        ("model_timeout", 2, "abandon"),
        ("agent_unavailable", 0, "alternative"),
        ("model_auth", 0, "ask"),
        ("no_model", 0, "abandon"),
    ],
)
def test_policy_comes_before_the_model(begin, model, error_class, attempt, strategy):
    turn = begin("assistant", ASK)
    case = progress.RecoverCase(Conversation(turn), (), "a:0", "a", "goal", attempt, error_class, "It broke.", ("y",))
    assert get_brain().decide(turn, progress.RECOVER, case).answer.strategy == strategy
    assert model.requests == []


@pytest.mark.parametrize(
    ("text", "is_asked"),
    [
        ("Write three sentences about the bees of northern Ukraine in spring", False),
        ("read README.md", False),
        ("Fix it", True),
        ("Can you please help me with the thing that I need?", True),
    ],
)
def test_what_is_plainly_clear_costs_no_question(run, model, settings, project, text, is_asked):
    settings.BUREAU_TRIAGE = "staged"
    model.add(says("clarify", {"is_clear": False, "question": "About what?"}), says("decompose", {"needs_plan": False}))
    model.add(Reply(match="choose between two ways", json={"decision": "local"}))
    model.add(Reply(match="You choose the tool", json={"call": {"tool": "answer", "params": {}}}))
    outcome = run("assistant", text)
    assert isinstance(outcome, Blocked) is is_asked
    assert Decision.objects.filter(point="clarify").exists() is is_asked
