"""The parts of a mission as its page shows them: the plan, the tasks below it, and what each of them cost."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from agents.costs import NOTHING, Bill, Cost, bill_of, costs_by_task
from bureau.dashboard.graph import Graph, draw, draw_narrow
from tasks.models import SubPlan, Task


@dataclass(frozen=True, slots=True)
class PlanPart:
    """One sub-plan, and what its current task took. What the coordinator does itself is in the mission's own cost."""

    plan: SubPlan
    cost: Cost


@dataclass(frozen=True, slots=True)
class Parts:
    """What is below a mission. `others` are tasks that are no sub-plan's current one, such as earlier attempts."""

    plans: Sequence[PlanPart]
    others: Sequence[tuple[Task, Cost]]
    graph: Graph | None
    narrow: Graph | None
    signature: str
    is_running: bool


def read_parts(task: Task) -> Parts:
    """The plan of a task and the tasks right below it."""
    # Read before what it stands for: what happens in between is then asked for again, not overlooked.
    signature = signature_of(task)
    children = Task.objects.filter(parent=task).select_related("agent").order_by("created_at", "id")
    below = list(children.defer("status_message", "metadata"))
    # Read after the tasks: one that is made in between is nobody's earlier attempt.
    rows = SubPlan.objects.filter(mission=task).select_related("task__agent").prefetch_related("subtasks", "depends_on")
    plans = list(rows)
    current = {plan.task_id for plan in plans if plan.task_id}
    costs = costs_by_task(current | {child.pk for child in below})
    return Parts(
        [PlanPart(plan, costs.get(plan.task_id, NOTHING) if plan.task_id else NOTHING) for plan in plans],
        [(child, costs.get(child.pk, NOTHING)) for child in below if child.pk not in current],
        draw(plans),
        draw_narrow(plans),
        signature,
        # A mission that works may give a part out at any time, and says so only before it does.
        is_running=not task.is_terminal and (task.state in Task.RUNNING or any(not one.is_terminal for one in below)),
    )


def signature_of(task: Task) -> str:
    """Another one whenever something happened in the task or below it."""
    below = Task.objects.filter(root=task) if task.root_id is None else Task.objects.filter(parent=task)
    seen = [(str(task.pk), Task.objects.values_list("last_seq", flat=True).get(pk=task.pk))]
    seen += sorted((str(pk), seq) for pk, seq in below.values_list("pk", "last_seq"))
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]


def read_bill(task: Task) -> Bill:
    """What the task and all below it took so far."""
    return bill_of(task)
