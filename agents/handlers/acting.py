"""From a tool and its parameters to the outcome of a turn; what all agents with tools share."""

from typing import Any

from agents.confirmation import act_of, ask_first
from agents.conversation import Conversation
from agents.dialogue import is_no, is_yes
from agents.exceptions import ToolError
from agents.models import ToolCall
from agents.outcomes import Blocked, Error, Ok, Outcome, Rejected
from agents.tools.base import Tool
from agents.tools.catalog import tools
from agents.tools.runner import MayHaveHappened, call_tool, settle_call, unsettled_call
from agents.turn import Turn
from directory.models import Agent
from tasks.models import Message

REPEAT = "repeat"


def use_tool(turn: Turn, conversation: Conversation, tool: Tool[Any], params: dict[str, Any]) -> Outcome:
    """Run a tool once for the newest message, or ask for the one thing that is missing."""
    try:
        checked = tool.check(params)
    except ToolError as error:
        return Blocked(str(error), ["Which parameters should I use?"], ["params"])
    if question := tool.question(checked):
        return Blocked("", [question.text], [question.missing])
    try:
        tool.permit(turn, checked)
        if blocked := ask_first(turn, conversation, act_of(tool, checked)):
            return blocked
        result = call_tool(turn, tool, checked, f"{conversation.number}:1:{tool.name}")
    except MayHaveHappened as error:
        return _ask_whether_to_repeat(error.call)
    except ToolError as error:
        return Rejected(str(error)) if error.error_class == "declined" else Error(error.error_class, str(error))
    return Ok(result.text, result.artifacts)


def tools_of(agent: Agent) -> dict[str, Tool[Any]]:
    """The tools that an agent has: those its options name, or all."""
    allowed = agent.options.get("tools", tools())
    return {name: tool for name, tool in tools().items() if name in allowed}


def resume_unsettled(turn: Turn, conversation: Conversation, mine: dict[str, Tool[Any]]) -> Outcome | None:
    """When the user was asked whether to repeat an act of unknown end: what the answer comes to. Else None."""
    call = unsettled_call(turn)
    if call is None or call.tool not in mine or mine[call.tool].is_repeatable:
        return None
    if not _was_asked(turn, call):
        # Whatever has been said since, it is no answer to a question that was not put.
        return _ask_whether_to_repeat(call)
    answer = conversation.newest.text
    if is_yes(answer):
        settle_call(turn, call, "Its end was unknown; it was begun again, as the user asked.")
        return use_tool(turn, conversation, mine[call.tool], call.params)
    if is_no(answer):
        settle_call(turn, call, "Its end is unknown, and it was not repeated, as the user asked.")
        return Error("unknown_end", f"{call.tool} was not repeated. Whether it had taken effect before is not known.")
    return _ask_whether_to_repeat(call)


def _ask_whether_to_repeat(call: ToolCall) -> Blocked:
    why = f"I was interrupted in the middle of {call.tool}. It may have happened already, and twice could do harm."
    return Blocked(why, [f"Shall I run {call.tool} again? Answer yes or no."], [REPEAT])


def _was_asked(turn: Turn, call: ToolCall) -> bool:
    questions = Message.objects.filter(
        task_id=turn.claim.task_id, role=Message.Role.AGENT, created_at__gt=call.started_at
    )
    return any(said.get("missingInputs") == [REPEAT] for said in questions.values_list("metadata", flat=True))
