"""What a decision chose, in a few words."""

import uuid

import pytest

from agents.headlines import LONGEST, headline
from agents.models import Decision

MISSION = uuid.UUID("634e522c-f5d2-4780-9a99-21d680bab9cc")


def said(choice) -> str:
    return headline(Decision(task_id=MISSION, point="x", brain="rules", choice=choice))


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"tool": "echo", "params": {"text": "a"}}, "echo"),
        ({"is_clear": False, "question": "Which roof?"}, "not clear enough"),
        ({"needs_plan": True}, "needs a plan"),
        ({"is_dry": True}, "is dry: yes"),
        ({"sub_plans": [{}, {}]}, "2 parts"),
        ({"sub_plans": [{}]}, "1 part"),
        ({"characters": 1076, "stop_reason": "end_turn"}, "1,076 characters"),
        ({"agent": "", "decision": "local"}, "done here"),
        ({"agent": "writer"}, "writer"),
        ({"agent": "night-critic-634e522cf5d2-2"}, "night-critic, made for this mission"),
        (
            {"final_answer": "## Ten hives\n\n- **Start**, with\nthe `three`\n- in [spring](https://x.example)"},
            "Ten hives Start, with the three in spring",
        ),
        ({}, ""),
    ],
)
def test_it_is_in_words(choice, words):
    assert said(choice) == words


def test_a_long_one_is_cut():
    assert len(said({"final_answer": "bees " * 100})) == LONGEST
