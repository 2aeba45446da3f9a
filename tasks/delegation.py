"""A mission and the tasks below it: a plan kept, parts of it delegated, parents woken, answers passed down.

Nobody waits for another task. A task that has delegated stays `working`, unleased and not due; whatever
happens below makes it due, in the transaction in which it happens.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from directory import health
from directory.models import Agent
from tasks import doorbell, wakeups
from tasks.content import Incoming, clean, title_of
from tasks.exceptions import Superseded, TaskNotInState
from tasks.messages import message_insert, wire_message
from tasks.models import Event, Message, SubPlan, Subtask, Task
from tasks.plans import references_of, root_of
from tasks.sql import After, Insert
from tasks.state import CALL_A_WORKER, Draft, create, move, status

if TYPE_CHECKING:
    from tasks.claims import Claim

# Names the task of a sub-plan by sub-plan and attempt, so that delegating it again finds it.
CHILD_NAMESPACE = uuid.UUID("3f0c7a52-6a0e-5d4b-9f0e-1d6a7c2b8e41")


@dataclass(frozen=True, slots=True)
class StepDraft:
    """One step on its way into a plan. Without a `tool` a language model does it."""

    instruction: str
    tool: str = ""
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SubPlanDraft:
    """One sub-plan on its way into a plan. `depends_on` holds keys of other sub-plans of the mission, `wanted` the
    slugs of the agents that it is meant for, if it is meant for any."""

    key: str
    goal: str
    role: str
    steps: tuple[StepDraft, ...]
    depends_on: tuple[str, ...] = ()
    expected_output: str = ""
    wanted: tuple[str, ...] = ()


def store_plan(claim: "Claim", drafts: Sequence[SubPlanDraft]) -> None:
    """Keep these sub-plans of the claimed mission, all or none. Those that are there already stay as they are.

    Raises Superseded.
    """
    with transaction.atomic():
        _hold(claim)
        known = {plan.key: plan for plan in SubPlan.objects.filter(mission_id=claim.task_id)}
        new = [draft for draft in drafts if draft.key not in known]
        made = SubPlan.objects.bulk_create(
            SubPlan(
                mission_id=claim.task_id,
                key=draft.key,
                goal=clean(draft.goal),
                role=draft.role,
                expected_output=clean(draft.expected_output),
                wanted=list(draft.wanted),
            )
            for draft in new
        )
        known |= {plan.key: plan for plan in made}
        Subtask.objects.bulk_create(
            Subtask(
                sub_plan=known[draft.key],
                position=number,
                instruction=clean(step.instruction),
                tool=step.tool,
                params=clean(step.params),
            )
            for draft in new
            for number, step in enumerate(draft.steps, 1)
        )
        pairs = [(draft.key, key) for draft in new for key in set(draft.depends_on)]
        need = SubPlan.depends_on.through
        need.objects.bulk_create(need(from_subplan=known[one], to_subplan=known[other]) for one, other in pairs)


def delegate(claim: "Claim", plan: SubPlan, agent: Agent, message: Incoming) -> uuid.UUID:
    """Give a sub-plan of the claimed mission to an agent, as a task below the mission. Returns its id.

    The task refers to what the mission refers to.

    One task per sub-plan and attempt, however often this is called. Raises Superseded.
    """
    child = uuid.uuid5(CHILD_NAMESPACE, f"{plan.pk}/{plan.attempt}")
    now = timezone.now()
    with transaction.atomic():
        # Holds the mission's row, so a cancel comes before this and stops it, or after it and finds the child.
        _hold(claim)
        mine = SubPlan.objects.filter(pk=plan.pk, attempt=plan.attempt, task=None, is_dropped=False)
        # The task it names follows: foreign keys are checked at the commit.
        if not mine.update(task_id=child):
            return child
        create(
            [
                Insert(
                    Task,
                    {
                        "id": child,
                        "context_id": claim.context_id,
                        "parent_id": claim.task_id,
                        "root_id": root_of(claim.task_id),
                        "agent_id": agent.pk,
                        "owner": claim.owner,
                        "title": title_of([{"text": plan.goal}]),
                        "state": Task.State.SUBMITTED,
                        "metadata": {"subPlan": plan.key, "attempt": plan.attempt},
                        "status_at": now,
                        "created_at": now,
                        "due_at": now,
                        "last_seq": 1,
                        "queue": claim.queue,
                        "epoch": 0,
                        "lease_owner": "",
                        "attempts": 0,
                        "unread": False,
                    },
                ),
                message_insert(child, wire_message(Message.Role.USER, clean_message(message)), now),
                Insert(
                    Event, {"task_id": child, "seq": 1, "created_at": now, **status(Task.State.SUBMITTED)._asdict()}
                ),
                *(
                    Insert(Task.references.through, {"from_task_id": child, "to_task_id": reference})
                    for reference in references_of(claim.task_id)
                ),
            ]
        )
        transaction.on_commit(partial(doorbell.ring, claim.queue))
    return child


def tell(claim: "Claim", child_id: uuid.UUID, message: Incoming, *, question: str = "") -> bool:
    """Pass an answer down to a task below the claimed one that waits for it. Returns whether it was waiting.

    A message of the same id is passed once only: to that `question`, if the id of the message that asked is given.
    Raises Superseded.
    """
    now = timezone.now()
    wire = wire_message(Message.Role.USER, clean_message(message))
    with transaction.atomic():
        _hold(claim)
        said = Message.objects.filter(task_id=child_id)
        asked = said.filter(role=Message.Role.AGENT, message_id=question).aggregate(row=Max("pk"))["row"] or 0
        if said.filter(role=Message.Role.USER, message_id=wire["messageId"], pk__gt=asked).exists():
            return False
        try:
            move(
                child_id,
                [Draft(Event.Kind.MESSAGE, {"message": wire}), status(Task.State.SUBMITTED)],
                sources=Task.INTERRUPTED,
                target=Task.State.SUBMITTED,
                # Whoever works aside on it has lost it with this.
                fields={"attempts": 0, "due_at": After(), "lease_owner": "", "status_message": None},
                inserts=[message_insert(child_id, wire, now)],
                at=now,
            )
        except TaskNotInState:
            return False
        transaction.on_commit(partial(doorbell.ring, claim.queue))
        transaction.on_commit(partial(wakeups.announce, [child_id]))
    return True


def retry(claim: "Claim", plan: SubPlan, *, instead: StepDraft | None = None, **changes: Any) -> None:
    """Begin the next attempt of a sub-plan: it is pending again, and its failed step with it. Once per attempt.

    `instead` has the tool and parameters that the failed step is tried with this time. Raises Superseded.
    """
    step: dict[str, Any] = {"tool": instead.tool, "params": clean(instead.params)} if instead else {}
    with transaction.atomic():
        _hold(claim)
        mine = SubPlan.objects.filter(pk=plan.pk, attempt=plan.attempt, is_dropped=False)
        if mine.update(attempt=plan.attempt + 1, task=None, **clean(changes)):
            failed = Subtask.objects.filter(sub_plan=plan, state=Subtask.State.FAILED)
            failed.update(state=Subtask.State.PENDING, **step)


@transaction.atomic
def count_attempt(plan: SubPlan, *, ok: bool) -> None:
    """Put the end of this attempt into its agent's success rates, once, however often this is called."""
    assert plan.task is not None
    mine = SubPlan.objects.filter(pk=plan.pk, attempt=plan.attempt, counted__lte=plan.attempt)
    if mine.update(counted=plan.attempt + 1):
        seconds = (plan.task.status_at - plan.task.created_at).total_seconds()
        health.record_delegation(plan.task.agent, "", ok=ok, seconds=seconds)


def drop(claim: "Claim", plans: Sequence[SubPlan], note: str) -> None:
    """Give sub-plans up for good; what they did is kept. Raises Superseded."""
    with transaction.atomic():
        _hold(claim)
        SubPlan.objects.filter(pk__in=[plan.pk for plan in plans], is_dropped=False).update(
            is_dropped=True, note=clean(note)
        )


def settle_step(claim: "Claim", step: Subtask, state: str, evidence: dict[str, Any]) -> None:
    """Record what a step came to, unless it is done already. Raises Superseded."""
    with transaction.atomic():
        _hold(claim)
        Subtask.objects.filter(pk=step.pk).exclude(state=Subtask.State.DONE).update(
            state=state, evidence=clean(evidence)
        )


def amend_step(claim: "Claim", step: Subtask) -> None:
    """Keep the parameters of a step, which a person has completed. Raises Superseded."""
    with transaction.atomic():
        _hold(claim)
        Subtask.objects.filter(pk=step.pk, state=Subtask.State.PENDING).update(params=clean(step.params))


def wake(parent_id: uuid.UUID, *, even_asking: bool = False) -> bool:
    """Something happened below this task: it is due, or its running turn is told, if it is being worked on.

    With `even_asking` also when it waits for a person: then it is looked at aside (`Claim.is_aside`). Call it within
    the transaction of what happened, and before any task below is locked. Returns whether it was in such a state.
    """
    fields = {**CALL_A_WORKER, "attempts": 0}
    try:
        # One that is handed in is due anyway; but nobody is to claim it, look below, and find nothing yet.
        sources = (*Task.RUNNING, *Task.INTERRUPTED) if even_asking else Task.RUNNING
        move(parent_id, [], sources=sources, fields=fields)
    except TaskNotInState:
        return False
    queue = Task.objects.values_list("queue", flat=True).get(pk=parent_id)
    transaction.on_commit(partial(doorbell.ring, queue))
    return True


def resume(task_id: uuid.UUID) -> None:
    """What a task asked has been settled elsewhere: it is due again, and so is every one above that passed it up.

    A task that asks nothing is woken. Call it within the transaction of what happened.
    """
    while not wake(task_id):
        asking = _asked_through(task_id)
        # From the top down, as all do who lock several tasks of a tree.
        moved = [_hand_in(task) for task in reversed(asking)]
        if not asking or moved[-1]:
            return


def _hand_in(task: Task) -> bool:
    try:
        move(
            task.pk,
            [status(Task.State.SUBMITTED)],
            sources=Task.INTERRUPTED,
            target=Task.State.SUBMITTED,
            # As it was read: whoever answered it, or had it ask something else, came first.
            guard=f"last_seq = {task.last_seq}",
            # Whoever works aside on it has lost it with this.
            fields={"attempts": 0, "due_at": After(), "lease_owner": "", "status_message": None},
        )
    except TaskNotInState:
        return False
    transaction.on_commit(partial(doorbell.ring, task.queue))
    transaction.on_commit(partial(wakeups.announce, [task.pk]))
    return True


def _asked_through(task_id: uuid.UUID) -> list[Task]:
    """This task, if it asks, and those above it whose question is this one, from the bottom up."""
    found: list[Task] = []
    task = Task.objects.select_related("parent").get(pk=task_id)
    while task.state in Task.INTERRUPTED:
        if found:
            asks = (task.status_message or {}).get("metadata", {}).get("asks", {})
            if (asks.get("kind"), asks.get("task")) != ("child", str(found[-1].pk)):
                break
        found.append(task)
        if task.parent is None:
            break
        task = task.parent
    return found


def clean_message(message: Incoming) -> Incoming:
    """The message with nothing in it that no database keeps."""
    return Incoming(
        clean(message.parts), clean(message.message_id), clean(message.metadata), message.extensions, message.references
    )


def _hold(claim: "Claim") -> None:
    try:
        move(claim.task_id, [], sources=(claim.state,), epoch=claim.epoch)
    except TaskNotInState:
        raise Superseded from None
