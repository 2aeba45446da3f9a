"""The agents that come with Bureau: made where they are missing, never changed where they are not."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from agents.authoring import AUTHORED
from agents.orchestration.allocation import TEMPLATES
from agents.tools.catalog import tools
from directory.models import Agent, Skill
from directory.services import forget_agents

TEXT = ["text/plain"]
TEXT_AND_DATA = ["text/plain", "application/json"]
TEXT_DATA_AND_FILES = ["text/plain", "application/json", "text/markdown", "text/html", "text/csv"]
VERSION = "1.0.0"


@dataclass(frozen=True, slots=True)
class SeedSkill:
    """A skill; its examples are those of the tool of the same name, unless it has some of its own."""

    skill_id: str
    name: str
    description: str
    tags: Sequence[str]
    examples: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class SeedAgent:
    """An agent as a fresh Bureau has it."""

    slug: str
    name: str
    description: str
    role: str
    skills: Sequence[SeedSkill]
    input_modes: Sequence[str] = field(default_factory=lambda: TEXT)
    output_modes: Sequence[str] = field(default_factory=lambda: TEXT)
    handler: str = ""
    """The slug, when it is empty."""


ECHO = SeedSkill("echo", "Echo", "Says back exactly the text it is given.", ["test"])
SUMMARIZE = SeedSkill(
    "summarize", "Summarise", "Summarises a text, a file, attachments or an earlier result.", ["text", "summary"]
)
LIST_AGENTS = SeedSkill(
    "list_agents", "List agents", "Lists the agents that are known here, with what they can do.", ["directory"]
)
REMEMBER_AGENT = SeedSkill(
    "remember_agent",
    "Remember an agent",
    "Adds a remote agent to the directory, by its URL; for operators, who are asked first.",
    ["agents", "discovery"],
)
LIST_FILES = SeedSkill("list_files", "List files", "Lists files and folders of the project.", ["files"])
READ_FILE = SeedSkill("read_file", "Read a file", "Shows the text of a file of the project.", ["files"])
WRITE_FILE = SeedSkill("write_file", "Write a file", "Writes a text into a new file of the output folder.", ["files"])
FIND = SeedSkill(
    "find",
    "Find and show",
    "Finds, lists and shows what is in the project, as part of a mission.",
    ["files", "mission"],
    ("Find out which files there are", "Show what is in this folder", "List what is there", "Gather these files"),
)
RESEARCH = SeedSkill(
    "research",
    "Research",
    "Gathers and compares what the material at hand says, and names where it says so, as part of a mission.",
    ["research", "mission"],
    (
        "Gather what these documents say about it",
        "Compare the two files",
        "Find out how it works and name the sources",
        "Collect the facts for a report",
    ),
)
ASSIST = SeedSkill(
    "assist",
    "Assist",
    "Does what it is asked with the tools it has; with a language model it also answers and writes.",
    ["general"],
    (
        "Summarise the file README.md",
        "Which agents do you know?",
        "List the files in docs",
        "Explain in two sentences what this project is for",
    ),
)

AGENTS = (
    SeedAgent(
        "assistant",
        "Assistant",
        "The front door: takes any request, picks the tool for it, and says plainly when it cannot help.",
        "assistant",
        (ASSIST,),
        TEXT_DATA_AND_FILES,
        TEXT_AND_DATA,
    ),
    SeedAgent("echo", "Echo", "Says back what it is told. For trying things out.", "tester", (ECHO,)),
    SeedAgent(
        "summarizer",
        "Summarizer",
        "Summarises texts and files; by choosing sentences where there is no language model.",
        "summarizer",
        (SUMMARIZE,),
        TEXT_DATA_AND_FILES,
    ),
    SeedAgent(
        "directory",
        "Directory",
        "Knows which agents there are and what they can do.",
        "directory",
        (LIST_AGENTS, REMEMBER_AGENT),
        TEXT_AND_DATA,
        TEXT_AND_DATA,
    ),
    SeedAgent(
        "file-lister",
        "File lister",
        "Lists the files of the project folder.",
        "librarian",
        (LIST_FILES,),
        TEXT_AND_DATA,
        TEXT_AND_DATA,
    ),
    SeedAgent(
        "file-reader",
        "File reader",
        "Shows the text of files of the project folder.",
        "librarian",
        (READ_FILE,),
        TEXT_DATA_AND_FILES,
    ),
    SeedAgent(
        "writer",
        "Writer",
        "Does the parts of a mission that end in a text or a file.",
        "writer",
        (WRITE_FILE,),
        TEXT_DATA_AND_FILES,
        handler="specialist",
    ),
    SeedAgent(
        "researcher",
        "Researcher",
        "Does the parts of a mission that gather and compare what the material says.",
        "researcher",
        (RESEARCH,),
        TEXT_DATA_AND_FILES,
        handler="specialist",
    ),
    SeedAgent(
        "librarian",
        "Librarian",
        "Does the parts of a mission that find and show what is there.",
        "librarian",
        (FIND,),
        TEXT_DATA_AND_FILES,
        handler="specialist",
    ),
)


@transaction.atomic
def seed() -> list[str]:
    """Make the agents and skills that are missing. Returns what was made, such as "agent echo".

    An agent or skill that is there already is an operator's to edit, and stays as it is. A skill that an
    operator took away from an agent stays away.
    """
    made: list[str] = []
    for wanted in AGENTS:
        agent, is_new = Agent.objects.get_or_create(slug=wanted.slug, defaults=_agent_fields(wanted))
        if is_new:
            made.append(f"agent {agent.slug}")
            for skill in wanted.skills:
                Skill.objects.create(agent=agent, skill_id=skill.skill_id, **_skill_fields(skill))
                made.append(f"skill {agent.slug}/{skill.skill_id}")
    made += _seed_authored()
    if made:
        forget_agents()
    return made


def _seed_authored() -> list[str]:
    """The agents of other authors that are installed here, made where they are missing."""
    made: list[str] = []
    for found in AUTHORED.values():
        defaults = {
            "name": found.title,
            "description": found.description,
            "kind": Agent.Kind.LOCAL,
            "role": found.role,
            "handler": found.name,
            "needs_task": found.needs_task,
            "version": VERSION,
            "input_modes": TEXT,
            "output_modes": TEXT,
        }
        agent, is_new = Agent.objects.get_or_create(slug=found.name, defaults=defaults)
        if not is_new:
            continue
        made.append(f"agent {agent.slug}")
        for skill in found.skills:
            Skill.objects.create(
                agent=agent,
                skill_id=skill.skill_id,
                name=skill.skill_id.replace("_", " ").capitalize(),
                description=skill.description,
                tags=list(skill.tags),
                examples=list(skill.examples),
            )
            made.append(f"skill {agent.slug}/{skill.skill_id}")
    return made


def _agent_fields(wanted: SeedAgent) -> dict[str, Any]:
    return {
        "name": wanted.name,
        "description": wanted.description,
        "kind": Agent.Kind.LOCAL,
        "role": wanted.role,
        "handler": wanted.handler or wanted.slug,
        "options": _options(wanted),
        "version": VERSION,
        "input_modes": list(wanted.input_modes),
        "output_modes": list(wanted.output_modes),
    }


def _options(wanted: SeedAgent) -> dict[str, Any]:
    template = TEMPLATES.get(wanted.role) if wanted.handler == "specialist" else None
    return {"tools": list(template.tools), "system": template.system} if template else {}


def _skill_fields(skill: SeedSkill) -> dict[str, Any]:
    tool = tools().get(skill.skill_id)
    examples = skill.examples or (tool.examples if tool else ())
    return {
        "name": skill.name,
        "description": skill.description,
        "tags": list(skill.tags),
        "examples": list(examples),
    }
