"""Shows the text of one file of the project folder, or of the files that came with the message."""

import mimetypes
import re
from typing import Any

from django.conf import settings
from pydantic import Field

from agents.conversation import Conversation, Request, read_attachment
from agents.exceptions import ToolError
from agents.tools.base import Params, Question, Risk, Tool, ToolResult
from agents.tools.grammar import command, core, looks_like_path, path_in, unquote
from agents.tools.project import as_text, human, read_text
from agents.turn import Turn
from tasks.files import file_part, store_file
from tasks.results import ArtifactDraft

_EXACT = re.compile(
    r"^(?:read|show|open|print|cat|display|view)(?:\s+(?:me|out))?(?:\s+(?:the\s+)?(?:full\s+)?(?:contents?|text)\s+of)?"
    r"\s+(?:the\s+)?(?:(?P<file>file)\s+)?(?P<path>.+?)(?:\s+file)?$",
    re.IGNORECASE,
)
_WITHOUT_PATH = re.compile(
    r"^(?:read|show|open|print|display|view)(?:\s+me)?(?:\s+(?:the\s+)?contents?\s+of)?\s+(?:a|the|my|this|that|some)?\s*"
    r"(?P<attached>attached\s+|uploaded\s+)?(?:files?|document|attachments?)$",
    re.IGNORECASE,
)


class ReadFileParams(Params):
    path: str = Field(default="", description="Path of the file, relative to the project folder.")
    attachments: list[str] = Field(
        default_factory=list, description="Names of attached files to show, instead of a path."
    )


class ReadFile(Tool[ReadFileParams]):
    name = "read_file"
    description = "Shows the text of a file in the project folder, or of a file attached to the message."
    hint = "Leave path empty if the user did not name a file; then the user is asked."
    params = ReadFileParams
    risk = Risk.READS
    examples = (
        "Read the file README.md",
        "Show me the contents of pyproject.toml",
        "Open docs/agents.md",
        "What is written in the Makefile?",
        "Print the configuration file",
        "Let me see the text of the attached document",
        "What does settings.py say?",
        "Display the text of this document",
        "I want to see the file itself",
        "Let me look into the settings file",
        "Get me the full content of this file",
        "Open the licence",
    )
    cues = ("contents", "content")

    def parse(self, request: Request) -> dict[str, Any] | None:
        text = command(request.text)
        if _WITHOUT_PATH.match(text):
            return {"attachments": _names(request)} if request.attachments else {}
        found = _EXACT.match(text)
        if not found:
            return None
        path = unquote(found["path"])
        return {"path": path} if found["file"] or looks_like_path(path) else None

    def extract(self, request: Request) -> dict[str, Any]:
        if path := path_in(request.text):
            return {"path": path}
        return {"attachments": _names(request)} if request.attachments else {}

    def complete(self, request: Request) -> dict[str, Any]:
        return self.extract(request) or {"path": unquote(core(request.text))}

    def question(self, params: ReadFileParams) -> Question | None:
        if params.path.strip() or params.attachments:
            return None
        return Question("path", "Which file should I read? Name its path in the project folder, such as README.md.")

    def run(self, turn: Turn, params: ReadFileParams) -> ToolResult:
        if params.attachments:
            texts = [read_attached(turn, name) for name in params.attachments]
        else:
            texts = [read_text(params.path)]
        told = [f"{name}: {text.count(chr(10)) + 1} lines, {human(len(text.encode()))}." for name, text in texts]
        return ToolResult("\n".join(told), [_artifact(turn, name, text) for name, text in texts])


def read_attached(turn: Turn, name: str) -> tuple[str, str]:
    """Name and text of an attached file. Raises ToolError."""
    attachments = Conversation(turn).newest.attachments
    attachment = next((attachment for attachment in reversed(attachments) if attachment.name == name), None)
    if attachment is None:
        known = ", ".join(attachment.name for attachment in attachments) or "none"
        raise ToolError("file_not_found", f"No file {name} is attached. Attached: {known}.")
    return name, as_text(read_attachment(turn, attachment), name)


def _names(request: Request) -> list[str]:
    return list(dict.fromkeys(attachment.name for attachment in request.attachments))


def _artifact(turn: Turn, name: str, text: str) -> ArtifactDraft:
    content = text.encode()
    if len(content) <= settings.BUREAU_INLINE_BYTES:
        return ArtifactDraft(name, [{"text": text}])
    media_type = mimetypes.guess_type(name)[0] or "text/plain"
    return ArtifactDraft(name, [file_part(store_file(turn.claim.owner, name, media_type, content))])
