"""A person agrees to something before it is done: to exactly that, named by a hash of its payload.

An act is a tool with its parameters, or a plan. It is asked about when the policy calls it risky, when it is
estimated to take too much of what is left of the budget, or when the model has doubts (BUREAU_CONFIRM=model).
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.conf import settings
from pydantic import BaseModel

from agents.brain import get_brain
from agents.budget import Room, mission_of, raise_budget, room_of
from agents.conversation import Conversation, Request, request_from_text
from agents.dialogue import Answered, answered, is_change, is_no, is_yes
from agents.estimates import Estimate, of_act, of_plan
from agents.exceptions import ToolError
from agents.models import Decision
from agents.orchestration.progress import CONFIRM, ConfirmCase
from agents.outcomes import Blocked
from agents.points import TOOL, Triage
from agents.tools.base import Risk, Tool
from agents.tools.grammar import path_in
from agents.turn import Turn
from tasks.delegation import SubPlanDraft

QUESTION = "May I do exactly that? Answer yes or no, or say what should be different."
KEY = 32


@dataclass(frozen=True, slots=True)
class Act:
    """What is about to be done: in words, and as the payload that its digest names."""

    words: str
    payload: dict[str, Any]
    is_risky: bool
    may_ask_model: bool
    estimate: Estimate

    @property
    def digest(self) -> str:
        """SHA-256 of what would be done; any other payload has another."""
        return hashlib.sha256(json.dumps(self.payload, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def act_of(tool: Tool[Any], params: BaseModel) -> Act:
    """One use of a tool."""
    risk = tool.act(params)
    payload = {"tool": tool.name, "params": params.model_dump(mode="json")}
    may_ask = settings.BUREAU_CONFIRM == "model" and tool.risk in (Risk.WRITES, Risk.EXECUTES)
    return Act(risk or _call(payload), payload, bool(risk), may_ask, of_act(tool, params))


def plan_of(drafts: Sequence[SubPlanDraft]) -> Act:
    """A plan, as a whole."""
    lines = [f"Carry out a plan of {len(drafts)} part{'s' if len(drafts) != 1 else ''}:"]
    for number, draft in enumerate(drafts, 1):
        lines.append(f"{number}. {draft.goal} ({draft.role})")
        lines += [f"   - {step.instruction}{f' ({step.tool})' if step.tool else ''}" for step in draft.steps]
    return Act("\n".join(lines), {"plan": [asdict(draft) for draft in drafts]}, False, False, of_plan(drafts))


def ask_first(turn: Turn, conversation: Conversation, act: Act) -> Blocked | None:
    """The question whether this may be done, or None when it may: it needs none, or it has been agreed to.

    Raises ToolError("not_confirmed") when the person said no.
    """
    digest = act.digest
    answer = _answer_about(turn, digest)
    if answer and is_yes(answer.text):
        if answer.about.get("is_over"):
            # Who agrees to what is more than is left agrees that there be more.
            raise_budget(mission_of(turn), answer.message_id)
        return None
    if answer and is_no(answer.text):
        raise ToolError("not_confirmed", f"It was not done, because you refused: {act.words}")
    if _was_agreed(turn, digest):
        return None
    if turn.claim.is_aside and turn.open_question.get("digest") == digest:
        # It stands, whatever the rest of the budget is by now.
        return Blocked("", [QUESTION], about=turn.open_question)
    room = room_of(mission_of(turn))
    cost, is_over = _cost(act.estimate, room) if room else ("", False)
    if not (act.is_risky or cost or act.may_ask_model):
        return None
    case = ConfirmCase(
        conversation,
        anchor=digest[:KEY],
        act=act.words,
        digest=digest,
        is_risky=act.is_risky,
        cost=cost,
        payload=act.payload,
    )
    if get_brain().decide(turn, CONFIRM, case).answer.decision == "proceed":
        return None
    about = {"kind": "confirm", "digest": digest} | ({"is_over": True} if is_over else {})
    return Blocked(
        "\n\n".join(part for part in (f"This needs your agreement: {act.words}", cost) if part), [QUESTION], about=about
    )


def _cost(estimate: Estimate, room: Room) -> tuple[str, bool]:
    """Why the cost has to be asked about, and whether it is more than is left; ("", False) when it need not be."""
    share = estimate.share_of(room)
    if not settings.BUREAU_CONFIRM_SHARE or share <= settings.BUREAU_CONFIRM_SHARE:
        return "", False
    left = Estimate(room.calls, room.tokens, room.usd)
    said = f"It is estimated to take {estimate}. The mission's budget has {left} left"
    if share > 1:
        return f"{said}, which is not enough: if you agree, the budget is doubled.", True
    return f"{said}.", False


def _answer_about(turn: Turn, digest: str) -> Answered | None:
    """The newest message as the answer to the question about exactly this."""
    answer = answered(turn.messages)
    is_it = answer and answer.about.get("kind") == "confirm" and answer.about.get("digest") == digest
    return answer if is_it else None


def _was_agreed(turn: Turn, digest: str) -> bool:
    """Whether an earlier answer in this task agreed to exactly this."""
    messages = turn.messages
    for end in range(len(messages), 0, -1):
        answer = answered(messages[:end])
        if answer and answer.about.get("digest") == digest:
            return is_yes(answer.text)
    return False


def _call(payload: dict[str, Any]) -> str:
    given = {name: value for name, value in payload["params"].items() if value not in ("", None, [], {})}
    text = json.dumps(given, ensure_ascii=False)
    return f"{payload['tool']} {text if len(text) <= 400 else text[:399] + '…'}" if given else payload["tool"]


# --- What should be different ---------------------------------------------------------------------


def act_asked_about(turn: Turn, mine: dict[str, Tool[Any]]) -> tuple[Tool[Any], dict[str, Any]] | None:
    """The tool and parameters that the newest message answers a question about, with what it changes in them.

    None when it answers no such question, or wants something that a model has to make out.
    """
    answer = answered(turn.messages)
    if not answer or answer.about.get("kind") != "confirm":
        return None
    key = f"{CONFIRM.name}:{str(answer.about.get('digest', ''))[:KEY]}"
    row = Decision.objects.filter(task_id=turn.claim.task_id, key=key).order_by("-id").first()
    tool = mine.get(row.inputs.get("tool", "")) if row else None
    if row is None or tool is None:
        return None
    params = dict(row.inputs.get("params", {}))
    if not is_change(answer.text):
        return tool, params
    return None if get_brain().can_write else (tool, params | _change_in(tool, request_from_text(answer.text)))


def changed_params(turn: Turn, conversation: Conversation, tool: Tool[Any], params: BaseModel) -> dict[str, Any]:
    """What of a step's parameters the newest message wants otherwise, when this very act was asked about; else {}."""
    answer = _answer_about(turn, act_of(tool, params).digest)
    if not answer or not is_change(answer.text):
        return {}
    brain = get_brain()
    if not brain.can_write:
        return _change_in(tool, request_from_text(answer.text))
    case = Triage(conversation, [tool], anchor=f"change:{answer.message_id[:60]}")
    choice = brain.decide(turn, TOOL, case).answer
    return choice.params if choice.tool == tool.name else {}


def _change_in(tool: Tool[Any], request: Request) -> dict[str, Any]:
    """Parameters in a few words of a person's, by rule."""
    if found := tool.parse(request):
        return found
    path = path_in(request.text)
    return {"path": path} if path and "path" in tool.params.model_fields else {}
