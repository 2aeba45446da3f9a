"""From our views and events to the wire types. What is stored is ProtoJSON already, files aside."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from a2a.types import a2a_pb2 as pb
from django.conf import settings
from google.protobuf.json_format import ParseDict

from bureau.a2a.addresses import file_url
from tasks.files import read_file
from tasks.models import Event, Message, StoredFile, Task
from tasks.queries import EventRow, TaskView

logger = logging.getLogger(__name__)

STATES: dict[str, pb.TaskState] = {
    Task.State.SUBMITTED: pb.TASK_STATE_SUBMITTED,
    Task.State.WORKING: pb.TASK_STATE_WORKING,
    Task.State.INPUT_REQUIRED: pb.TASK_STATE_INPUT_REQUIRED,
    Task.State.AUTH_REQUIRED: pb.TASK_STATE_AUTH_REQUIRED,
    Task.State.COMPLETED: pb.TASK_STATE_COMPLETED,
    Task.State.FAILED: pb.TASK_STATE_FAILED,
    Task.State.CANCELED: pb.TASK_STATE_CANCELED,
    Task.State.REJECTED: pb.TASK_STATE_REJECTED,
}
STATE_NAMES = {number: name for name, number in STATES.items()}
ROLES = {Message.Role.USER: pb.ROLE_USER, Message.Role.AGENT: pb.ROLE_AGENT}

EPOCH = datetime.fromtimestamp(0, UTC)
MILLISECOND = timedelta(milliseconds=1)

Parts = Sequence[dict[str, Any]]
Bytes = dict[str, bytes]


class Ids(NamedTuple):
    """What a message on its way out is marked with."""

    task: str
    context: str


def to_task(view: TaskView, *, inline: bool = True) -> pb.Task:
    """The task as callers see it. Reads files, so call it where the database may be used.

    With `inline`, files up to BUREAU_INLINE_BYTES travel in the answer, others as addresses.
    """
    ids = Ids(str(view.id), view.context_key)
    contents = read_files(_all_parts(view)) if inline else {}
    task = pb.Task(
        id=ids.task,
        context_id=ids.context,
        status=_status(view.state, view.status_message, view.status_at, ids, contents),
        history=[_message(message, ids, contents) for message in view.history],
        artifacts=[to_artifact(artifact, contents) for artifact in view.artifacts],
    )
    if view.metadata:
        ParseDict(view.metadata, task.metadata)
    return task


def bare_message(task: pb.Task) -> pb.Message | None:
    """What the agent said, without its task: for one that has completed and says something. Else None.

    It refers to the task, which is on record like any other, so that an answer which was lost can be found again.
    """
    said = task.status.message
    parts = [*said.parts, *(part for artifact in task.artifacts for part in artifact.parts)]
    if task.status.state != pb.TASK_STATE_COMPLETED or not parts:
        return None
    return pb.Message(
        message_id=said.message_id or task.id,
        context_id=task.context_id,
        role=pb.ROLE_AGENT,
        parts=parts,
        metadata=said.metadata if said.HasField("metadata") else None,
        reference_task_ids=[task.id],
    )


def to_update(event: EventRow, ids: Ids, contents: Bytes) -> pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent:
    """An event of a kind in Event.ON_THE_WIRE; `contents` as of `read_files`."""
    payload = event.payload
    if event.kind == Event.Kind.STATUS:
        status = _status(payload["state"], payload.get("message"), event.created_at, ids, contents)
        return pb.TaskStatusUpdateEvent(task_id=ids.task, context_id=ids.context, status=status)
    return pb.TaskArtifactUpdateEvent(
        task_id=ids.task,
        context_id=ids.context,
        artifact=to_artifact(payload, contents),
        append=payload.get("append", False),
        last_chunk=payload.get("lastChunk", False),
    )


def to_artifact(artifact: dict[str, Any], contents: Bytes) -> pb.Artifact:
    """From the shape that views and artifact events share."""
    found = pb.Artifact(
        artifact_id=artifact["artifactId"],
        name=artifact.get("name", ""),
        description=artifact.get("description", ""),
        parts=[_part(part, contents) for part in artifact["parts"]],
    )
    if artifact.get("metadata"):
        ParseDict(artifact["metadata"], found.metadata)
    return found


def parts_of(event: EventRow) -> Parts:
    """The parts that an event carries, for `read_files`."""
    if event.kind == Event.Kind.ARTIFACT:
        parts: Parts = event.payload["parts"]
        return parts
    message = event.payload.get("message")
    return message["parts"] if message else []


def holds_files(parts: Parts) -> bool:
    return any("file" in part for part in parts)


def read_files(parts: Iterable[dict[str, Any]]) -> Bytes:
    """The bytes of those stored files among the parts that are small enough to travel in the answer."""
    ids = {part["file"] for part in parts if "file" in part}
    if not ids:
        return {}
    small = StoredFile.objects.filter(pk__in=ids, size__lte=settings.BUREAU_INLINE_BYTES)
    contents: Bytes = {}
    for stored in small:
        try:
            contents[str(stored.pk)] = read_file(stored)
        except OSError:
            # Its address will say that it is not there.
            logger.exception("A stored file cannot be read", extra={"action": "file.unreadable", "file": stored.pk})
    return contents


def _all_parts(view: TaskView) -> list[dict[str, Any]]:
    holders = [*view.history, *view.artifacts, *([view.status_message] if view.status_message else [])]
    return [part for holder in holders for part in holder["parts"]]


def _status(state: str, message: dict[str, Any] | None, at: datetime, ids: Ids, contents: Bytes) -> pb.TaskStatus:
    status = pb.TaskStatus(state=STATES[state])
    # Milliseconds, as the specification asks: more digits would not compare equal to what clients keep.
    status.timestamp.FromMilliseconds((at - EPOCH) // MILLISECOND)
    if message:
        status.message.CopyFrom(_message(message, ids, contents))
    return status


def _message(message: dict[str, Any], ids: Ids, contents: Bytes) -> pb.Message:
    found = pb.Message(
        message_id=message["messageId"],
        context_id=ids.context,
        task_id=ids.task,
        role=ROLES[Message.Role(message["role"])],
        parts=[_part(part, contents) for part in message["parts"]],
        extensions=message.get("extensions", []),
        reference_task_ids=message.get("referenceTaskIds", []),
    )
    if message.get("metadata"):
        ParseDict(message["metadata"], found.metadata)
    return found


def _part(part: dict[str, Any], contents: Bytes) -> pb.Part:
    found = pb.Part(filename=part.get("filename", ""), media_type=part.get("mediaType", ""))
    if "text" in part:
        found.text = part["text"]
    elif "data" in part:
        ParseDict(part["data"], found.data)
    elif "url" in part:
        found.url = part["url"]
    elif part["file"] in contents:
        found.raw = contents[part["file"]]
    else:
        found.url = file_url(part["file"])
    if part.get("metadata"):
        ParseDict(part["metadata"], found.metadata)
    return found
