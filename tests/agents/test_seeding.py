"""Seeding: complete at first, and never in an operator's way after that."""

import pytest

from agents.registry import handler_names
from agents.seeding import seed
from agents.tools.catalog import tools
from directory.models import Agent, Skill

pytestmark = pytest.mark.django_db


def test_it_makes_the_agents_and_says_so():
    made = seed()
    assert set(Agent.objects.values_list("slug", flat=True)) == {
        "assistant",
        "echo",
        "summarizer",
        "directory",
        "file-lister",
        "file-reader",
        "writer",
        "researcher",
        "librarian",
    }
    assert "agent echo" in made
    assert "skill file-reader/read_file" in made
    assert len(made) == Agent.objects.count() + Skill.objects.count()


def test_every_agent_is_complete():
    seed()
    for agent in Agent.objects.prefetch_related("skills"):
        agent.full_clean()
        assert agent.handler in handler_names()
        assert agent.description
        assert agent.role
        assert agent.input_modes
        assert agent.output_modes
        assert agent.skills.exists()
        for skill in agent.skills.all():
            skill.full_clean()
            assert len(skill.examples) >= 4
            assert skill.tags


def test_it_can_be_repeated():
    seed()
    assert seed() == []


def test_it_leaves_the_edits_of_an_operator_alone():
    seed()
    Agent.objects.filter(slug="echo").update(name="Parrot", is_enabled=False)
    Skill.objects.filter(skill_id="echo").update(examples=["Polly"])
    Skill.objects.filter(skill_id="read_file").delete()
    assert seed() == []
    assert Agent.objects.get(slug="echo").name == "Parrot"
    assert Skill.objects.get(skill_id="echo").examples == ["Polly"]
    assert not Skill.objects.filter(skill_id="read_file").exists()


def test_an_agent_that_was_deleted_comes_back():
    seed()
    Agent.objects.get(slug="echo").delete()
    assert seed() == ["agent echo", "skill echo/echo"]


def test_every_tool_but_the_model_has_a_skill_that_operators_can_teach():
    seed()
    assert set(tools()) - {"answer"} <= set(Skill.objects.values_list("skill_id", flat=True))
