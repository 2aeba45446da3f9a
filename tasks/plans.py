"""What a worker reads of the task it works on, and of the plan that the task belongs to, at every turn."""

import uuid
from collections.abc import Iterable

from django.db.models import prefetch_related_objects

from tasks.exceptions import TaskNotFound
from tasks.models import SubPlan, Task
from tasks.sql import fetch_all, fetch_one, prepare, this_database


def root_of(task_id: uuid.UUID) -> uuid.UUID:
    """The mission that a task belongs to; the task itself when it is one. Raises TaskNotFound."""
    row = fetch_one("SELECT root_id FROM tasks_task WHERE id = %s", [prepare(Task, "id", task_id, this_database())])
    if row is None:
        raise TaskNotFound
    return _as_uuid(row[0]) if row[0] else task_id


def references_of(task_id: uuid.UUID) -> tuple[uuid.UUID, ...]:
    """The tasks that a task refers to, oldest first."""
    rows = fetch_all(
        "SELECT to_task_id FROM tasks_task_references AS reference JOIN tasks_task AS task ON task.id = to_task_id "
        "WHERE from_task_id = %s ORDER BY task.created_at",
        [prepare(Task, "id", task_id, this_database())],
    )
    return tuple(_as_uuid(row[0]) for row in rows)


def has_plan(mission_id: uuid.UUID) -> bool:
    row = fetch_one(
        "SELECT 1 FROM tasks_subplan WHERE mission_id = %s LIMIT 1", [prepare(Task, "id", mission_id, this_database())]
    )
    return row is not None


def read_plan(mission_id: uuid.UUID) -> list[SubPlan]:
    """The sub-plans of a mission, oldest first, each with its steps, its task and that task's agent."""
    rows = SubPlan.objects.filter(mission_id=mission_id).select_related("task__agent")
    return list(rows.prefetch_related("subtasks").order_by("id"))


def read_needs(mission_id: uuid.UUID) -> dict[str, tuple[str, ...]]:
    """What the sub-plans of a mission depend on, by their keys; those that depend on nothing are left out."""
    rows = fetch_all(
        "SELECT plan.key, needed.key FROM tasks_subplan AS plan "
        "JOIN tasks_subplan_depends_on AS link ON link.from_subplan_id = plan.id "
        "JOIN tasks_subplan AS needed ON needed.id = link.to_subplan_id "
        "WHERE plan.mission_id = %s ORDER BY plan.id, needed.id",
        [prepare(Task, "id", mission_id, this_database())],
    )
    found: dict[str, tuple[str, ...]] = {}
    for key, needed in rows:
        found[key] = (*found.get(key, ()), needed)
    return found


def read_sub_plan(task_id: uuid.UUID) -> SubPlan | None:
    """The sub-plan that was given out as this task, with its steps."""
    return SubPlan.objects.filter(task_id=task_id).prefetch_related("subtasks").first()


def read_artifacts(plans: Iterable[SubPlan]) -> None:
    """Have what these delivered at hand, unless it is."""
    prefetch_related_objects(list(plans), "task__artifacts")


def _as_uuid(value: uuid.UUID | str) -> uuid.UUID:
    return value if isinstance(value, uuid.UUID) else uuid.UUID(value)
