"""Says back what it is told."""

import re
from typing import Any

from pydantic import Field

from agents.conversation import Request
from agents.tools.base import Params, Question, Tool, ToolResult
from agents.tools.grammar import core, quoted, unquote
from agents.turn import Turn
from tasks.results import ArtifactDraft

_EXACT = re.compile(r"^\s*echo\b\s*[:,]?\s*(?P<text>.*)$", re.IGNORECASE | re.DOTALL)
_SAY = re.compile(
    r"\b(?:repeat|say|send|give|return|parrot|echo)\b(?:\s+(?:back|this|that|after me|the following|exactly|to me|it"
    r"|message|text|line|words?|phrase|sentence|word for word))*\s*[:,]?\s+(?P<text>.+)$",
    re.IGNORECASE | re.DOTALL,
)


class EchoParams(Params):
    text: str = Field(default="", description="What to say back, word for word.")


class Echo(Tool[EchoParams]):
    name = "echo"
    description = "Says back exactly the text it is given."
    params = EchoParams
    examples = (
        "Echo hello world",
        "Repeat after me: good morning",
        "Say back exactly what I write",
        "Send this message back to me unchanged",
        "Parrot the following line",
        "Say this text back to me",
        "Repeat exactly what I say",
        "Return my message as it is",
    )
    cues = ("repeat", "echo", "parrot")

    def parse(self, request: Request) -> dict[str, Any] | None:
        found = _EXACT.match(request.text)
        return {"text": unquote(found["text"])} if found else None

    def extract(self, request: Request) -> dict[str, Any]:
        text = request.text.strip()
        if inside := quoted(text):
            return {"text": inside}
        _, colon, after = text.partition(":")
        if colon and after.strip():
            return {"text": after.strip()}
        found = _SAY.search(core(text))
        return {"text": found["text"]} if found else {}

    def complete(self, request: Request) -> dict[str, Any]:
        return {"text": request.text}

    def question(self, params: EchoParams) -> Question | None:
        return None if params.text.strip() else Question("text", "What should I say back?")

    def run(self, turn: Turn, params: EchoParams) -> ToolResult:
        return ToolResult("", [ArtifactDraft("echo", [{"text": params.text}])])
