"""Runs a mission that has a plan: from its rows to the next small thing, again and again, and then it returns.

It keeps nothing in memory, so any worker can take the next turn, and a turn that is run again does nothing twice:
decisions are found by their keys, tasks of sub-plans by sub-plan and attempt, answers by their message.
"""

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from agents.brain import get_brain
from agents.budget import mission_of, take_budget_answer
from agents.confirmation import ask_first, plan_of
from agents.conversation import Conversation
from agents.dialogue import Answered, answered, is_no, is_yes
from agents.exceptions import ToolError
from agents.models import Budget, Decision
from agents.orchestration import allocation, envelope, evidence, flow
from agents.orchestration.points import PLAN, PlanCase
from agents.orchestration.progress import FOLLOW_UP, RECOVER, FollowUpCase, RecoverAnswer, RecoverCase
from agents.orchestration.questions import about_child, ask_one, asked_about_failure, hold_back
from agents.orchestration.routing import case_for
from agents.orchestration.steps import Worker, claimed, is_trivial
from agents.orchestration.synthesis import result_of, synthesise
from agents.outcomes import Blocked, Error, Outcome, Waiting
from agents.tools.base import Tool
from agents.turn import Turn
from tasks import delegation, doorbell, plans
from tasks.content import Incoming, text_of
from tasks.delegation import StepDraft, SubPlanDraft
from tasks.exceptions import TaskNotInState
from tasks.models import SubPlan, Subtask, Task
from tasks.services import cancel_task

# A plan has a few sub-plans with a few attempts each; more moves than this in one turn is a bug, not a plan.
MOST_MOVES = 500
# What a person may say to a failure that they are asked about, besides yes, no, and what to do differently.
LEAVE = re.compile(r"\b(?:leave|skip|omit|drop it|give up|abandon)\b", re.IGNORECASE)
AGAIN = re.compile(r"\b(?:try|retry|again)\b", re.IGNORECASE)
# How an attempt may end that says nothing of whoever made it.
NOT_ITS_FAULT = ("budget", "not_confirmed", "no_model")


def begin(
    turn: Turn, conversation: Conversation, tools: dict[str, Tool[Any]], drafts: tuple[SubPlanDraft, ...] = ()
) -> Outcome | None:
    """Plan the mission and run the plan as far as it goes. None when no plan could be made of it."""
    if not drafts:
        agents = case_for(turn, conversation, ()).agents
        case = PlanCase(conversation, list(tools.values()), roles=_roles(turn), agents=agents)
        drafts = tuple(get_brain().decide(turn, PLAN, case).answer.drafts())
    if not drafts:
        return None
    try:
        if blocked := ask_first(turn, conversation, plan_of(drafts)):
            return blocked
    except ToolError as error:
        return Error(error.error_class, str(error))
    with claimed():
        delegation.store_plan(turn.claim, drafts)
    return Coordinator(turn, conversation, tools).run()


def has_plan(turn: Turn) -> bool:
    return plans.has_plan(turn.claim.task_id)


class Coordinator:
    """One turn of a mission that has a plan."""

    def __init__(self, turn: Turn, conversation: Conversation, tools: dict[str, Tool[Any]]) -> None:
        self.turn = turn
        self.conversation = conversation
        self.tools = tools
        self.plans: dict[str, SubPlan] = {}
        self.held: dict[str, Blocked] = {}
        self.replanning: set[str] = set()
        self.needs: dict[str, tuple[str, ...]] = {}

    def run(self) -> Outcome | None:
        """Do what can be done now. Returns when all depends on others, on a person, or on nothing any more.

        None: the request was to be passed on, and nobody could take it. So it is to be done here.
        """
        self._load()
        # While the mission waits for a person there is nothing new to take; only what is below it has changed.
        answer = None if self.turn.claim.is_aside else answered(self.turn.messages)
        if answer:
            if outcome := self._take(answer):
                return outcome
            self._load()
        for _ in range(MOST_MOVES):
            self.turn.check()
            move = flow.next_move([self._part(plan) for plan in self.plans.values()], timezone.now())
            if self.turn.claim.is_aside and isinstance(move, flow.Wait | flow.Synthesise):
                # Nothing is asked any more: the next turn, which is no turn aside, sees to it.
                return Waiting()
            if isinstance(move, flow.Synthesise):
                return self._end()
            if outcome := self._make(move):
                return outcome
            if not isinstance(move, flow.Delegate):
                self._load()
        raise AssertionError("The plan does not come to an end.")

    def _make(self, move: flow.Move) -> Outcome | None:
        match move:
            case flow.Recover(key):
                self._recover(self.plans[key])
            case flow.Drop(key, needs):
                note = f"It needs what “{self.plans[needs].goal}” should have delivered."
                with claimed():
                    delegation.drop(self.turn.claim, [self.plans[key]], note)
            case flow.Delegate(keys):
                self._give_out([self.plans[key] for key in keys])
            case flow.Ask(keys, until):
                return replace(ask_one(self.turn, [self.plans[key] for key in keys], self.held), until=until)
            case flow.Wait(until):
                return Waiting(until)
        return None

    def _end(self) -> Outcome | None:
        ended = list(self.plans.values())
        passed_on = next((plan for plan in ended if plan.wanted), None)
        outcome = result_of(passed_on) if passed_on else synthesise(self.turn, self.conversation, ended)
        if not isinstance(outcome, Blocked) and self.turn.task.root_id is None:
            allocation.dismiss(self.turn.claim.task_id)
        return outcome

    # --- Rows ------------------------------------------------------------------------------------

    def _load(self) -> None:
        mission = self.turn.claim.task_id
        self.plans = {plan.key: plan for plan in plans.read_plan(mission)}
        self.needs = plans.read_needs(mission)
        self._count_ended()

    def _part(self, plan: SubPlan) -> flow.Part:
        state = self._state(plan)
        if self.replanning and _is_replaceable(plan, state):
            state = flow.PartState.ON_HOLD
        return flow.Part(plan.key, state, self.needs.get(plan.key, ()), plan.retry_at)

    def _state(self, plan: SubPlan) -> flow.PartState:
        if plan.is_dropped:
            return flow.PartState.DROPPED
        if plan.task is not None:
            if plan.task.state == Task.State.COMPLETED:
                return flow.PartState.DONE
            if plan.task.is_terminal:
                return self._failed(plan)
            return flow.PartState.ASKING if plan.task.state in Task.INTERRUPTED else flow.PartState.RUNNING
        states = {step.state for step in plan.subtasks.all()}
        if states == {Subtask.State.DONE}:
            return flow.PartState.DONE
        return self._failed(plan) if Subtask.State.FAILED in states else flow.PartState.PENDING

    def _failed(self, plan: SubPlan) -> flow.PartState:
        is_asked = plan.key in self.replanning or asked_about_failure(self.turn, plan)
        return flow.PartState.ASKING if is_asked else flow.PartState.FAILED

    # --- Giving out ------------------------------------------------------------------------------

    def _give_out(self, ready: list[SubPlan]) -> None:
        """Give out what others do first, so that they are at work while this turn does the rest itself."""
        threshold = settings.BUREAU_DELEGATE_STEPS
        own = [plan for plan in ready if is_trivial(list(plan.subtasks.all()), self.tools, threshold)]
        field = allocation.Field(self.turn)
        for number, plan in enumerate(plan for plan in ready if plan not in own):
            self._delegate(plan, field)
            if number:
                # The bell wakes one worker, which is at work on the first.
                doorbell.ring_again(self.turn.claim.queue)
        for plan in own:
            # Its failure is on the row of its step, where the next look finds it.
            if isinstance(Worker(self.turn, plan, self.tools).work(), Blocked):
                # What it needs came to nothing: whoever gets it can ask, and the coordinator goes on with the rest.
                self._delegate(plan, field)
        if own:
            self._load()

    def _delegate(self, plan: SubPlan, field: allocation.Field) -> None:
        agent = allocation.allocate(self.turn, self.conversation, plan, field)
        if agent is None:
            with claimed():
                delegation.drop(self.turn.claim, [plan], "None of the agents that it was meant for could take it.")
            plan.is_dropped = True
            if not self.turn.claim.is_aside:
                self.turn.say(f"{', '.join(plan.wanted)} could not take it now; it is tried here.")
            return
        needed = [self.plans[key] for key in self.needs.get(plan.key, ())]
        message = envelope.envelope_for(self.turn, self.conversation, plan, needed)
        with claimed():
            child = delegation.delegate(self.turn.claim, plan, agent, message)
        # As it was written; should it have come further meanwhile, another turn will see that.
        plan.task = Task(id=child, agent=agent, state=Task.State.SUBMITTED)

    # --- Recovering ------------------------------------------------------------------------------

    def _recover(self, plan: SubPlan) -> None:
        error_class, error = _error_of(plan)
        anchor = f"{plan.key}:{plan.attempt}"
        if _was_replanned(self.turn, anchor):
            # That was decided, and somebody may have been asked about it.
            return self._replan(plan, error)
        if plan.task and allocation.refusals(self.turn, [plan.task.agent])[plan.task.agent.slug]:
            # Whatever it failed with: it has fallen ill, or been forbidden, and would not get it again.
            error_class = "agent_unavailable"
        avoid = [*plan.avoid, plan.task.agent.slug] if plan.task else plan.avoid
        failed = next((step for step in plan.subtasks.all() if step.state == Subtask.State.FAILED), None)
        case = RecoverCase(
            self.conversation,
            list(self.tools.values()),
            anchor=anchor,
            part=plan.key,
            goal=plan.goal,
            attempt=plan.attempt,
            error_class=error_class,
            error=error,
            alternatives=allocation.alternatives(self.turn, plan, avoid),
            was_asked=bool(plan.hint),
            may_replan=get_brain().can_write and not plan.wanted and not _was_replanned(self.turn),
            step=f"{failed.instruction}\n{failed.tool or 'answer'} {json.dumps(failed.params)}" if failed else "",
        )
        answer = get_brain().decide(self.turn, RECOVER, case).answer
        self._apply(plan, answer, error, avoid)

    def _apply(self, plan: SubPlan, answer: RecoverAnswer, error: str, avoid: list[str]) -> None:
        claim = self.turn.claim
        tool = "" if answer.tool == "answer" else answer.tool
        instead = StepDraft("", tool, answer.params if tool else {}) if answer.tool else None
        with claimed():
            match answer.strategy:
                case "retry":
                    rest = timezone.now() + timedelta(seconds=flow.backoff(plan.attempt))
                    delegation.retry(claim, plan, retry_at=rest, note=error)
                case "retry_modified":
                    delegation.retry(claim, plan, instead=instead, hint=answer.hint or error, note=error)
                case "alternative":
                    # Another tool is no reason to take it from the agent that has it.
                    others = {} if instead else {"avoid": avoid}
                    delegation.retry(claim, plan, instead=instead, note=error, **others)
                case "replan":
                    self._replan(plan, error)
                case "abandon":
                    delegation.drop(claim, [plan], error)
            # "ask": the decision is on record, and from now on the sub-plan asks.

    def _replan(self, plan: SubPlan, error: str) -> None:
        """Plan anew what has not been begun. The new sub-plans are kept before the old ones go.

        What is being worked on goes on, and may be built upon. Without a new plan, or where a person refused it, only
        what failed is given up. While one thinks about it, what it would take the place of is not begun.
        """
        states = {key: self._state(one) for key, one in self.plans.items()}
        done = tuple(
            (key, evidence.report_of(self.turn, self.plans[key]))
            for key, state in states.items()
            if state == flow.PartState.DONE
        )
        case = PlanCase(
            self.conversation,
            list(self.tools.values()),
            anchor=f"again:{plan.key}:{plan.attempt}",
            roles=_roles(self.turn),
            done=done,
            begun=tuple((key, self.plans[key].goal) for key, state in states.items() if state in flow.UNDER_WAY),
            failed=((plan.key, f"{plan.goal}: {error}"),),
        )
        drafts = get_brain().decide(self.turn, PLAN, case).answer.drafts()
        names = {draft.key: f"{draft.key[:56]}-anew" for draft in drafts}
        renamed = [
            SubPlanDraft(
                names[draft.key],
                draft.goal,
                draft.role,
                draft.steps,
                tuple(names.get(key, key) for key in draft.depends_on),
                draft.expected_output,
            )
            for draft in drafts
        ]
        try:
            if renamed and (blocked := ask_first(self.turn, self.conversation, plan_of(renamed))):
                self.held[plan.key] = blocked
                self.replanning.add(plan.key)
                return
        except ToolError as refused:
            renamed, error = [], f"{error} {refused}"
        # A worker that died here before may have kept them already.
        new = {draft.key for draft in renamed}
        old = [one for key, one in self.plans.items() if key not in new and _is_replaceable(one, states[key])]
        with claimed():
            delegation.store_plan(self.turn.claim, renamed)
            note = f"Planned anew, after this: {error}" if renamed else error
            delegation.drop(self.turn.claim, [plan, *old] if renamed else [plan], note)

    def _count_ended(self) -> None:
        """Success rates: each attempt that ended, once. What somebody stopped says nothing of the agent."""
        for plan in self.plans.values():
            task = plan.task
            if task is None or not task.is_terminal or plan.counted > plan.attempt:
                continue
            if task.state != Task.State.CANCELED and _error_of(plan)[0] not in NOT_ITS_FAULT:
                delegation.count_attempt(plan, ok=task.state == Task.State.COMPLETED)

    # --- Questions -------------------------------------------------------------------------------

    def _take(self, answer: Answered) -> Outcome | None:
        """Do what the newest message says about the question before it. None: go on."""
        match answer.about.get("kind"):
            case "child":
                self._pass_down(answer)
            case "recover":
                self._take_recovery(answer)
            case "budget":
                return self._take_budget(answer)
        return None

    def _pass_down(self, answer: Answered) -> None:
        """Tell the one that asked. What is no answer is not passed on: the question stands."""
        plan = self.plans.get(answer.about.get("sub_plan", ""))
        asked = {name: value for name, value in answer.about.items() if name != "held"}
        if plan is None or plan.task is None or about_child(plan, plan.task) != asked:
            return
        given: dict[str, Any] | None = answer.message
        if "held" in answer.about and is_yes(answer.text):
            held = answer.about["held"]
            given = next((one for one in reversed(self.turn.messages) if one["messageId"] == held), None)
        elif asked["asks"].get("kind") not in ("confirm", "repeat") and not self._is_answer(plan, plan.task, answer):
            return
        if given is not None:
            message = Incoming(parts=given["parts"], message_id=given["messageId"])
            with claimed():
                delegation.tell(self.turn.claim, plan.task.pk, message, question=asked["question"])

    def _is_answer(self, plan: SubPlan, task: Task, answer: Answered) -> bool:
        """Whether the message answers what was asked. Where nobody can tell, the person is asked that."""
        question = text_of((task.status_message or {}).get("parts", []))
        # Message ids are the caller's, who may use one again for the next answer.
        anchor = f"{answer.about['question']}/{answer.message_id}"[:80]
        case = FollowUpCase(self.conversation, anchor=anchor, question=question, message=answer.text)
        choice = get_brain().decide(self.turn, FOLLOW_UP, case)
        if choice.answer.decision == "handle":
            return True
        if choice.is_fallback:
            self.held[plan.key] = hold_back(plan, task, answer.message_id, answer.text)
        return False

    def _take_recovery(self, answer: Answered) -> None:
        plan = self.plans.get(answer.about.get("sub_plan", ""))
        if plan is None or plan.attempt != answer.about.get("attempt"):
            return
        wants_out, wants_more = is_no(answer.text) or bool(LEAVE.search(answer.text)), bool(AGAIN.search(answer.text))
        if wants_out and wants_more:
            # "Don't leave it out, try …": the question stands, for what is left out stays out.
            return
        with claimed():
            if wants_out:
                delegation.drop(self.turn.claim, [plan], "Left out, as you asked.")
            else:
                hint = answer.text if not is_yes(answer.text) else "Try again."
                delegation.retry(self.turn.claim, plan, hint=hint, note="Tried again, as you asked.")

    def _take_budget(self, answer: Answered) -> Outcome | None:
        if outcome := take_budget_answer(self.turn, answer):
            return outcome
        asking = [plan for plan in self.plans.values() if self._state(plan) == flow.PartState.ASKING]
        if Budget.objects.filter(pk=mission_of(self.turn), is_closed=True).exists():
            left = [plan for plan in self.plans.values() if not self._state(plan).is_over]
            with claimed():
                delegation.drop(self.turn.claim, left, "Not done: the budget of the mission was used up.")
            # Also what a worker dropped who died before it got here.
            for plan in self.plans.values():
                self._cancel(plan)
            return None
        for plan in asking:
            asks = ((plan.task and plan.task.status_message) or {}).get("metadata", {}).get("asks", {})
            if plan.task and asks.get("kind") == "budget":
                message = Incoming(parts=[{"text": "Go on: the budget has been raised."}], message_id=answer.message_id)
                with claimed():
                    delegation.tell(self.turn.claim, plan.task.pk, message)
        return None

    def _cancel(self, plan: SubPlan) -> None:
        if plan.task is not None and not plan.task.is_terminal:
            try:
                cancel_task(self.turn.caller, plan.task.pk, "The mission ends with what there is.")
            except TaskNotInState:
                return


def _roles(turn: Turn) -> tuple[str, ...]:
    known = {agent.role for agent in allocation.candidates(turn) if agent.role}
    return tuple(sorted(known | set(allocation.TEMPLATES)))


def _is_replaceable(plan: SubPlan, state: flow.PartState) -> bool:
    """Whether a new plan takes its place: it was never begun."""
    return state == flow.PartState.PENDING and not plan.attempt


def _was_replanned(turn: Turn, anchor: str = "") -> bool:
    """Whether a new plan was made: at all, or after the failed attempt that `anchor` names."""
    made = Decision.objects.filter(task_id=turn.claim.task_id, key__startswith="plan:again:")
    return (made.filter(key=f"plan:again:{anchor}") if anchor else made).exists()


def _error_of(plan: SubPlan) -> tuple[str, str]:
    """Class and words of what a sub-plan failed with."""
    if plan.task is None:
        failed = next(step for step in plan.subtasks.all() if step.state == Subtask.State.FAILED)
        where = f"Step {failed.position} ({failed.instruction}) failed: {failed.evidence.get('error', '')}"
        return failed.evidence.get("error_class", "other"), where
    message = plan.task.status_message or {}
    text = text_of(message.get("parts", [])) or f"Its task was {plan.task.state}."
    given_up = "agent_unavailable" if text.startswith("Given up after") else ""
    found = message.get("metadata", {}).get("errorClass", "") or given_up
    return found or {"rejected": "rejected", "canceled": "canceled"}.get(plan.task.state, "other"), text
