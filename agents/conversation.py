"""What the people of a task have asked for: their messages with what is attached and referred to."""

import uuid
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agents.dialogue import without_control
from agents.exceptions import ToolError
from agents.turn import Turn
from tasks import files, queries
from tasks.content import read_json, text_of
from tasks.exceptions import TaskNotFound
from tasks.models import Message


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that came with a message; `part` says where its bytes are."""

    name: str
    media_type: str
    part: dict[str, Any]


@dataclass(frozen=True)
class Request:
    """One message from the user. Attachments are all that came so far: a later message may mean an earlier file."""

    text: str
    data: dict[str, Any] | None
    attachments: tuple[Attachment, ...]
    references: tuple[uuid.UUID, ...]


class Conversation:
    """The messages of a task as an agent reads them. `requests` is never empty; the last one is the newest."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self.messages = without_control(turn.messages)

    @property
    def references(self) -> tuple[uuid.UUID, ...]:
        """The tasks that this one refers to."""
        return self._turn.references

    @cached_property
    def requests(self) -> list[Request]:
        """The user's messages, oldest first."""
        found: list[Request] = []
        attachments: tuple[Attachment, ...] = ()
        for message in self.messages:
            if message["role"] == Message.Role.USER:
                attachments += tuple(_attachments(message["parts"]))
                found.append(Request(text_of(message["parts"]), _data(message["parts"]), attachments, self.references))
        return found

    @property
    def newest(self) -> Request:
        return self.requests[-1]

    @property
    def number(self) -> int:
        """How many messages the user has sent. Names acts and choices: it is the same when a turn is run again."""
        return len(self.requests)


def request_from_text(text: str) -> Request:
    """A request of words alone."""
    return Request(text, None, (), ())


def _attachments(parts: list[dict[str, Any]]) -> list[Attachment]:
    kept = [part for part in parts if "file" in part or "url" in part]
    return [
        Attachment(part.get("filename") or f"file {number}", part.get("mediaType", ""), part)
        for number, part in enumerate(kept, 1)
    ]


def _data(parts: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The JSON object of the message: a data part, or a text that is one."""
    for part in parts:
        if isinstance(part.get("data"), dict):
            return dict(part["data"])
    text = text_of(parts).strip()
    if text.startswith("{") and text.endswith("}"):
        try:
            value = read_json(text)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None
    return None


def read_attachment(turn: Turn, attachment: Attachment) -> bytes:
    """The bytes of an attached file. Raises ToolError: it is an address, or not the caller's."""
    if "file" not in attachment.part:
        raise ToolError(
            "not_fetched", f"{attachment.name} is an address, and addresses are not fetched. Attach the file itself."
        )
    try:
        return files.read_file(files.fetch_file(turn.caller, attachment.part["file"]))
    except (TaskNotFound, FileNotFoundError):
        raise ToolError("file_not_found", f"The attached file {attachment.name} is no longer there.") from None


def read_task(turn: Turn, task_id: str) -> tuple[str, str]:
    """Title and text of a finished task's artifacts. Raises ToolError: unknown, unfinished, or without text."""
    try:
        view = queries.fetch_task(turn.caller, task_id, history=0)
    except TaskNotFound:
        raise ToolError("task_not_found", f"There is no task {task_id} of yours.") from None
    if not view.is_terminal:
        raise ToolError("task_not_finished", f"Task {task_id} is not finished yet.")
    texts = [text_of(artifact["parts"]) for artifact in view.artifacts]
    texts += [stored_text(turn, part) for artifact in view.artifacts for part in artifact["parts"] if "file" in part]
    text = "\n\n".join(text for text in texts if text.strip())
    if not text:
        raise ToolError("no_text", f"Task {task_id} left no text to work on.")
    return view.title, text


def stored_text(turn: Turn, part: dict[str, Any]) -> str:
    """The text of a stored file that a part refers to; "" when it is none, or gone."""
    try:
        return files.read_file(files.fetch_file(turn.caller, part["file"])).decode()
    except (TaskNotFound, FileNotFoundError, UnicodeDecodeError):
        return ""
