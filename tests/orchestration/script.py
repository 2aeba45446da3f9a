"""What the scripted model says in a mission: plans by a few words, and replies by decision point."""

from __future__ import annotations

from typing import Any

from tests.support.messages_api import Reply

PROMPTS = {
    "triage": "You decide what happens.*four questions at once",
    "clarify": "can\nsomebody start on it",
    "decompose": "does it need a plan\\?",
    "plan": "You plan how a request is done",
    "allocate": "You choose which agent",
    "follow-up": "waits because it asked a question",
    "recover": "A part of a mission .* has failed",
    "synthesise": "You\nput their results together",
    "confirm": "is about to do something",
    "step": "You do one step",
}


def says(point: str, json: Any = None, about: str = "", **more: Any) -> Reply:
    """A reply at one decision point; `about` must also stand in the request."""
    match = PROMPTS[point] + (f".*{about}" if about else "")
    return Reply(match=match, json=json, **more)


def triage(**values: Any) -> Reply:
    base = {"is_clear": True, "needs_plan": False, "decision": "local", "call": {"tool": "answer", "params": {}}}
    return says("triage", {**base, **values})


def step(instruction: str, tool: str = "answer", **params: Any) -> dict[str, Any]:
    return {"instruction": instruction, "call": {"tool": tool, "params": params}}


def part(key: str, *steps: dict[str, Any], role: str = "researcher", needs: tuple[str, ...] = ()) -> dict[str, Any]:
    made = list(steps) or [step(f"Work on {key}")]
    return {"id": key, "goal": f"The {key}", "role": role, "steps": made, "depends_on": list(needs)}


def plan(*parts: dict[str, Any], **more: Any) -> Reply:
    return says("plan", {"sub_plans": list(parts)}, **more)


def answer(text: str = "All of it.", **values: Any) -> Reply:
    return says("synthesise", {"final_answer": text, "conflicts": [], "notes": "", "confidence": 0.9, **values})


def writes(key: str, text: str = "", **more: Any) -> Reply:
    """What the step "Work on <key>" makes."""
    return says("step", about=f"Work on {key}\\b", **({"text": text or f"Result of {key}."} | more))


DIAMOND = (
    part("facts"),
    part("left", needs=("facts",)),
    part("right", needs=("facts",), role="critic"),
    part("middle", needs=("facts",), role="writer"),
    part("report", needs=("left", "right", "middle"), role="writer"),
)
