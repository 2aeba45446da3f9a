"""How well the rules find the tool that is meant: right when they choose, and honest when they do not know."""

import socket

import numpy as np
import pytest

from agents import matching, rules
from agents.conversation import request_from_text
from agents.matching import embed, similarities
from agents.points import Triage
from agents.rules import NOBODY, score_tools
from agents.tools.catalog import tools
from directory.models import Skill
from tests.agents.requests import CALIBRATION, HELD_OUT

pytestmark = pytest.mark.django_db


def measure(requests) -> tuple[float, float]:
    """Accuracy: the share right of those the rules took on. Coverage: the same share of those a tool could do."""
    right = wrong = 0
    for text, wanted in requests:
        request = request_from_text(text)
        reading = rules._exact(request, tools()) or rules._by_meaning(request, tools())
        if reading.refusal:
            continue
        right += reading.tool == wanted
        wrong += reading.tool != wanted
    wanted = sum(name != "answer" for _, name in requests)
    return right / (right + wrong), right / wanted


@pytest.mark.parametrize(("name", "requests"), [("calibration", CALIBRATION), ("held out", HELD_OUT)])
def test_accuracy_and_coverage(name, requests, capsys):
    accuracy, coverage = measure(requests)
    with capsys.disabled():
        print(f"\nrules, {name}: {len(requests)} requests, accuracy {accuracy:.0%}, coverage {coverage:.0%}")
    assert accuracy >= 0.92
    assert coverage >= 0.75


def test_what_only_a_model_can_do_is_never_given_to_a_tool_that_is_far_away():
    for text in (
        "What is the capital of France?",
        "Яка столиця Франції?",
        "asdf qwer",
        "今天天气怎么样",
        "hello",
        "Повтори: привіт",
    ):
        assert rules._by_meaning(request_from_text(text), tools()).refusal


@pytest.mark.parametrize("text", ["delete the file README.md", "rename all files in docs", "send an email to Anna"])
def test_acts_that_no_tool_does_are_refused(text):
    reading = rules._by_meaning(request_from_text(text), tools())
    assert reading.refusal.startswith(rules.NO_MODEL)
    assert not reading.is_definite


def test_examples_that_an_operator_gives_to_a_skill_count(seeded):
    text = "fetch me the grub list"
    before = dict(score_tools(text, tools()))["list_files"]
    skill = Skill.objects.get(skill_id="list_files")
    skill.examples = [*skill.examples, "fetch the grub list"]
    skill.save()
    assert dict(score_tools(text, tools()))["list_files"] > max(before, rules.ACCEPTED)


def test_examples_of_a_disabled_agent_do_not_count(seeded):
    skill = Skill.objects.get(skill_id="list_files")
    skill.agent.is_enabled = False
    skill.agent.save()
    skill.examples = ["fetch the grub list"]
    skill.save()
    assert dict(score_tools("fetch me the grub list", tools()))["list_files"] < rules.ACCEPTED


@pytest.mark.parametrize("text", ["", " ", "?!", "🦄", "\u200b", "a" * 100_000, "\n\n", "x\ty"])
def test_odd_texts_do_no_harm(text):
    scores = dict(score_tools(text, tools()))
    assert set(scores) == {*tools(), NOBODY}
    assert all(np.isfinite(list(scores.values())))


def test_vectors_have_length_one_or_none():
    lengths = np.linalg.norm(embed(["hello there", ""]), axis=1)
    assert lengths.tolist() == pytest.approx([1.0, 0.0])
    assert similarities("hello", []) == []


def test_loading_asks_no_network(monkeypatch):
    monkeypatch.setattr(matching, "_model", None)

    def refuse(*args, **kwargs):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert embed(["hello"]).shape == (1, 256)


def test_the_scores_are_candidates_of_the_decision(begin):
    from agents.brain import get_brain
    from agents.conversation import Conversation
    from agents.models import Decision
    from agents.points import ROUTE

    turn = begin("assistant", "are there any markdown files around")
    get_brain().decide(turn, ROUTE, Triage(Conversation(turn), list(tools().values())))
    best = Decision.objects.get().candidates[0]
    assert best["tool"] == "list_files"
    assert 0 < best["score"] <= 1.2
