"""Summarises a text, a file, what is attached, or what an earlier task made."""

import re
from typing import Any

from pydantic import Field

from agents.brain import get_brain
from agents.conversation import Conversation, Request, read_task
from agents.exceptions import ModelError, ToolError
from agents.extract import extract
from agents.points import SUMMARISE, Writing
from agents.tools.base import Params, Question, Risk, Tool, ToolResult
from agents.tools.grammar import (
    LONGEST_COMMAND,
    core,
    looks_like_path,
    path_in,
    unquote,
    without_closing,
    without_opening,
)
from agents.tools.project import check_size, read_text
from agents.tools.read_file import read_attached
from agents.turn import Turn
from tasks.results import ArtifactDraft

DEFAULT_SENTENCES = 5
MAX_SENTENCES = 30
# A message this long, or with this many sentences, is itself the text.
LONG_TEXT = 240
LONGEST_HEAD = 60

_VERB = re.compile(
    r"^(?:summari[sz]e|sum\s+up|tl;?\s?dr|condense|digest"
    r"|(?:give|write|make|get|create|produce|provide)(?:\s+me)?\s+(?:a|an|the)\s+(?:\w+\s+)?summary\s+(?:of|for)"
    r"|(?:a\s+)?(?:\w+\s+)?summary\s+of)\b",
    re.IGNORECASE,
)
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_LENGTH = re.compile(
    rf"\b(?:in|to|with|into)\s+(?:about\s+|at most\s+)?(?P<count>\d{{1,3}}|{'|'.join(_NUMBERS)})"
    r"\s+(?:sentences?|lines?|points?|bullets?|bullet points)\b",
    re.IGNORECASE,
)
_ATTACHED = re.compile(
    r"^(?:(?:the|this|that|these|those|my|an?)\s+)?(?:(?:attached|uploaded|enclosed)\s+)?"
    r"(?:files?|documents?|attachments?|texts?|pdfs?|papers?|reports?|articles?)?"
    r"(?:\s+(?:above|attached|that i (?:attached|uploaded)))?$",
    re.IGNORECASE,
)
_EARLIER = re.compile(
    r"^(?:this|that|it|them|(?:the|your|that|those|these)\s+(?:last\s+|previous\s+|earlier\s+|above\s+)?"
    r"(?:results?|answers?|outputs?|artifacts?|reply|response|findings?|tasks?))$",
    re.IGNORECASE,
)
_TASK = re.compile(r"\b([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\b", re.IGNORECASE)
_FILE = re.compile(
    r"^(?:(?:the|this|my)\s+)?(?:contents?\s+of\s+)?(?:(?:the|this|my)\s+)?(?:file|document)\s+(?P<path>.+)$",
    re.IGNORECASE,
)


class SummarizeParams(Params):
    path: str = Field(default="", description="Path of a file in the project folder.")
    attachments: list[str] = Field(default_factory=list, description="Names of attached files.")
    task: str = Field(default="", description="Id of a finished task whose artifacts are meant.")
    text: str = Field(default="", description="The text itself, word for word.")
    sentences: int = Field(default=DEFAULT_SENTENCES, ge=1, le=MAX_SENTENCES, description="How many sentences at most.")


class Summarize(Tool[SummarizeParams]):
    name = "summarize"
    description = "Summarises a text, a file in the project folder, attached files, or the result of an earlier task."
    hint = "Give exactly one source: path, attachments, task or text."
    params = SummarizeParams
    uses_model = True
    risk = Risk.READS
    examples = (
        "Summarise the file README.md",
        "Summarize this text: the meeting began at nine and ended at ten",
        "Give me a short summary of the attached document",
        "What are the main points of this report?",
        "TL;DR of docs/agents.md",
        "Condense the following paragraphs into three sentences",
        "Sum up what the article says",
        "What are the key points?",
        "Give me the gist of this file",
        "Write a short abstract",
        "A brief summary of the changelog, please",
        "Shorten this text to the essentials",
        "What is this document about, in short?",
    )
    cues = (
        "summary",
        "summarise",
        "summarize",
        "gist",
        "digest",
        "takeaways",
        "key points",
        "main points",
        "main ideas",
        "essentials",
        "short version",
        "abstract",
        "condense",
        "tldr",
    )

    def parse(self, request: Request) -> dict[str, Any] | None:
        text = without_opening(request.text)
        verb = _VERB.match(text)
        if not verb:
            return None
        # What stands behind a colon is the text itself, to its last mark.
        head, colon, after = text[verb.end() :].partition(":")
        if colon and len(head) < LONGEST_HEAD and after.strip():
            return _take_length(head)[1] | {"text": after.strip()}
        rest, params = _take_length(without_closing(text[verb.end() :]))
        source = _source_in(rest.strip(" ,:\n"), request)
        return None if source is None else params | source

    def extract(self, request: Request) -> dict[str, Any]:
        text, params = _take_length(request.text)
        head, colon, after = text.partition(":")
        if colon and len(head) < LONG_TEXT and (len(after) > LONG_TEXT / 2 or "\n" in after.strip()):
            return params | {"text": after.strip()}
        if found := _TASK.search(text):
            return params | {"task": found[1]}
        if path := path_in(text):
            return params | {"path": path}
        if request.attachments:
            return params | {"attachments": _names(request)}
        if is_long(text):
            return params | {"text": text.strip()}
        if request.references:
            return params | {"task": str(request.references[-1])}
        return params

    def complete(self, request: Request) -> dict[str, Any]:
        source = _source_in(core(request.text), request)
        return source if source else {"text": request.text}

    def question(self, params: SummarizeParams) -> Question | None:
        if params.path or params.attachments or params.task or params.text.strip():
            return None
        asked = "What should I summarise? Send the text, attach a file, or name a file such as README.md."
        return Question("text", asked)

    def run(self, turn: Turn, params: SummarizeParams) -> ToolResult:
        name, text = _read(turn, params)
        if not text.strip():
            raise ToolError("no_text", f"{name} is empty; there is nothing to summarise.")
        brain = get_brain()
        failure = ""
        if brain.can_write:
            writing = Writing(Conversation(turn), [(name, text)], {"sentences": params.sentences})
            try:
                written = brain.write(turn, SUMMARISE, writing, "summary")
            except ModelError as error:
                if error.kind == "declined":
                    raise ToolError("declined", str(error)) from None
                failure = f" ({error})"
            else:
                return ToolResult(f"Summary of {name}. {written.remark}".strip(), [written.artifact])
        return _extractive(name, text, params.sentences, failure)


def is_long(text: str) -> bool:
    """Whether the text is more than a request: long, or several lines."""
    return len(text) > LONG_TEXT or text.strip().count("\n") > 2


def _extractive(name: str, text: str, count: int, failure: str) -> ToolResult:
    found = extract(text, count)
    if not found.sentences:
        raise ToolError("no_text", f"{name} has no sentences to choose from: no prose, or too little of it.")
    label = (
        f"Extractive summary: {len(found.sentences)} of {found.total} sentences, word for word; "
        f"no language model was used{failure}."
    )
    body = "\n".join(f"- {sentence}" for sentence in found.sentences)
    draft = ArtifactDraft("summary", [{"text": f"{body}\n"}], description=label, metadata={"method": "extractive"})
    return ToolResult(f"Summary of {name}. {label}", [draft], {"chosen": len(found.sentences), "total": found.total})


def _read(turn: Turn, params: SummarizeParams) -> tuple[str, str]:
    """Name and text of the source. Raises ToolError."""
    if params.path:
        return read_text(params.path)
    if params.attachments:
        texts = [read_attached(turn, name) for name in params.attachments]
        return ", ".join(name for name, _ in texts), "\n\n".join(text for _, text in texts)
    if params.task:
        title, text = read_task(turn, params.task)
        return f"the result of “{title}”", text
    check_size(len(params.text.encode()), "The text")
    return "the text", params.text


def _take_length(text: str) -> tuple[str, dict[str, Any]]:
    """The text without "in three sentences", and what that means."""
    found = _LENGTH.search(text)
    if not found:
        return text, {}
    word = found["count"].lower()
    count = _NUMBERS.index(word) + 1 if word in _NUMBERS else int(word)
    rest = text[: found.start()] + text[found.end() :]
    return rest, {"sentences": min(max(count, 1), MAX_SENTENCES)}


def _source_in(rest: str, request: Request) -> dict[str, Any] | None:
    """What the words behind the verb name, {} when they name nothing, None when they are something else."""
    if len(rest) > LONGEST_COMMAND:
        return {"text": rest}
    if found := _TASK.search(rest):
        return {"task": found[1]}
    if found := _FILE.match(rest):
        path = unquote(found["path"])
        return {"path": path} if looks_like_path(path) or " " not in path else None
    if looks_like_path(unquote(rest)):
        return {"path": unquote(rest)}
    named = [attachment.name for attachment in request.attachments if attachment.name.lower() == unquote(rest).lower()]
    if named:
        return {"attachments": named[-1:]}
    if _ATTACHED.match(rest) or _EARLIER.match(rest):
        return _nearest_source(request)
    return {"text": rest} if is_long(rest) else None


def _nearest_source(request: Request) -> dict[str, Any]:
    if request.attachments:
        return {"attachments": _names(request)}
    if request.references:
        return {"task": str(request.references[-1])}
    return {}


def _names(request: Request) -> list[str]:
    return list(dict.fromkeys(attachment.name for attachment in request.attachments))
