"""What remote agents say, as plain values: tasks, messages and events in the shapes that are kept here.

Whatever the binding and version, the SDK has turned it into messages of A2A 1.0 before. No network, no
database. The text in these values is a stranger's: it can be stored, and is trusted in nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, TypeVar

from a2a.types.a2a_pb2 import (
    Artifact,
    Message,
    Role,
    SendMessageRequest,
    SendMessageResponse,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from google.protobuf.json_format import ParseDict, ParseError

from directory.exceptions import InvalidAnswer
from directory.protojson import as_json
from directory.untrusted import clean_line, storable

S = TypeVar("S", bound=Sequence[Any])

TERMINAL = frozenset({"completed", "failed", "canceled", "rejected"})
INTERRUPTED = frozenset({"input-required", "auth-required"})
UNKNOWN = "unknown"
ID_LENGTH = 255
# Of a task only its newest messages are looked at: whoever says more between two looks says it to nobody.
MOST_MESSAGES = 500
# What nobody has a use for; a stranger could keep us busy with it.
MOST_ARTIFACTS = 500
MOST_PARTS = 20_000


@dataclass(frozen=True, slots=True)
class RemoteTask:
    """A task at a remote agent, as far as we have heard. Ids are the remote agent's.

    Messages are {"messageId", "role": "user" or "agent", "parts", "metadata"?}, artifacts {"artifactId",
    "name"?, "description"?, "parts", "metadata"?}; parts are A2A 1.0 ProtoJSON, files as {"raw": base64}.
    """

    id: str
    context_id: str
    state: str
    message: dict[str, Any] | None = None
    status_at: datetime | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def is_settled(self) -> bool:
        """Ended, or waiting for somebody: nothing will happen by itself."""
        return self.state in TERMINAL or self.state in INTERRUPTED

    @property
    def parts(self) -> list[dict[str, Any]]:
        """What it answered: the parts of its artifacts, or of its last word where there are none."""
        found = [part for artifact in self.artifacts for part in artifact["parts"]]
        return found or (self.message["parts"] if self.message else [])


@dataclass(frozen=True, slots=True)
class RemoteMessage:
    """A bare answer of an agent that needed no task."""

    message: dict[str, Any]
    context_id: str = ""

    @property
    def parts(self) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = self.message["parts"]
        return parts


Answer = RemoteTask | RemoteMessage


@dataclass(frozen=True, slots=True)
class RemoteEvent:
    """Something that happened at a remote agent, and the task as it is then.

    `kind` is "task" (all of it, anew), "status" (`message` if it said something), "artifact" (the chunk in
    `artifact`), or "message" (a bare answer: there is no task).
    """

    kind: str
    task: RemoteTask | None = None
    message: dict[str, Any] | None = None
    artifact: dict[str, Any] | None = None
    append: bool = False
    last_chunk: bool = False


# --- In ------------------------------------------------------------------------------------------


def answer_from(response: SendMessageResponse) -> Answer:
    """Raises InvalidAnswer."""
    if response.HasField("task"):
        return task_from(response.task)
    if response.HasField("message"):
        return RemoteMessage(_message(response.message), response.message.context_id[:ID_LENGTH])
    raise InvalidAnswer("The remote agent answered with neither a task nor a message.")


def task_from(task: Task) -> RemoteTask:
    """Raises InvalidAnswer."""
    return RemoteTask(
        id=_id(task.id, "task"),
        context_id=task.context_id[:ID_LENGTH],
        state=_state(task.status.state),
        message=_message(task.status.message) if task.status.HasField("message") else None,
        status_at=_time(task.status),
        history=[_message(message) for message in task.history[-MOST_MESSAGES:]],
        artifacts=[_artifact(artifact) for artifact in _bounded(task.artifacts, MOST_ARTIFACTS, "artifacts")],
        metadata=_plain(task.metadata) if task.HasField("metadata") else {},
    )


def event_from(response: StreamResponse, before: RemoteTask | None) -> RemoteEvent:
    """The event, folded into what was known of the task. Raises InvalidAnswer."""
    match response.WhichOneof("payload"):
        case "task":
            return RemoteEvent("task", task=task_from(response.task))
        case "message":
            return RemoteEvent("message", message=_message(response.message))
        case "status_update":
            return _status_event(response.status_update, before)
        case "artifact_update":
            return _artifact_event(response.artifact_update, before)
    raise InvalidAnswer("The remote agent sent an event that is none.")


def _status_event(update: TaskStatusUpdateEvent, before: RemoteTask | None) -> RemoteEvent:
    task = _same_task(update.task_id, update.context_id, before)
    message = _message(update.status.message) if update.status.HasField("message") else None
    history = task.history
    if task.message and all(task.message["messageId"] != earlier["messageId"] for earlier in history):
        history = [*history, task.message][-MOST_MESSAGES:]
    after = replace(
        task,
        state=_state(update.status.state),
        message=message,
        status_at=_time(update.status),
        history=history,
    )
    return RemoteEvent("status", task=after, message=message)


def _artifact_event(update: TaskArtifactUpdateEvent, before: RemoteTask | None) -> RemoteEvent:
    task = _same_task(update.task_id, update.context_id, before)
    chunk = _artifact(update.artifact)
    after = replace(task, artifacts=_with_chunk(task.artifacts, chunk, append=update.append))
    return RemoteEvent("artifact", task=after, artifact=chunk, append=update.append, last_chunk=update.last_chunk)


def _same_task(task_id: str, context_id: str, before: RemoteTask | None) -> RemoteTask:
    if before is None:
        return RemoteTask(id=_id(task_id, "task"), context_id=context_id[:ID_LENGTH], state="working")
    if task_id and task_id != before.id:
        raise InvalidAnswer("The remote agent spoke of another task than the one that was asked about.")
    return before


def _with_chunk(artifacts: Sequence[dict[str, Any]], chunk: dict[str, Any], *, append: bool) -> list[dict[str, Any]]:
    known = next((artifact for artifact in artifacts if artifact["artifactId"] == chunk["artifactId"]), None)
    if known is None:
        return _bounded([*artifacts, chunk], MOST_ARTIFACTS, "artifacts")
    parts = _bounded(joined(known["parts"], chunk["parts"]), MOST_PARTS, "parts")
    merged = {**known, **chunk, "parts": parts} if append else chunk
    return [merged if artifact is known else artifact for artifact in artifacts]


def joined(parts: Sequence[dict[str, Any]], more: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Parts with more parts behind them; text that goes on is one part."""
    found: list[dict[str, Any]] = []
    for is_text, run in groupby([*parts, *more], key=lambda part: part.keys() == {"text"}):
        together = list(run)
        found += [{"text": "".join(part["text"] for part in together)}] if is_text else together
    return found


def _bounded(items: S, most: int, what: str) -> S:
    """Raises InvalidAnswer where there are more."""
    if len(items) > most:
        raise InvalidAnswer(f"The remote agent's task has more than {most} {what}.")
    return items


def _message(message: Message) -> dict[str, Any]:
    found = _plain(message)
    shape: dict[str, Any] = {
        "messageId": found.get("messageId", "")[:ID_LENGTH],
        "role": "user" if message.role == Role.ROLE_USER else "agent",
        "parts": _bounded(found.get("parts", []), MOST_PARTS, "parts"),
    }
    return shape | {key: found[key] for key in ("metadata", "extensions") if found.get(key)}


def _artifact(artifact: Artifact) -> dict[str, Any]:
    found = _plain(artifact)
    parts = _bounded(found.get("parts", []), MOST_PARTS, "parts")
    shape: dict[str, Any] = {"artifactId": _id(artifact.artifact_id, "artifact"), "parts": parts}
    if found.get("name"):
        shape["name"] = clean_line(found["name"], 200)
    return shape | {key: found[key] for key in ("description", "metadata", "extensions") if found.get(key)}


def _id(text: str, what: str) -> str:
    if not text or len(text) > ID_LENGTH:
        raise InvalidAnswer(f"The remote agent gave a {what} without a usable id.")
    return str(storable(text))


def _state(state: int) -> str:
    if state == TaskState.TASK_STATE_UNSPECIFIED:
        return UNKNOWN
    try:
        return TaskState.Name(TaskState.ValueType(state)).removeprefix("TASK_STATE_").lower().replace("_", "-")
    except ValueError:
        return UNKNOWN


def _time(status: TaskStatus) -> datetime | None:
    if not status.HasField("timestamp"):
        return None
    try:
        moment: datetime = status.timestamp.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return moment


def _plain(message: Any) -> dict[str, Any]:
    try:
        found: dict[str, Any] = storable(as_json(message))
    except (ValueError, RecursionError) as error:
        raise InvalidAnswer(f"The remote agent's answer cannot be kept: {clean_line(str(error), 100)}.") from None
    return found


# --- Out -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Push:
    """Where the remote agent should tell us what happens, and how we know that it is it."""

    url: str
    token: str = field(default="", repr=False)
    scheme: str = ""
    credentials: str = field(default="", repr=False)

    def as_config(self) -> dict[str, Any]:
        """ProtoJSON of `TaskPushNotificationConfig`, without task id."""
        config: dict[str, Any] = {"url": self.url, "token": self.token}
        if self.scheme:
            config["authentication"] = {"scheme": self.scheme, "credentials": self.credentials}
        return config


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to a remote agent. Parts are A2A 1.0 ProtoJSON; stored files must have become raw or url before."""

    parts: list[dict[str, Any]]
    message_id: str
    context_id: str = ""
    task_id: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    extensions: list[str] = field(default_factory=list)
    references: list[str] = field(default_factory=list)

    def request(self, *, wait: bool, tenant: str, push: Push | None, history: int | None = None) -> SendMessageRequest:
        """Raises ValueError for parts that are not A2A's."""
        message: dict[str, Any] = {"messageId": self.message_id, "role": "ROLE_USER", "parts": self.parts}
        optional = {
            "contextId": self.context_id,
            "taskId": self.task_id,
            "metadata": self.metadata,
            "extensions": self.extensions,
            "referenceTaskIds": self.references,
        }
        message |= {key: value for key, value in optional.items() if value}
        configuration: dict[str, Any] = {"returnImmediately": not wait}
        if push:
            configuration["taskPushNotificationConfig"] = push.as_config()
        if history is not None:
            configuration["historyLength"] = history
        document = {"message": message, "configuration": configuration, "tenant": tenant}
        try:
            return ParseDict(document, SendMessageRequest())
        except ParseError as error:
            raise ValueError(f"This cannot be sent as an A2A message: {error}") from None
