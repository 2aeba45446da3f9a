"""How much a reader of a task is sent, counted where it is stored, before any of it is read."""

import uuid
from collections.abc import Sequence

from django.db import connection

from tasks.sql import fetch_all

STATEMENT = """
SELECT task.id, {status_message} + {messages} + {artifacts}
FROM tasks_task AS task WHERE task.id IN ({ids})"""
MESSAGES = """COALESCE((SELECT SUM({parts} + {metadata}) FROM (
        SELECT parts, metadata FROM tasks_message WHERE task_id = task.id ORDER BY id DESC{limit}) AS message), 0)"""
# What is still growing is in the events.
ARTIFACTS = """COALESCE((SELECT SUM({parts} + {metadata} + CASE WHEN artifact.is_complete THEN 0 ELSE (
            SELECT COALESCE(SUM({payload}), 0) FROM tasks_event AS chunk
            WHERE chunk.task_id = task.id AND chunk.kind = 'artifact') END)
        FROM tasks_artifact AS artifact WHERE artifact.task_id = task.id), 0)"""


def task_sizes(
    task_ids: Sequence[uuid.UUID], *, history: int | None = None, with_artifacts: bool = False
) -> dict[uuid.UUID, int]:
    """Bytes of each task's status, of its newest `history` messages (None for all), and of its artifacts.

    Files count as what refers to them. As JSON they are about as many bytes again where a text is not ASCII.
    """
    if not task_ids:
        return {}
    is_postgresql = connection.vendor == "postgresql"
    keys = list(task_ids) if is_postgresql else [key.hex for key in task_ids]
    rows = fetch_all(_statement(is_postgresql, len(keys), history, with_artifacts), keys)
    return {key if is_postgresql else uuid.UUID(key): int(size) for key, size in rows}


def _statement(is_postgresql: bool, count: int, history: int | None, with_artifacts: bool) -> str:
    size = "octet_length({}::text)" if is_postgresql else "LENGTH({})"
    limit = "" if history is None else f" LIMIT {int(history)}"
    messages = MESSAGES.format(parts=size.format("parts"), metadata=size.format("metadata"), limit=limit)
    artifacts = ARTIFACTS.format(
        parts=size.format("artifact.parts"), metadata=size.format("artifact.metadata"), payload=size.format("payload")
    )
    return STATEMENT.format(
        status_message=f"COALESCE({size.format('task.status_message')}, 0)",
        messages=messages,
        artifacts=artifacts if with_artifacts else "0",
        ids=", ".join(["%s"] * count),
    )
