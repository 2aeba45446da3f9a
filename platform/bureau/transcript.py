"""A task's events as text in a terminal: the answer on standard output, what is said about it on standard error.

An agent's words may be a stranger's, so nothing in them is obeyed by the terminal.
"""

from __future__ import annotations

import json
import sys
import uuid
from typing import Any

from directory.untrusted import printable
from tasks.models import Event, Task
from tasks.queries import EventRow

UNHAPPY = {
    Task.State.FAILED: "Failed",
    Task.State.REJECTED: "Rejected",
    Task.State.CANCELED: "Canceled",
}
BLOCKED = (Task.State.INPUT_REQUIRED, Task.State.AUTH_REQUIRED)


class Transcript:
    """Prints events one by one, streamed text as it grows. A quiet one prints nothing."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._artifact = ""
        self._at_line_start = True
        self._has_answer = False
        self._is_blocked = False

    def show(self, event: EventRow) -> None:
        if self._quiet:
            return
        if event.kind == Event.Kind.ARTIFACT:
            self._show_artifact(event.payload)
        elif event.kind == Event.Kind.STATUS:
            self._show_status(event.payload["state"], event.payload.get("message"))

    def end(self, task_id: uuid.UUID) -> None:
        """The task has settled."""
        if self._quiet:
            return
        self._end_line()
        if self._is_blocked:
            sys.stderr.write(f"To answer: manage.py ask --task {task_id} '…'\n")

    def _show_artifact(self, payload: dict[str, Any]) -> None:
        if payload["artifactId"] != self._artifact:
            self._end_line()
            self._artifact = payload["artifactId"]
        elif not payload.get("append"):
            self._aside(f"({payload.get('name') or 'The answer'} starts again.)")
        self._has_answer = True
        # Data that comes with a text says the same for programs.
        has_text = any("text" in part for part in payload["parts"])
        for part in payload["parts"]:
            if has_text and "data" in part:
                continue
            if "text" not in part:
                self._end_line()
            self._write(as_text(part))
        if payload.get("lastChunk"):
            self._end_line()

    def _show_status(self, state: str, message: dict[str, Any] | None) -> None:
        text = "\n".join(as_text(part) for part in message["parts"]) if message else ""
        self._is_blocked = state in BLOCKED
        if state in UNHAPPY:
            self._aside(f"{UNHAPPY[Task.State(state)]}: {text}" if text else f"{UNHAPPY[Task.State(state)]}.")
        elif self._is_blocked or (state == Task.State.COMPLETED and not self._has_answer):
            # A question, or an answer that needed no artifact.
            self._write(text)
            self._end_line()
        elif text:
            self._aside(text)

    def _write(self, text: str) -> None:
        if text:
            text = printable(text)
            sys.stdout.write(text)
            sys.stdout.flush()
            self._at_line_start = text.endswith("\n")

    def _end_line(self) -> None:
        if not self._at_line_start:
            self._write("\n")

    def _aside(self, text: str) -> None:
        self._end_line()
        sys.stderr.write(printable(text) + "\n")


def as_text(part: dict[str, Any]) -> str:
    """One part for people: text as it is, data as JSON, a file by its name and where it is."""
    if "text" in part:
        return str(part["text"])
    if "data" in part:
        return json.dumps(part["data"], ensure_ascii=False, indent=2) + "\n"
    name = part.get("filename") or "file"
    where = part.get("url") or f"file {part.get('file', '')}".strip()
    kind = f", {part['mediaType']}" if part.get("mediaType") else ""
    return f"[{name}{kind}: {where}]\n"
