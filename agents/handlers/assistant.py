"""The front door: decides whether and how to do it, and does it, with one tool or as the coordinator of a plan."""

from typing import Any

from agents.budget import take_budget_answer
from agents.confirmation import act_asked_about
from agents.conversation import Conversation
from agents.dialogue import answered
from agents.handlers.acting import resume_unsettled, tools_of, use_tool
from agents.orchestration import coordinator
from agents.orchestration.triage import MakePlan, UseTool, judge
from agents.outcomes import Blocked, Outcome, Rejected
from agents.registry import Handler, register
from agents.tools.base import Tool
from agents.tools.grammar import explicit_form
from agents.turn import Turn


@register
class AssistantHandler(Handler):
    """triage -> one tool's result, one question, a reason why not, or a plan, which it coordinates.

    `Agent.options["tools"]` may name the tools it has; all, when it does not.
    """

    name = "assistant"

    def run(self, turn: Turn) -> Outcome:
        conversation = Conversation(turn)
        if not coordinator.has_plan(turn):
            return serve(turn, conversation, may_plan=True)
        outcome = coordinator.Coordinator(turn, conversation, tools_of(turn.agent)).run()
        return outcome or serve(turn, conversation, may_plan=False)


def serve(turn: Turn, conversation: Conversation, *, may_plan: bool) -> Outcome:
    """Deal with a request that has no plan yet, or that nobody took who it was to be passed on to."""
    mine = tools_of(turn.agent)
    answer = answered(turn.messages)
    if answer and answer.about.get("kind") == "budget" and (outcome := take_budget_answer(turn, answer)):
        return outcome
    if outcome := resume_unsettled(turn, conversation, mine):
        return outcome
    if asked := act_asked_about(turn, mine):
        return use_tool(turn, conversation, *asked)
    form = explicit_form(conversation.newest.text)
    if form and form.problem:
        return Blocked(form.problem, [f'How should I run it? For example: :tool {form.name} {{"name": "value"}}'])
    verdict = judge(turn, conversation, list(mine.values()), may_pass_on=may_plan)
    if isinstance(verdict, MakePlan) and may_plan:
        if outcome := coordinator.begin(turn, conversation, mine, verdict.drafts):
            return outcome
        if coordinator.has_plan(turn):
            verdict = judge(turn, conversation, list(mine.values()))
    if isinstance(verdict, MakePlan):
        # No plan could be made of it, so it is answered as a whole.
        verdict = UseTool("answer", {})
    if not isinstance(verdict, UseTool):
        return verdict
    return _use(turn, conversation, mine, verdict)


def _use(turn: Turn, conversation: Conversation, mine: dict[str, Tool[Any]], verdict: UseTool) -> Outcome:
    if verdict.tool not in mine:
        return Rejected(f"That needs the tool {verdict.tool}, which this agent does not have.")
    turn.check()
    return use_tool(turn, conversation, mine[verdict.tool], verdict.params)
