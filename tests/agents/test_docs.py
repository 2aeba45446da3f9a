"""What docs/agents.md tells authors to write works as it stands there; both pages know all there is."""

import re
from pathlib import Path

import pytest

from agents import registry, rules
from agents.conversation import Conversation, request_from_text
from agents.handlers.acting import use_tool
from agents.outcomes import Blocked, Ok
from agents.tools.catalog import tools
from tests.agents.requests import CALIBRATION, HELD_OUT

DOCS = Path(__file__).parents[2] / "docs"
AGENTS, BRAIN = (DOCS / "agents.md").read_text(), (DOCS / "brain.md").read_text()
TOOL_CODE, HANDLER_CODE = re.findall(r"```python\n(.*?)```", AGENTS, re.DOTALL)


def executed(code: str) -> dict:
    names: dict = {}
    exec(compile(code, "docs/agents.md", "exec"), names)
    return names


@pytest.mark.django_db
def test_the_tool_works(begin):
    shout = executed(TOOL_CODE)["Shout"]()
    assert shout.parse(request_from_text("shout hello")) == {"text": "hello"}
    assert (
        rules._by_meaning(request_from_text("say it in capital letters"), {**tools(), "shout": shout}).tool == "shout"
    )
    turn = begin("assistant", "shout hello")
    assert isinstance(use_tool(turn, Conversation(turn), shout, {}), Blocked)
    outcome = use_tool(turn, Conversation(turn), shout, {"text": "hello"})
    assert outcome.artifacts[0].parts == [{"text": "HELLO"}]


@pytest.mark.django_db
def test_the_agent_works(begin, monkeypatch):
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    monkeypatch.setattr("agents.authoring.AUTHORED", {})
    executed(HANDLER_CODE)
    greeter = registry.get_handler("greeter")
    assert greeter.takes_sub_plans
    assert greeter.run(begin("echo", "Ada")).artifacts[0].parts == [{"text": "Hello, Ada!"}]
    assert isinstance(greeter.run(begin("echo", "", {"data": {}})), Blocked)
    assert isinstance(greeter.run(begin("echo", "x")), Ok)


def test_every_tool_and_agent_is_explained():
    for name in [*tools(), *registry.handler_names()]:
        assert f"`{name}`" in AGENTS, name


def test_every_prompt_belongs_to_a_point_that_is_explained():
    for template in (DOCS.parent / "templates" / "prompts").iterdir():
        assert f"`{template.stem}`" in BRAIN, template.stem


def test_the_sizes_of_the_evaluation_are_those_in_the_table():
    assert f"| {len(CALIBRATION)} |" in BRAIN
    assert f"| {len(HELD_OUT)} |" in BRAIN
