"""What comes next, from plain values."""

from datetime import UTC, datetime, timedelta

import pytest

from agents.orchestration.flow import (
    Ask,
    Delegate,
    Drop,
    ErrorKind,
    Part,
    PartState,
    PlanProblem,
    Recover,
    Synthesise,
    Wait,
    check_plan,
    classify,
    depths,
    next_move,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=5)


def parts(**states):
    """a="done", b="pending:a" …"""
    found = []
    for key, text in states.items():
        state, _, needs = text.partition(":")
        found.append(Part(key, PartState(state), tuple(needs.split(",")) if needs else ()))
    return found


@pytest.mark.parametrize(
    ("given", "move"),
    [
        (parts(a="pending", b="pending", c="pending:a"), Delegate(("a", "b"))),
        (parts(a="done", b="running", c="pending:a", d="pending:a,b"), Delegate(("c",))),
        (parts(a="running", b="pending:a"), Wait(None)),
        (parts(a="failed", b="pending"), Recover("a")),
        (parts(a="dropped", b="pending:a", c="pending:b"), Drop("b", "a")),
        (parts(a="asking", b="running"), Ask(("a",))),
        (parts(a="asking", b="pending"), Delegate(("b",))),
        (parts(a="done", b="dropped"), Synthesise()),
    ],
)
def test_the_next_move(given, move):
    assert next_move(given, NOW) == move


def test_what_rests_is_waited_for():
    resting = Part("a", PartState.PENDING, retry_at=LATER)
    assert next_move([resting], NOW) == Wait(LATER)
    assert next_move([resting], LATER) == Delegate(("a",))


@pytest.mark.parametrize(
    ("depends_on", "steps", "problem"),
    [
        ({}, {}, "no sub-plans"),
        ({"a": ["b"], "b": ["a"]}, {"a": 1, "b": 1}, "wait for each other: a, b"),
        ({"a": ["a"]}, {"a": 1}, "wait for each other"),
        ({"a": ["x"]}, {"a": 1}, "no id of this plan"),
        ({"a": []}, {"a": 0}, "no steps"),
        ({key: [] for key in "abcdef"}, dict.fromkeys("abcdef", 1), "5 is the most"),
    ],
)
def test_a_plan_that_cannot_run_is_refused(depends_on, steps, problem):
    with pytest.raises(PlanProblem, match=problem):
        check_plan(depends_on, steps, 5)


def test_a_diamond_is_a_plan():
    check_plan({"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}, dict.fromkeys("abcd", 1), 5)
    assert depths(parts(a="done", b="pending:a", c="pending:a", d="pending:b,c")) == {"a": 0, "b": 1, "c": 1, "d": 2}


@pytest.mark.parametrize(
    ("error_class", "kind"),
    [
        ("model_timeout", ErrorKind.TRANSIENT),
        ("model_overloaded", ErrorKind.TRANSIENT),
        ("model_auth", ErrorKind.PERMISSION),
        ("invalid_params", ErrorKind.SYNTAX),
        ("handler_missing", ErrorKind.UNAVAILABLE),
        ("file_not_found", ErrorKind.OTHER),
    ],
)
def test_the_kind_of_an_error(error_class, kind):
    assert classify(error_class) == kind
