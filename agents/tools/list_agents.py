"""Lists the agents of the directory."""

import re
from typing import Any, Literal

from pydantic import Field

from agents.conversation import Request
from agents.tools.base import Params, Tool, ToolResult
from agents.tools.grammar import command
from agents.turn import Turn
from directory import listing
from directory.identity import Caller
from directory.models import Agent
from tasks.results import ArtifactDraft

_EXACT = re.compile(
    r"^(?:list|show|display)(?:\s+me)?(?:\s+(?:all|the|of|known|available|your))*[\s_]+agents?(?:\s+(?:directory|list))?"
    r"(?:\s*,?\s*(?:in\s+)?(?P<form>simple|short|brief|detailed|full)(?:\s+(?:form|format|list))?|\s+in\s+detail)?$",
    re.IGNORECASE,
)
_SIMPLE = re.compile(r"\b(?:simple|short|brief(?:ly)?|just the names|names only|compact)\b", re.IGNORECASE)


class ListAgentsParams(Params):
    format: Literal["detailed", "simple"] = Field(default="detailed", description="simple: identifiers and names only.")


class ListAgents(Tool[ListAgentsParams]):
    name = "list_agents"
    description = "Lists the agents that this Bureau knows, with what they can do."
    params = ListAgentsParams
    examples = (
        "List agents",
        "Which agents do you know?",
        "Show the agent directory",
        "Who is available here to help me?",
        "What can your agents do?",
        "Give me the names of all known agents in simple form",
        "Which skills are offered here?",
        "What are you able to do?",
        "What can you do for me?",
        "Tell me about the other agents",
        "Who else is there?",
    )
    cues = ("agents", "agent", "skills")

    def parse(self, request: Request) -> dict[str, Any] | None:
        found = _EXACT.match(command(request.text))
        return self.extract(request) if found else None

    def extract(self, request: Request) -> dict[str, Any]:
        return {"format": "simple"} if _SIMPLE.search(request.text) else {}

    def run(self, turn: Turn, params: ListAgentsParams) -> ToolResult:
        is_simple = params.format == "simple"
        caller = turn.standing
        agents = listing.known_to(caller)
        shown = [{"id": agent.slug, "name": agent.name} if is_simple else _detailed(caller, agent) for agent in agents]
        data = {"count": len(shown), "agents": shown}
        lines = [f"{agent.slug}: {agent.name}" if is_simple else _lines(agent) for agent in agents]
        text = "\n".join(lines) or "No agents are known here yet."
        told = f"{len(shown)} agent{'' if len(shown) == 1 else 's'}."
        return ToolResult(told, [ArtifactDraft("agents", [{"text": text}, {"data": data}])], data)


def _detailed(caller: Caller, agent: Agent) -> dict[str, Any]:
    return {
        "id": agent.slug,
        "name": agent.name,
        "description": agent.description,
        "kind": agent.kind,
        "role": agent.role,
        "version": agent.version,
        "url": listing.address_for(caller, agent),
        "inputModes": agent.input_modes,
        "outputModes": agent.output_modes,
        "skills": [
            {"id": skill.skill_id, "name": skill.name, "description": skill.description, "examples": skill.examples}
            for skill in agent.skills.all()
        ],
    }


def _lines(agent: Agent) -> str:
    head = f"{agent.slug}: {agent.name} ({agent.kind}). {agent.description}".rstrip()
    skills = [f"  - {skill.name}: {skill.description}" for skill in agent.skills.all()]
    return "\n".join([head, *skills])
