"""Does one sub-plan of a mission, step by step, and reports one result."""

from agents.conversation import Conversation
from agents.handlers.acting import tools_of
from agents.handlers.assistant import serve
from agents.orchestration.evidence import deliverables
from agents.orchestration.steps import Worker
from agents.outcomes import Ok, Outcome
from agents.registry import Handler, register
from agents.turn import Turn
from tasks.plans import read_sub_plan


@register
class SpecialistHandler(Handler):
    """`Agent.options`: "tools" that it may use (all, when it does not say), and "system", what it is told to be.

    Asked directly, and not by a coordinator, it is an assistant with its own tools, which makes no plans.
    """

    name = "specialist"
    takes_sub_plans = True

    def run(self, turn: Turn) -> Outcome:
        plan = read_sub_plan(turn.claim.task_id)
        if plan is None:
            return serve(turn, Conversation(turn), may_plan=False)
        worker = Worker(turn, plan, tools_of(turn.agent), str(turn.agent.options.get("system", "")))
        if outcome := worker.work():
            return outcome
        remarks = dict.fromkeys(step.evidence.get("text", "") for step in worker.steps if step.tool)
        message = "\n".join(remark for remark in remarks if remark)
        return Ok(message or f"Done: {plan.goal[:200]}", deliverables(turn, plan, worker.steps))
