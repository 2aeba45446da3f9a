"""The questions of a mission: what its sub-plans ask becomes what it asks, one after the other.

Every question stays on the row of whoever asked it until it is answered; the mission asks the oldest. An answer goes
to the one whose question it was put to, and to nobody else.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agents.models import Decision
from agents.outcomes import MAX_QUESTIONS, Auth, Blocked
from agents.turn import Turn
from tasks.content import text_of
from tasks.models import SubPlan, Task

Question = Blocked | Auth


def ask_one(turn: Turn, asking: Sequence[SubPlan], held: dict[str, Blocked]) -> Question:
    """The one question that the mission asks now: the one that stands already, else the one that has waited longest.

    `held` has questions, by sub-plan, that come before what its task asks.
    """
    found = [held.get(plan.key) or question_of(turn, plan) for plan in sorted(asking, key=_asked_at)]
    standing = turn.open_question if turn.claim.is_aside else {}
    for question in found:
        if standing and question.about.items() <= standing.items():
            return replace(question, about=standing)
    # A budget is the whole mission's: however many wait for it, it is one question.
    others = [one for n, one in enumerate(found) if one.about not in [before.about for before in found[:n]]]
    more = len(others) - 1
    if not more or isinstance(found[0], Auth):
        return found[0]
    why = f"{found[0].why}\n({more} more question{'s' if more > 1 else ''} will follow.)"
    return replace(found[0], why=why.strip())


def _asked_at(plan: SubPlan) -> Any:
    assert plan.task is not None or plan.subtasks
    return (plan.task.status_at.timestamp() if plan.task else 0.0, plan.pk)


def question_of(turn: Turn, plan: SubPlan) -> Question:
    """What a sub-plan that waits for a person asks, in the words of the mission."""
    if plan.task is None or plan.task.is_terminal:
        return _of_failure(turn, plan)
    return _of_child(plan, plan.task)


def _of_failure(turn: Turn, plan: SubPlan) -> Blocked:
    """What to do about its failure, in the words of the decision to ask."""
    decision = asked_about_failure(turn, plan)
    assert decision is not None
    about = {"kind": "recover", "sub_plan": plan.key, "attempt": plan.attempt}
    why = f"“{plan.goal[:200]}” failed. {decision.inputs.get('error', '')}"
    return Blocked(why, [decision.choice["question"]], about=about)


def asked_about_failure(turn: Turn, plan: SubPlan) -> Decision | None:
    """The decision to ask a person about the failure of this attempt, if that was the decision."""
    key = f"recover:{plan.key}:{plan.attempt}"
    row = Decision.objects.filter(task_id=turn.claim.task_id, key=key).order_by("-id").first()
    return row if row and row.choice.get("strategy") == "ask" else None


def _of_child(plan: SubPlan, task: Task) -> Question:
    message = task.status_message or {}
    details: dict[str, Any] = message.get("metadata", {})
    about = about_child(plan, task)
    questions = [str(question) for question in details.get("questions", [])][:MAX_QUESTIONS]
    text = text_of(message.get("parts", []))
    if about["kind"] == "budget":
        return Blocked(text.removesuffix("\n".join(questions)).strip(), questions, about=about)
    if task.state == Task.State.AUTH_REQUIRED:
        return Auth(text, details.get("authType", ""), details.get("service", ""), about=about)
    why = text.removesuffix("\n".join(questions)).strip() if questions else ""
    return Blocked(
        f"{task.agent.name} asks, for “{plan.goal[:200]}”:{f' {why}' if why else ''}",
        questions or [text or "How should it go on?"],
        [str(one) for one in details.get("missingInputs", [])],
        about=about,
        untrusted=str(details.get("untrusted", "")),
    )


def about_child(plan: SubPlan, task: Task) -> dict[str, Any]:
    """What names the question that a sub-plan's task asks now. A budget is the whole mission's."""
    message = task.status_message or {}
    asks = message.get("metadata", {}).get("asks", {})
    if asks.get("kind") == "budget":
        return {"kind": "budget"}
    asked = message.get("messageId", "")
    return {"kind": "child", "task": str(task.pk), "sub_plan": plan.key, "question": asked, "asks": asks}


def hold_back(plan: SubPlan, task: Task, message_id: str, text: str) -> Blocked:
    """The question whether a message is the answer, where nobody could tell."""
    asked = text_of((task.status_message or {}).get("parts", []))
    return Blocked(
        f"I could not tell whether “{text[:500]}” answers what {task.agent.name} has asked, so it has not been passed "
        f"on. The question was: {asked}",
        ["Shall I pass it on as it is? Answer yes, or answer the question."],
        about={**about_child(plan, task), "held": message_id},
    )
