"""Writes a text into a new file of the output folder."""

import mimetypes
import re
from typing import Any

from pydantic import Field

from agents.conversation import Request
from agents.tools.base import Params, Question, Risk, Tool, ToolResult
from agents.tools.grammar import LONGEST_COMMAND, core, looks_like_path, unquote, without_opening
from agents.tools.output import describe, save, target_of
from agents.tools.project import human
from agents.turn import Turn
from tasks.files import file_part, store_file
from tasks.results import ArtifactDraft

_HEAD = re.compile(
    r"^(?:write|save|store|put)\s+(?:(?:this|the following)(?:\s+(?:text|note|content))?\s+)?"
    r"(?:in)?to\s+(?:(?:the|a|a new)\s+file\s+)?(?P<path>\S+)\s*:\s*(?P<text>.+)$",
    re.IGNORECASE | re.DOTALL,
)
_QUOTED = re.compile(
    r"^(?:write|save|store|put)\s+(?P<text>\"[^\"]+\"|“[^”]+”|'[^']+')\s+(?:in)?to\s+(?:(?:the|a|a new)\s+file\s+)?"
    r"(?P<path>\S+)$",
    re.IGNORECASE | re.DOTALL,
)


class WriteFileParams(Params):
    path: str = Field(default="", description="Path of the new file, relative to the output folder.")
    text: str = Field(default="", description="The whole text of the file.")


class WriteFile(Tool[WriteFileParams]):
    name = "write_file"
    description = "Writes a given text into a new file of the output folder."
    hint = "Only when both the text and the name of the file are given or were made by an earlier step."
    params = WriteFileParams
    risk = Risk.WRITES
    examples = (
        "Write down what I say: remember the milk",
        "Save the following note on the disk: one, two, three",
        "Keep these lines as a document for me",
        "Store my note, it says hello",
    )

    def parse(self, request: Request) -> dict[str, Any] | None:
        text = without_opening(request.text)
        found = _HEAD.match(text) or (_QUOTED.match(core(text)) if len(text) <= LONGEST_COMMAND else None)
        if not found or not looks_like_path(unquote(found["path"])):
            return None
        return {"path": unquote(found["path"]), "text": unquote(found["text"])}

    def complete(self, request: Request) -> dict[str, Any]:
        words = unquote(core(request.text))
        return {"path": words} if looks_like_path(words) else {"text": request.text}

    def question(self, params: WriteFileParams) -> Question | None:
        if not params.path.strip():
            return Question("path", "Which file should I write? Name it, such as notes.md.")
        return None if params.text.strip() else Question("text", f"What should I write into {params.path}?")

    def act(self, params: WriteFileParams) -> str:
        target = target_of(params.path)
        return "" if target.is_output else describe(target, params.text)

    def run(self, turn: Turn, params: WriteFileParams) -> ToolResult:
        target = target_of(params.path)
        saved = save(target, params.text)
        content = params.text.encode()
        media_type = mimetypes.guess_type(saved.path)[0] or "text/plain"
        part = file_part(store_file(turn.claim.owner, saved.path, media_type, content))
        where = f"{target.root.name}/{saved.path}"
        kept = " The same text was there already." if saved.was_there else ""
        text = f"{where}: {human(len(content))} written.{kept}"
        return ToolResult(text, [ArtifactDraft(saved.path, [part])], {"path": where, "bytes": len(content)})
