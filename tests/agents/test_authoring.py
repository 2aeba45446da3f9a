"""Agents of other authors: what they yield, how they are found, and that coordinators give them work."""

import sys

import pytest

from agents import authoring, registry, seeding
from agents.authoring import Deliverable, Question, Skill, agent, discover
from agents.outcomes import Auth, Blocked, Error, Ok, Rejected
from directory.models import Agent

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    monkeypatch.setattr(authoring, "AUTHORED", {})
    monkeypatch.setattr(seeding, "AUTHORED", authoring.AUTHORED)


def outcome_of(begin, work):
    agent("mine")(work)
    return registry.get_handler("mine").run(begin("echo", "hello"))


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        ("done", Ok("done")),
        (None, Ok()),
        (Question("Which?"), Blocked("", ["Which?"])),
        ({"state": "input-required", "prompt": "Which format?"}, Blocked("", ["Which format?"])),
        ('{"state": "rejected", "prompt": "Not here."}', Rejected("Not here.")),
        (
            {"state": "auth-required", "prompt": "Sign in", "auth_type": "api_key", "service": "github"},
            Auth("Sign in", "api_key", "github"),
        ),
        (Error("broken", "It broke."), Error("broken", "It broke.")),
    ],
)
def test_what_it_returns_is_the_outcome(begin, given, outcome):
    assert outcome_of(begin, lambda turn: given) == outcome


def test_a_class_with_run_will_do(begin):
    class Shouter:
        """Shouts."""

        def run(self, turn):
            yield "Taking a breath …"
            yield Deliverable("shout", turn.text.upper())

    outcome = outcome_of(begin, Shouter)
    assert outcome.artifacts[0].parts == [{"text": "HELLO"}]
    assert authoring.AUTHORED["mine"].description == "Shouts."


def test_nonsense_is_an_error_with_a_name(begin):
    with pytest.raises(TypeError, match="Agent mine yielded a int"):
        outcome_of(begin, lambda turn: iter([1]))


def test_seeding_makes_its_row_and_its_skills(begin):
    agent("poet", role="poet", skills=[Skill("poem", "Writes poems.", ["A poem"])])(lambda turn: "Roses")
    assert seeding.seed() == ["agent poet", "skill poet/poem"]
    row = Agent.objects.get(slug="poet")
    assert (row.handler, row.role, row.needs_task) == ("poet", "poet", True)
    assert registry.takes_sub_plans("poet")


def test_it_may_need_no_task(begin):
    agent("glossary", needs_task=False)(lambda turn: "A word for it.")
    seeding.seed()

    assert not Agent.objects.get(slug="glossary").needs_task


def test_modules_are_found_by_the_setting(tmp_path, monkeypatch, settings, caplog):
    (tmp_path / "my_agents.py").write_text(
        "from agents.authoring import agent\n\n\n@agent('found-one')\ndef work(turn):\n    return 'hi'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    settings.BUREAU_AGENTS = ("my_agents", "no_such_module")
    try:
        assert discover() == ["my_agents"]
    finally:
        sys.modules.pop("my_agents", None)
    assert "found-one" in registry.handler_names()
    assert "no_such_module cannot be imported" in caplog.text
