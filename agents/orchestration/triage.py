"""What happens to a new request: clarify, decompose, route, tool. In one model call, or one by one.

Route may pass it on to an agent: that is a plan of one sub-plan, which is meant for that agent.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings

from agents.brain import Brain, get_brain
from agents.conversation import Conversation
from agents.dialogue import answers_about
from agents.exceptions import ToolError
from agents.matching import similarities
from agents.orchestration.composite import file_named
from agents.orchestration.points import CLARIFY, DECOMPOSE, TRIAGE, composite_of
from agents.orchestration.routing import case_for, drafts_for
from agents.outcomes import Blocked, Outcome, Rejected
from agents.points import ROUTE, TOOL, Triage
from agents.rules import read_request
from agents.tools.base import Tool
from agents.tools.grammar import core, explicit_form
from agents.tools.project import read_text
from agents.turn import Turn
from tasks.delegation import StepDraft, SubPlanDraft

# After so many questions it goes on with what it knows.
MOST_QUESTIONS = 2
# So many words say enough, unless they are near to these in meaning.
ENOUGH_WORDS = 8
TOO_NEAR = 0.6
VAGUE = ("Help me", "Do something with it", "Fix it", "Make it better", "I need something", "Can you do the thing?")


@dataclass(frozen=True, slots=True)
class UseTool:
    """One tool does it."""

    tool: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class MakePlan:
    """It takes a plan: these sub-plans, or what the plan point makes of it where there are none yet."""

    drafts: tuple[SubPlanDraft, ...] = ()


Verdict = UseTool | MakePlan
# Tools that see what is here; what they would show is not known to a language model.
LOOKING = ("list_files", "list_agents")
# Without one of these words nothing is about that, and nothing has to be compared.
ABOUT_HERE = re.compile(r"\b(?:files?|folders?|director(?:y|ies)|agents?|project|documents?)\b", re.IGNORECASE)


def judge(
    turn: Turn, conversation: Conversation, tools: Sequence[Tool[Any]], *, may_pass_on: bool = False
) -> Verdict | Outcome:
    """What to do about the newest message, or the outcome where there is nothing to do.

    Unless it may be passed on, a choice to do so means that it is done here.
    """
    case = case_for(turn, conversation, tools) if may_pass_on else Triage(conversation, tools)
    brain = get_brain()
    if explicit_form(conversation.newest.text) or not brain.can_write:
        return _guarded(case, _by_rules(turn, brain, case))
    # One call answers all four: where a model is not to be asked one of the last two, they are asked one by one.
    is_staged = settings.BUREAU_TRIAGE == "staged" or not {"route", "tool"}.isdisjoint(settings.BUREAU_POINTS_OFF)
    found = _staged(turn, brain, case) if is_staged else _single_pass(turn, brain, case)
    return _guarded(case, found)


def _by_rules(turn: Turn, brain: Brain, case: Triage) -> Verdict | Outcome:
    """The rules ask nothing by themselves, and see at once whether a request is a composite one."""
    form = explicit_form(case.conversation.newest.text)
    if not form and composite_of(case) and brain.decide(turn, DECOMPOSE, case).answer.needs_plan:
        return MakePlan()
    return _route_and_tool(turn, brain, case)


def _single_pass(turn: Turn, brain: Brain, case: Triage) -> Verdict | Outcome:
    answer = brain.decide(turn, TRIAGE, case).answer
    turn.check()
    if answer.decision == "reject":
        return Rejected(answer.reason)
    if not answer.is_clear and _may_ask(turn):
        return _question(answer.question)
    if answer.needs_plan and "decompose" not in settings.BUREAU_POINTS_OFF:
        return MakePlan()
    if answer.decision == "agent" and case.agents:
        return MakePlan(drafts_for(case, answer.agent))
    return UseTool(answer.tool, answer.params)


def _staged(turn: Turn, brain: Brain, case: Triage) -> Verdict | Outcome:
    if _may_ask(turn) and not is_plainly_clear(case):
        clarity = brain.decide(turn, CLARIFY, case).answer
        if not clarity.is_clear:
            return _question(clarity.question)
        turn.check()
    is_asked = "decompose" not in settings.BUREAU_POINTS_OFF or composite_of(case)
    if is_asked and brain.decide(turn, DECOMPOSE, case).answer.needs_plan:
        return MakePlan()
    turn.check()
    return _route_and_tool(turn, brain, case)


def _route_and_tool(turn: Turn, brain: Brain, case: Triage) -> Verdict | Outcome:
    route = brain.decide(turn, ROUTE, case).answer
    if route.decision == "reject":
        return Rejected(route.reason)
    if route.decision == "agent" and case.agents:
        return MakePlan(drafts_for(case, route.agent))
    turn.check()
    choice = brain.decide(turn, TOOL, case).answer
    return UseTool(choice.tool, choice.params)


def _may_ask(turn: Turn) -> bool:
    return "clarify" not in settings.BUREAU_POINTS_OFF and len(answers_about(turn.messages, "clarify")) < MOST_QUESTIONS


def _question(question: str) -> Blocked:
    return Blocked("", [question], about={"kind": "clarify"})


def is_plainly_clear(case: Triage) -> bool:
    """Whether a request needs no look at its clarity: it has the form of a tool, or enough words that say something."""
    conversation = case.conversation
    reading = read_request(conversation.newest, {tool.name: tool for tool in case.tools})
    if reading.is_definite and not reading.refusal:
        return True
    words = core(conversation.newest.text)
    is_long = len(words.split()) >= ENOUGH_WORDS or conversation.number > 1
    return is_long and max(similarities(words, VAGUE)) < TOO_NEAR


def _looked_up(case: Triage, found: Verdict | Outcome) -> Verdict | Outcome:
    """The answer, from what a tool here sees, where the rules are sure that the request is about that."""
    newest = case.conversation.newest
    tools = {tool.name: tool for tool in case.tools}
    is_new = case.conversation.number == 1 and not newest.references
    if not isinstance(found, UseTool) or not is_new or not ABOUT_HERE.search(newest.text):
        return found
    reading = read_request(newest, tools)
    tool = tools.get(reading.tool)
    if not reading.is_definite or tool is None or tool.name not in LOOKING:
        return found
    try:
        if tool.question(tool.check(reading.params)):
            return found
    except ToolError:
        return found
    looking = StepDraft(f"Look, with {tool.name}", tool.name, reading.params)
    steps = (looking, StepDraft(newest.text[:4000]))
    return MakePlan((SubPlanDraft("answer", newest.text[:4000], "librarian", steps),))


def _guarded(case: Triage, found: Verdict | Outcome) -> Verdict | Outcome:
    """A request about a file that is there, or that a tool which looks would do, is not answered from memory: what it
    is about is looked at first."""
    names = {tool.name for tool in case.tools}
    is_passed_on = isinstance(found, MakePlan) and len(found.drafts) == 1 and bool(found.drafts[0].wanted)
    is_answered = isinstance(found, UseTool) and found.tool == "answer"
    if not (is_passed_on or is_answered) or not {"read_file", "answer"} <= names:
        return found
    # Also what was said before a question of ours: the newest message may be no more than the answer to it.
    requests = case.conversation.requests
    path = next((named for request in reversed(requests) if (named := file_named(request.text))), "")
    wanted = "\n\n".join(request.text for request in requests)[:4000]
    if case.conversation.newest.attachments:
        return found
    try:
        read_text(path)
    except ToolError:
        return _looked_up(case, found)
    reading = StepDraft(f"Read {path}", "read_file", {"path": path})
    if isinstance(found, MakePlan):
        # Whoever it is passed on to cannot see the files here: the text goes along.
        read = SubPlanDraft("read", f"The text of {path}", "librarian", (reading,))
        return MakePlan((read, replace(found.drafts[0], depends_on=("read",))))
    steps = (reading, StepDraft(wanted))
    return MakePlan((SubPlanDraft("answer", wanted, "writer", steps),))
