"""Works through the steps of one sub-plan, in order, each with its evidence on its row. Safe to run again.

A step that is done is not done twice: a worker that takes over begins at the step where the last one stopped.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db.models import QuerySet

from agents.brain import get_brain
from agents.confirmation import act_of, ask_first, changed_params
from agents.conversation import Conversation
from agents.dialogue import answered, is_no, is_yes
from agents.exceptions import BudgetExhausted, ModelError, Stopped, ToolError
from agents.models import ToolCall
from agents.orchestration import evidence
from agents.orchestration.progress import STEP
from agents.outcomes import Blocked, Error
from agents.points import Writing
from agents.tools.base import Tool
from agents.tools.runner import MayHaveHappened, call_tool, settle_call
from agents.turn import Turn
from tasks import delegation
from tasks.exceptions import Superseded
from tasks.models import SubPlan, Subtask
from tasks.plans import read_artifacts


@contextmanager
def claimed() -> Iterator[None]:
    """Writes under the turn's claim: when the claim is over, so is the turn."""
    try:
        yield
    except Superseded:
        raise Stopped from None


class Worker:
    """One sub-plan in the hands of one turn."""

    def __init__(self, turn: Turn, plan: SubPlan, tools: dict[str, Tool[Any]], system: str = "") -> None:
        self.turn = turn
        self.plan = plan
        self.tools = tools
        self.system = system
        self.conversation = Conversation(turn)
        self.steps = sorted(plan.subtasks.all(), key=lambda step: step.position)
        self._parts: dict[str, str] | None = None

    def work(self) -> Blocked | Error | None:
        """Do what is left to do. None when all of it is done; else the question or failure it stopped at."""
        for step in self.steps:
            if step.state == Subtask.State.DONE:
                continue
            self.turn.check()
            try:
                blocked = self._do(step)
            except ToolError as error:
                return self._failed(step, error.error_class, str(error))
            except ModelError as error:
                kind = error.kind if error.kind in ("declined", "no_model") else f"model_{error.kind}"
                return self._failed(step, kind, str(error))
            except BudgetExhausted as error:
                if not error.is_closed:
                    raise
                return self._failed(step, "budget", str(error))
            if blocked:
                return blocked
        return None

    def _do(self, step: Subtask) -> Blocked | None:
        key = f"{self.plan.key}:{self.plan.attempt}:{step.position}"
        if step.tool:
            return self._use_tool(step, key)

        def keep(text: str) -> None:
            self._done(step, evidence.of_text(self.turn, text, key))

        get_brain().compose(self.turn, STEP, self._writing(step, key), keep)
        return None

    def _use_tool(self, step: Subtask, key: str) -> Blocked | None:
        tool = self.tools.get(step.tool)
        if tool is None:
            raise ToolError("tool_not_allowed", f"This agent does not have the tool {step.tool}.")
        self._take_answer(step, tool)
        params = self._changed(step, tool, self._filled(step, tool))
        if question := tool.question(params):
            about = {"kind": "step", "sub_plan": self.plan.key, "step": step.position}
            return Blocked("", [question.text], [question.missing], about=about)
        tool.permit(self.turn, params)
        if blocked := ask_first(self.turn, self.conversation, act_of(tool, params)):
            return blocked
        key = self._key_after_answer(step, key)
        try:
            self._check_earlier_attempts(step, tool)
            result = call_tool(self.turn, tool, params, key)
        except MayHaveHappened as error:
            why = f"I was interrupted in the middle of {tool.name}. It may have happened already."
            about = {"kind": "repeat", "call": str(error.call.pk)}
            return Blocked(why, [f"Shall I run {tool.name} again? Answer yes or no."], ["repeat"], about=about)
        self._done(step, evidence.of_tool(self.turn, result, key))
        return None

    def _take_answer(self, step: Subtask, tool: Tool[Any]) -> None:
        """The newest message may hold what this step asked for; it is kept with the step."""
        answer = answered(self.turn.messages)
        if not answer or answer.about.get("kind") != "step" or answer.about.get("step") != step.position:
            return
        found = tool.complete(self.conversation.newest)
        if any(step.params.get(name) != value for name, value in found.items()):
            step.params = {**step.params, **found}
            with claimed():
                delegation.amend_step(self.turn.claim, step)

    def _filled(self, step: Subtask, tool: Tool[Any]) -> Any:
        return tool.check(evidence.fill(step.params, self._results(step), self.parts))

    def _changed(self, step: Subtask, tool: Tool[Any], params: Any) -> Any:
        """The parameters as the person wants them who was asked to agree to this act; they are kept with the step."""
        found = changed_params(self.turn, self.conversation, tool, params)
        if not found:
            return params
        step.params = {**step.params, **found}
        changed = self._filled(step, tool)
        with claimed():
            delegation.amend_step(self.turn.claim, step)
        return changed

    def _acts_before(self, step: Subtask) -> QuerySet[ToolCall]:
        """The acts of this step in earlier attempts at the sub-plan, which were other tasks."""
        tries = [f"{self.plan.key}:{attempt}:{step.position}" for attempt in range(self.plan.attempt)]
        keys = [key for first in tries for key in (first, f"{first}:again")]
        return ToolCall.objects.filter(task__root_id=self.turn.mission_id, key__in=keys)

    def _check_earlier_attempts(self, step: Subtask, tool: Tool[Any]) -> None:
        """Raises MayHaveHappened where an earlier attempt began this act, and how it ended is not known."""
        begun = self._acts_before(step).filter(tool=tool.name, state=ToolCall.State.STARTED)
        if not tool.is_repeatable and self.plan.attempt and (call := begun.order_by("pk").first()):
            raise MayHaveHappened(call)

    def _key_after_answer(self, step: Subtask, key: str) -> str:
        """The key of the act: another one once a person has said that it may be begun again.

        Raises ToolError("unknown_end") when the person said no.
        """
        answer = answered(self.turn.messages)
        if not answer or answer.about.get("kind") != "repeat":
            return key
        own = ToolCall.objects.filter(task_id=self.turn.claim.task_id, key=key)
        call = (own | self._acts_before(step)).filter(pk=answer.about["call"]).first()
        if call is None:
            return key
        if is_yes(answer.text):
            settle_call(self.turn, call, "Its end was unknown; it was begun again, as the user asked.")
            return f"{key}:again"
        if is_no(answer.text):
            settle_call(self.turn, call, "Its end is unknown, and it was not repeated, as the user asked.")
            raise ToolError("unknown_end", f"{call.tool} was not repeated. Whether it had taken effect is not known.")
        return key

    def _writing(self, step: Subtask, key: str) -> Writing:
        documents = [(f"part {name}", text) for name, text in self.parts.items()]
        before = [other for other in self.steps if other.position < step.position]
        documents += [
            (f"step {other.position}: {other.instruction[:80]}", evidence.step_text(self.turn, other))
            for other in before
            if other.state == Subtask.State.DONE
        ]
        details = {
            "goal": self.plan.goal,
            "instruction": step.instruction,
            "expected": self.plan.expected_output,
            "hint": "\n".join(text for text in (self.system, self.plan.hint) if text),
        }
        return Writing(self.conversation, documents, details, anchor=key)

    def _results(self, step: Subtask) -> dict[int, str]:
        return {
            other.position: evidence.step_text(self.turn, other)
            for other in self.steps
            if other.position < step.position and other.state == Subtask.State.DONE
        }

    @property
    def parts(self) -> dict[str, str]:
        """What the sub-plans that this one depends on have delivered, by key."""
        if self._parts is None:
            rows = SubPlan.objects.filter(needed_by=self.plan).select_related("task")
            needed = list(rows.prefetch_related("subtasks"))
            read_artifacts(needed)
            self._parts = {plan.key: evidence.sub_plan_text(self.turn, plan) for plan in needed}
        return self._parts

    def _done(self, step: Subtask, found: dict[str, Any]) -> None:
        step.state, step.evidence = Subtask.State.DONE, found
        with claimed():
            delegation.settle_step(self.turn.claim, step, step.state, found)

    def _failed(self, step: Subtask, error_class: str, message: str) -> Error:
        found = evidence.of_failure(self.turn, error_class, message)
        with claimed():
            delegation.settle_step(self.turn.claim, step, Subtask.State.FAILED, found)
        where = f"Step {step.position} of {len(self.steps)} ({step.instruction}) failed"
        return Error(error_class, f"{where}: {message}")


def is_trivial(steps: Sequence[Subtask], tools: dict[str, Tool[Any]], threshold: int) -> bool:
    """Whether the coordinator does a sub-plan itself: few steps, none of which could ask, wait, or harm anything."""
    if len(steps) >= threshold:
        return False
    for step in steps:
        tool = tools.get(step.tool)
        if tool is None or tool.uses_model or not tool.is_repeatable:
            return False
        try:
            params = tool.check(step.params)
            act = act_of(tool, params)
            if tool.question(params) or act.is_risky or act.may_ask_model:
                return False
        except ToolError:
            return False
    return True
