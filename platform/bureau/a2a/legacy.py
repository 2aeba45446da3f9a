"""The methods from before `message/send`: `tasks/send` and `tasks/sendSubscribe`, by an adapter of ours.

In that protocol the sender names the task. Here the sender's name for it becomes the task's id by a hash
over owner and name, so nothing has to be kept, and whoever asks `tasks/get` for a name that is no task's id
is answered in the older shape. Shapes as in the protocol's JSON schema of April 2025.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Literal, NamedTuple, cast
from uuid import UUID, uuid4, uuid5

from a2a.server.context import ServerCallContext
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import PushNotificationNotSupportedError, TaskNotFoundError
from django.db import IntegrityError
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from pydantic import BaseModel, Field, ValidationError

from bureau.a2a import v03
from bureau.a2a.authentication import CallerUser
from bureau.a2a.errors import invalid_field
from bureau.a2a.handler import HANDLER, NEW_ID
from bureau.a2a.outbound import STATE_NAMES
from bureau.a2a.wire import UNREADABLE, Method, unreadable
from directory.identity import Caller
from tasks.aio import in_db
from tasks.exceptions import TaskNotFound
from tasks.models import Task
from tasks.queries import fetch_task

NAMESPACE = UUID("0f5a9a62-7d0e-5a3b-8d0f-3c1d7f6f6a11")
MAX_NAME = 255


class File(BaseModel):
    name: str | None = None
    mimeType: str | None = None
    bytes: str | None = None
    uri: str | None = None


class TextPart(BaseModel):
    type: Literal["text"]
    text: str
    metadata: dict[str, Any] | None = None


class FilePart(BaseModel):
    type: Literal["file"]
    file: File
    metadata: dict[str, Any] | None = None


class DataPart(BaseModel):
    type: Literal["data"]
    data: dict[str, Any]
    metadata: dict[str, Any] | None = None


class Message(BaseModel):
    role: Literal["user"]
    parts: list[Annotated[TextPart | FilePart | DataPart, Field(discriminator="type")]] = Field(min_length=1)
    metadata: dict[str, Any] | None = None


class Params(BaseModel):
    """TaskSendParams."""

    id: str = Field(min_length=1, max_length=MAX_NAME)
    sessionId: str | None = None
    message: Message
    historyLength: int | None = Field(default=None, ge=0)
    pushNotification: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None


class Send(NamedTuple):
    """A message for the task that its sender calls `name`."""

    name: str
    request: pb.SendMessageRequest


class Named(NamedTuple):
    """A task, or what happened to it, under its sender's name."""

    name: str
    item: Any


def task_id(context: ServerCallContext, name: str) -> UUID:
    """The id of the task that this caller calls `name`."""
    return uuid5(NAMESPACE, f"{_caller(context).principal}/{name}")


def _caller(context: ServerCallContext) -> Caller:
    return cast(CallerUser, context.user).caller


# --- In -------------------------------------------------------------------------------------------


def read_send(params: dict[str, Any]) -> Send:
    """Raises InvalidParamsError, PushNotificationNotSupportedError."""
    try:
        asked = Params.model_validate(params)
    except ValidationError as error:
        raise v03.invalid(error, depth=0) from None
    if asked.pushNotification is not None:
        raise PushNotificationNotSupportedError
    message: dict[str, Any] = {
        "messageId": str(uuid4()),
        "role": "ROLE_USER",
        "contextId": asked.sessionId or "",
        "parts": [_read_part(number, part) for number, part in enumerate(asked.message.parts)],
        "metadata": asked.message.metadata or {},
    }
    request = {
        "message": message,
        "metadata": asked.metadata or {},
        "configuration": {"historyLength": asked.historyLength or 0},
    }
    try:
        return Send(asked.id, ParseDict(request, pb.SendMessageRequest()))
    except (ParseError, *UNREADABLE) as error:
        raise unreadable(error) from None


def _read_part(number: int, part: TextPart | FilePart | DataPart) -> dict[str, Any]:
    metadata = {"metadata": part.metadata} if part.metadata else {}
    if isinstance(part, TextPart):
        return {"text": part.text, **metadata}
    if isinstance(part, DataPart):
        return {"data": part.data, **metadata}
    found: dict[str, Any] = {"filename": part.file.name or "", "mediaType": part.file.mimeType or "", **metadata}
    if (part.file.bytes is None) == (part.file.uri is None):
        raise invalid_field(f"message.parts.{number}.file", "A file has either bytes or a uri.")
    if part.file.uri is not None:
        return {**found, "url": part.file.uri}
    assert part.file.bytes is not None
    try:
        base64.b64decode(part.file.bytes, validate=True)
    except (binascii.Error, ValueError):
        raise invalid_field(f"message.parts.{number}.file.bytes", "This is not base64.") from None
    return {**found, "raw": part.file.bytes}


# --- What is done ---------------------------------------------------------------------------------


async def _prepare(send: Send, context: ServerCallContext) -> None:
    """A follow-up if there is such a task, else the beginning of it."""
    key = task_id(context, send.name)
    try:
        await in_db(fetch_task, _caller(context), key, agent_slug=context.tenant, history=0, with_artifacts=False)
    except TaskNotFound:
        context.state[NEW_ID] = key
    else:
        send.request.message.task_id = str(key)


async def on_send(send: Send, context: ServerCallContext) -> Named:
    """Waits until the task has ended or needs somebody."""
    await _prepare(send, context)
    try:
        return Named(send.name, await HANDLER.on_message_send(send.request, context))
    except IntegrityError:
        # Another message began a task of this name meanwhile; or it is one of another agent's.
        if not context.state.pop(NEW_ID, None):
            raise
        await _prepare(send, context)
        if NEW_ID in context.state:
            raise TaskNotFoundError from None
        return Named(send.name, await HANDLER.on_message_send(send.request, context))


async def on_send_stream(send: Send, context: ServerCallContext) -> AsyncGenerator[Named]:
    """This protocol's streams hold updates only, so one begins with the state instead of the task."""
    await _prepare(send, context)
    async with aclosing(HANDLER.on_message_send_stream(send.request, context)) as events:
        try:
            async for event in events:
                yield Named(send.name, event)
        except IntegrityError:
            raise invalid_field("id", "Another message just began a task of this id; send it again.") from None


async def on_get(params: pb.GetTaskRequest, context: ServerCallContext) -> Any:
    """Of 0.3, or else by its sender's name."""
    try:
        return await HANDLER.on_get_task(params, context)
    except TaskNotFoundError:
        asked = pb.GetTaskRequest(id=str(task_id(context, params.id)), history_length=params.history_length)
        return Named(params.id, await HANDLER.on_get_task(asked, context))


async def on_cancel(params: pb.CancelTaskRequest, context: ServerCallContext) -> Any:
    """Of 0.3, or else by its sender's name."""
    try:
        return await HANDLER.on_cancel_task(params, context)
    except TaskNotFoundError:
        asked = pb.CancelTaskRequest(id=str(task_id(context, params.id)))
        return Named(params.id, await HANDLER.on_cancel_task(asked, context))


# --- Out ------------------------------------------------------------------------------------------


def write(found: Named) -> dict[str, Any]:
    """A Task, TaskStatusUpdateEvent or TaskArtifactUpdateEvent of this protocol."""
    name, item = found
    if isinstance(item, pb.TaskStatusUpdateEvent):
        return {"id": name, "status": _status(item.status), "final": _is_final(item.status)}
    if isinstance(item, pb.TaskArtifactUpdateEvent):
        chunk = {"append": item.append, "lastChunk": item.last_chunk}
        return {"id": name, "artifact": _artifact(0, item.artifact) | chunk}
    task: dict[str, Any] = {
        "id": name,
        "sessionId": item.context_id,
        "status": _status(item.status),
        "artifacts": [_artifact(number, artifact) for number, artifact in enumerate(item.artifacts)],
        "history": [_message(message) for message in item.history],
        "metadata": MessageToDict(item.metadata),
    }
    return {key: value for key, value in task.items() if value}


def write_event(found: Named) -> dict[str, Any]:
    if isinstance(found.item, pb.Task):
        status = found.item.status
        return {"id": found.name, "status": _status(status), "final": _is_final(status)}
    return write(found)


def _is_final(status: pb.TaskStatus) -> bool:
    return STATE_NAMES[status.state] not in Task.RUNNING


def _status(status: pb.TaskStatus) -> dict[str, Any]:
    state = STATE_NAMES[status.state]
    # Two states came later.
    old = {Task.State.AUTH_REQUIRED: Task.State.INPUT_REQUIRED, Task.State.REJECTED: Task.State.FAILED}
    found: dict[str, Any] = {
        "state": str(old.get(Task.State(state), state)),
        "timestamp": status.timestamp.ToJsonString(),
    }
    return found | {"message": _message(status.message)} if status.HasField("message") else found


def _message(message: pb.Message) -> dict[str, Any]:
    found: dict[str, Any] = {
        "role": "user" if message.role == pb.ROLE_USER else "agent",
        "parts": [_part(part) for part in message.parts],
    }
    return found | {"metadata": MessageToDict(message.metadata)} if message.HasField("metadata") else found


def _artifact(number: int, artifact: pb.Artifact) -> dict[str, Any]:
    found = {
        "name": artifact.name,
        "description": artifact.description,
        "parts": [_part(part) for part in artifact.parts],
        "metadata": MessageToDict(artifact.metadata),
    }
    return {"index": number, **{key: value for key, value in found.items() if value}}


def _part(part: pb.Part) -> dict[str, Any]:
    found: dict[str, Any]
    match part.WhichOneof("content"):
        case "text":
            found = {"type": "text", "text": part.text}
        case "data":
            data = MessageToDict(part.data)
            # It knows objects only.
            found = {"type": "data", "data": data if isinstance(data, dict) else {"value": data}}
        case _:
            place = {"bytes": base64.b64encode(part.raw).decode()} if part.raw else {"uri": part.url}
            file = {"name": part.filename, "mimeType": part.media_type, **place}
            found = {"type": "file", "file": {key: value for key, value in file.items() if value}}
    return found | {"metadata": MessageToDict(part.metadata)} if part.HasField("metadata") else found


def _either(method: Method, run: Any) -> Method:
    def write_either(result: Any) -> dict[str, Any]:
        written: dict[str, Any] = write(result) if isinstance(result, Named) else method.write(result)
        return written

    return method._replace(run=run, write=write_either)


# These stand beside those of 0.3, which is what a request without a version is.
METHODS = {
    "tasks/send": Method(read_send, on_send, write),
    "tasks/sendSubscribe": Method(read_send, on_send_stream, write_event, is_stream=True),
    "tasks/get": _either(v03.METHODS["tasks/get"], on_get),
    "tasks/cancel": _either(v03.METHODS["tasks/cancel"], on_cancel),
}
