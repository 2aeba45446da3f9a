"""A task as others see it, read by one statement and so as of one moment: state, messages and artifacts agree.

The statement is the same on both databases but for the names of their JSON functions.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper

from tasks.models import Task
from tasks.sql import fetch_all, loads


@dataclass(slots=True)
class TaskView:
    """A task as others may see it. Messages and artifacts are A2A ProtoJSON without task and context ids."""

    id: uuid.UUID
    context_key: str
    agent_slug: str
    state: str
    status_message: dict[str, Any] | None
    status_at: datetime
    created_at: datetime
    metadata: dict[str, Any]
    last_seq: int
    title: str = ""
    history: list[dict[str, Any]] = field(default_factory=list)
    artifacts: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_terminal(self) -> bool:
        return self.state in Task.TERMINAL

    @property
    def is_settled(self) -> bool:
        """Ended, or waiting for somebody: nothing will happen by itself."""
        return self.state not in Task.RUNNING


# SQLite keeps JSON as text, which its JSON functions would take for a string unless told.
JSON_COLUMNS = ("parts", "metadata", "extensions", "reference_ids", "payload")

IS_COMPLETE = 6

STATEMENT = """
SELECT task.id, context.key, agent.slug, task.state, task.status_message, task.status_at, task.created_at,
    task.metadata, task.last_seq, task.title,
    {history}, {artifacts}
FROM tasks_task AS task
JOIN tasks_context AS context ON context.id = task.context_id
JOIN directory_agent AS agent ON agent.id = task.agent_id
WHERE task.id IN ({ids}) AND task.owner = %s"""
HISTORY = """(SELECT {collect}({row}(message.role, message.message_id, {parts}, {metadata}, {extensions},
        {reference_ids}))
    FROM (SELECT * FROM tasks_message WHERE task_id = task.id ORDER BY id) AS message)"""
# The chunks of what is still growing come along, up to the last event of the same moment.
ARTIFACTS = """(SELECT {collect}({row}(artifact.id, artifact.name, artifact.description, artifact.version,
        {parts}, {metadata}, artifact.is_complete, CASE WHEN artifact.is_complete THEN NULL ELSE (
            SELECT {collect}({payload}) FROM (
                SELECT payload FROM tasks_event WHERE task_id = task.id AND kind = 'artifact' ORDER BY seq) AS chunk
        ) END))
    FROM (SELECT * FROM tasks_artifact WHERE task_id = task.id ORDER BY created_at, id) AS artifact)"""


def read_views(
    task_ids: Sequence[uuid.UUID], owner: str, *, with_history: bool = True, with_artifacts: bool = True
) -> list[TaskView]:
    """The tasks of those ids that `owner` owns, in no particular order."""
    if not task_ids:
        return []
    statement = _statement(connection.vendor, len(task_ids), with_history, with_artifacts)
    is_postgresql = connection.vendor == "postgresql"
    rows = fetch_all(statement, [*(task_ids if is_postgresql else [key.hex for key in task_ids]), owner])
    return [_view(row, connection) for row in rows]


# All messages of the task whose row is called `taken`, for a statement of PostgreSQL's; `message_dict` takes each.
MESSAGES = """(
    SELECT json_agg(json_build_array(role, message_id, parts, metadata, extensions, reference_ids) ORDER BY id)
    FROM tasks_message WHERE task_id = taken.id)"""


def read_messages(task_id: uuid.UUID) -> list[dict[str, Any]]:
    """All messages of a task, oldest first."""
    key = task_id if connection.vendor == "postgresql" else task_id.hex
    rows = fetch_all(
        "SELECT role, message_id, parts, metadata, extensions, reference_ids FROM tasks_message "
        "WHERE task_id = %s ORDER BY id",
        [key],
    )
    return [message_dict(role, name, *map(loads, values)) for role, name, *values in rows]


def message_dict(
    role: str,
    message_id: str,
    parts: Any,
    metadata: Mapping[str, Any],
    extensions: Sequence[str] = (),
    reference_ids: Sequence[str] = (),
) -> dict[str, Any]:
    """A stored message in the shape that views and events carry."""
    message: dict[str, Any] = {"messageId": message_id, "role": role, "parts": parts}
    optional = {"metadata": metadata, "extensions": extensions, "referenceTaskIds": reference_ids}
    return message | {name: value for name, value in optional.items() if value}


def artifact_dict(
    artifact_id: Any, name: str, description: str, version: int, parts: Any, metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """A stored artifact as ProtoJSON; `version` travels as metadata, since A2A leaves versions to clients."""
    shape: dict[str, Any] = {"artifactId": str(artifact_id), "name": name, "parts": parts}
    if description:
        shape["description"] = description
    metadata = {**metadata, "version": version} if version > 1 else metadata
    return {**shape, "metadata": metadata} if metadata else shape


_statements: dict[tuple[str, int, bool, bool], str] = {}


def _statement(vendor: str, count: int, with_history: bool, with_artifacts: bool) -> str:
    key = (vendor, count, with_history, with_artifacts)
    if key not in _statements:
        if vendor == "postgresql":
            names = {"collect": "json_agg", "row": "json_build_array"}
            columns = {name: "{table}." + name for name in JSON_COLUMNS}
        else:
            names = {"collect": "json_group_array", "row": "json_array"}
            columns = {name: "json({table}." + name + ")" for name in JSON_COLUMNS}

        def fill(template: str, table: str) -> str:
            words = {name: text.format(table=table) for name, text in columns.items()}
            words["payload"] = columns["payload"].format(table="chunk")
            return template.format(**names, **words)

        _statements[key] = STATEMENT.format(
            history=fill(HISTORY, "message") if with_history else "NULL",
            artifacts=fill(ARTIFACTS, "artifact") if with_artifacts else "NULL",
            ids=", ".join(["%s"] * count),
        )
    return _statements[key]


def _view(row: tuple[Any, ...], database: BaseDatabaseWrapper) -> TaskView:
    key, context_key, slug, state, status_message, status_at, created_at, metadata, last_seq, title, *lists = row
    if database.vendor != "postgresql":
        key = uuid.UUID(key)
        status_at, created_at = status_at.replace(tzinfo=UTC), created_at.replace(tzinfo=UTC)
    history, artifacts = (loads(text) or [] for text in lists)
    return TaskView(
        key,
        context_key,
        slug,
        state,
        loads(status_message),
        status_at,
        created_at,
        loads(metadata),
        last_seq,
        title,
        [message_dict(*message) for message in history],
        # What a turn began and a later one did without was never delivered.
        [_artifact(*artifact) for artifact in artifacts if state != Task.State.COMPLETED or artifact[IS_COMPLETE]],
    )


def _artifact(
    key: str, name: str, description: str, version: int, parts: Any, metadata: Any, is_complete: Any, chunks: Any
) -> dict[str, Any]:
    found = artifact_dict(uuid.UUID(key), name, description, version, parts, metadata)
    if not is_complete:
        found["parts"] = [{"text": _fold(found["artifactId"], loads(chunks) or [])}]
    return found


def _fold(artifact_id: str, chunks: list[Any]) -> str:
    """The text that has been streamed so far; a chunk that does not append begins anew."""
    text = ""
    for chunk in map(loads, chunks):
        if chunk["artifactId"] == artifact_id:
            text = (text if chunk.get("append") else "") + "".join(part.get("text", "") for part in chunk["parts"])
    return text
