"""The one message with which a sub-plan is given out: words for any agent, and the same as data."""

from collections.abc import Sequence
from typing import Any

from agents.conversation import Conversation, read_task
from agents.exceptions import ToolError
from agents.orchestration import evidence
from agents.turn import Turn
from tasks.content import Incoming
from tasks.models import SubPlan
from tasks.plans import read_artifacts

# An extension in the sense of A2A: who does not know it reads the words.
URI = "urn:bureau:envelope:1"
LONGEST_RESULT = 20_000


def envelope_for(turn: Turn, conversation: Conversation, plan: SubPlan, needed: Sequence[SubPlan]) -> Incoming:
    """The message for the agent that gets the sub-plan in this attempt. What came with the mission goes along.

    `needed` are the sub-plans that it depends on.
    """
    read_artifacts(needed)
    delivered = {other.key: evidence.sub_plan_text(turn, other)[:LONGEST_RESULT] for other in needed}
    content: dict[str, Any] = {
        "mission": str(turn.claim.task_id),
        "request": "\n\n".join(request.text for request in conversation.requests)[:LONGEST_RESULT],
        "subPlan": plan.key,
        "attempt": plan.attempt,
        "role": plan.role,
        "goal": plan.goal,
        "steps": [{"instruction": step.instruction, "tool": step.tool} for step in plan.subtasks.all()],
        "inputs": delivered,
        "expectedOutput": plan.expected_output,
        "hint": plan.hint,
    }
    parts = [{"text": _in_words(content)}, *(attachment.part for attachment in conversation.newest.attachments)]
    if plan.wanted:
        # All of the request is for whoever gets this: also what it holds besides words, and what it refers to.
        parts += [part for message in conversation.messages for part in message["parts"] if "data" in part]
        parts += [{"text": _referenced(turn, reference)} for reference in conversation.references]
    return Incoming(
        parts=parts,
        message_id=f"{plan.mission_id}/{plan.key}/{plan.attempt}",
        metadata={URI: content},
        extensions=[URI],
    )


def _referenced(turn: Turn, reference: Any) -> str:
    try:
        title, text = read_task(turn, str(reference))
    except ToolError as error:
        return f"An earlier result that is meant cannot be read: {error}"
    return f"An earlier result that is meant ({title}):\n{text}"[:LONGEST_RESULT]


def _in_words(content: dict[str, Any]) -> str:
    lines = [content["goal"]]
    steps = [step["instruction"] for step in content["steps"]]
    if steps != lines:
        lines += ["", "Steps:", *(f"{number}. {step}" for number, step in enumerate(steps, 1))]
    if content["expectedOutput"]:
        lines += ["", f"Deliver: {content['expectedOutput']}"]
    if content["hint"]:
        lines += ["", f"This time: {content['hint']}"]
    for key, text in content["inputs"].items():
        lines += ["", f"What {key} delivered:", text]
    return "\n".join(lines)
