"""The cast: Alice owns the tasks, Bob may not see them, Olga operates the place."""

from directory.identity import PERMISSIONS, Caller
from tasks.models import Task

ALICE = Caller("user:1", "alice")
BOB = Caller("user:2", "bob")
OLGA = Caller("user:3", "olga", is_operator=True, permissions=frozenset(PERMISSIONS))


def snapshot(task_id) -> tuple:
    """Everything of a task that a refusal must leave as it was."""
    row = Task.objects.filter(pk=task_id).values().get()
    task = Task.objects.get(pk=task_id)
    return (
        row,
        list(task.events.values_list("seq", "kind", "payload")),
        list(task.messages.values_list("role", "parts")),
        list(task.artifacts.values_list("name", "parts", "is_complete")),
    )
