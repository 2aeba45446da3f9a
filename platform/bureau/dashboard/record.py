"""What is on record about one mission, in the shape that its page shows. Reads only.

Whoever calls these has checked that the reader may see the task.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.urls import reverse

from agents.headlines import details, headline, in_words
from agents.models import Decision, ToolCall
from bureau.dashboard import markdown
from directory.identity import Caller
from directory.names import names_of
from tasks.models import Artifact, Event, Message, StoredFile, Task
from tasks.queries import EventRow, events_after, fetch_task

# What each point asks, in a sentence.
ASKED = {
    "clarify": "Is the request clear enough to start on it?",
    "decompose": "Does it take one tool or answer, or a plan?",
    "route": "Is it done here, or refused?",
    "tool": "Which tool does it, with which parameters?",
    "plan": "Which parts does it have, who should do them, and in which order?",
    "allocate": "Which agent gets this part?",
    "follow-up": "Does this message answer what was asked?",
    "recover": "What is to be done about this failure?",
    "synthesise": "What is the one answer, from all results?",
    "confirm": "May it be done, or does a person have to agree first?",
    "fulfil": "What is the answer?",
    "step": "What does this step make?",
    "summarise": "What does the text say, in short?",
}
LOG_LENGTH = 200
# Longer text is for downloading; a browser that lays out a novel at every new sentence helps nobody.
TEXT_LIMIT = 200_000
SHOWN_AS_IMAGE = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
MARKDOWN_TYPES = frozenset({"text/markdown", "text/x-markdown"})


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a message or artifact, ready to be shown. `kind` is text, markdown, data, file, image or link."""

    kind: str
    text: str = ""
    url: str = ""
    filename: str = ""
    media_type: str = ""
    size: int | None = None
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Talk:
    """One message of the conversation.

    `author` is the operator who said it in the owner's place, if one did; `source` the remote agent whose words they
    are.
    """

    id: int
    is_user: bool
    author: str
    parts: list[Part]
    next_questions: list[str]
    created_at: datetime
    source: str = ""


@dataclass(frozen=True, slots=True)
class Deliverable:
    """One artifact, as far as it has come. `source` is the remote agent that made it, if one did."""

    id: uuid.UUID
    name: str
    version: int
    description: str
    parts: list[Part]
    is_complete: bool
    created_at: datetime
    source: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One thing that could have been chosen. `score` is from 0 to 1 where there is one."""

    name: str
    score: float | None
    details: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class Judgement:
    """A decision with what was chosen in a word, its candidates, best first, and the part of the plan it is about."""

    row: Decision
    headline: str
    candidates: list[Candidate]
    asked: str
    about: str

    @property
    def has_scores(self) -> bool:
        return any(candidate.score is not None for candidate in self.candidates)

    @property
    def has_details(self) -> bool:
        return any(candidate.details for candidate in self.candidates)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the log; several chunks of one artifact in a row share it."""

    first: int
    last: int
    kind: str
    at: datetime
    text: str
    state: str = ""
    anchor: str = ""


@dataclass(slots=True)
class Record:
    """All of a mission's page. Each part is one region, and is read again when its kind of event comes in."""

    task: Task
    talk: list[Talk] = field(default_factory=list)
    deliverables: list[Deliverable] = field(default_factory=list)
    decisions: list[Judgement] = field(default_factory=list)
    tool_calls: list[ToolCall] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)


def read_record(task: Task) -> Record:
    """All of it, as of the event `task.last_seq` or a little later. The log never shows more than that."""
    return Record(
        task,
        talk=read_talk(task),
        deliverables=read_deliverables(task),
        decisions=read_decisions(task),
        tool_calls=read_tool_calls(task),
        lines=read_log(task.pk, max(0, task.last_seq - LOG_LENGTH), task.last_seq),
    )


def read_talk(task: Task) -> list[Talk]:
    """The messages both ways, oldest first."""
    messages = list(Message.objects.filter(task=task).order_by("id"))
    sizes = _file_sizes(part for message in messages for part in message.parts)
    names = names_of({message.author for message in messages} - {""})
    return [
        Talk(
            id=message.pk,
            is_user=message.role == Message.Role.USER,
            author=names.get(message.author, ""),
            # What a person typed is shown as typed.
            parts=[_part(part, sizes, is_prose=message.role == Message.Role.AGENT) for part in message.parts],
            next_questions=[str(question) for question in message.metadata.get("nextQuestions", [])],
            created_at=message.created_at,
            source="" if message.role == Message.Role.USER else str(message.metadata.get("untrusted", "")),
        )
        for message in messages
    ]


def read_message(parts: list[dict[str, Any]]) -> list[Part]:
    """The parts of an agent's message, ready to be shown."""
    sizes = _file_sizes(parts)
    return [_part(part, sizes) for part in parts]


def read_deliverables(task: Task) -> list[Deliverable]:
    """The artifacts, with the text that has been streamed so far."""
    view = fetch_task(Caller(task.owner, task.owner), task.pk, history=0, with_artifacts=True)
    if not view.artifacts:
        return []
    rows = Artifact.objects.filter(task=task).in_bulk()
    sizes = _file_sizes(part for artifact in view.artifacts for part in artifact["parts"])
    found = []
    for artifact in view.artifacts:
        row = rows.get(uuid.UUID(artifact["artifactId"]))
        if row is None:
            continue  # written between the two reads; its event brings it
        name = artifact["name"]
        found.append(
            Deliverable(
                id=row.pk,
                name=name,
                version=row.version,
                description=row.description,
                parts=[_part(part, sizes, name) for part in artifact["parts"]],
                is_complete=row.is_complete,
                created_at=row.created_at,
                source=str(row.metadata.get("untrusted", "")),
            )
        )
    return found


def read_decisions(task: Task) -> list[Judgement]:
    """The decisions, oldest first."""
    return [_judgement(row) for row in Decision.objects.filter(task=task).order_by("id")]


def read_tool_calls(task: Task) -> list[ToolCall]:
    """The tool calls, oldest first."""
    return list(ToolCall.objects.filter(task=task).order_by("started_at", "id"))


def read_log(task_id: uuid.UUID, after: int, until: int) -> list[Line]:
    """The lines of the log behind number `after`, up to number `until`."""
    events = events_after(task_id, after, limit=max(0, until - after))
    return to_lines(event for event in events if event.seq <= until)


def _judgement(row: Decision) -> Judgement:
    candidates = [_candidate(row, one) for one in row.candidates if isinstance(one, dict) and one]
    ranked = sorted(candidates, key=lambda one: (one.score is None, -(one.score or 0)))
    about = str(row.inputs.get("sub_plan") or "") if isinstance(row.inputs, dict) else ""
    return Judgement(row, headline(row), ranked, ASKED.get(row.point, ""), about)


def _is_chosen(candidate: dict[str, Any], row: Decision) -> bool:
    """Whether the first field of a candidate is what the choice has under that name."""
    name = next(iter(candidate))
    return name in row.choice and row.choice[name] == candidate[name]


def _candidate(row: Decision, candidate: dict[str, Any]) -> Candidate:
    rest = dict(candidate)
    score = rest.pop("score", None)
    first = next(iter(rest), "")
    name = in_words(row, first, rest.pop(first)) if first else ""
    is_chosen = _is_chosen(candidate, row)
    return Candidate(name, score if isinstance(score, int | float) else None, details(rest), is_chosen)


def to_lines(events: Iterable[EventRow]) -> list[Line]:
    """Events as lines for people; neighbouring chunks of one artifact become one line."""
    events = list(events)
    names = _names_of_acts(events)
    return [_line(list(group), names) for _, group in itertools.groupby(events, key=_group_key)]


def _names_of_acts(events: Iterable[EventRow]) -> dict[str, str]:
    """What the decisions and tool calls that these events point to are called, by their ids."""
    ids: dict[str, list[str]] = {Event.Kind.DECISION: [], Event.Kind.TOOL: []}
    for event in events:
        if event.kind in ids:
            ids[event.kind].append(event.payload["id"])
    names: dict[str, str] = {}
    if ids[Event.Kind.DECISION]:
        rows = Decision.objects.filter(pk__in=ids[Event.Kind.DECISION]).only("point", "choice", "task_id")
        names |= {str(row.pk): f"{row.point}: {headline(row)}".removesuffix(": ") for row in rows}
    if ids[Event.Kind.TOOL]:
        calls = ToolCall.objects.filter(pk__in=ids[Event.Kind.TOOL]).values_list("pk", "tool")
        names |= {str(pk): tool for pk, tool in calls}
    return names


def _group_key(event: EventRow) -> tuple[str, Any]:
    is_chunk = event.kind == Event.Kind.ARTIFACT and not event.payload.get("lastChunk")
    return (event.payload["artifactId"], "") if is_chunk else ("", event.seq)


def _line(events: list[EventRow], names: dict[str, str]) -> Line:
    first, last = events[0], events[-1]
    text, state, anchor = "", "", ""
    match first.kind:
        case Event.Kind.STATUS:
            state = first.payload["state"]
            text = _excerpt(first.payload.get("message"))
        case Event.Kind.MESSAGE:
            text = _excerpt(first.payload.get("message")) or "A message came in."
            if author := first.payload.get("author"):
                text = f"{names_of([author])[author]}, for the owner: {text}"
        case Event.Kind.ARTIFACT:
            text = _describe_artifact(events)
            anchor = f"artifact-{first.payload['artifactId']}"
        case Event.Kind.DECISION | Event.Kind.TOOL:
            key = first.payload["id"]
            text, anchor = names.get(key, "No longer on record."), f"{first.kind}-{key}"
    return Line(first.seq, last.seq, first.kind, last.created_at, text, state, anchor)


def _describe_artifact(events: list[EventRow]) -> str:
    payload = events[0].payload
    name = payload.get("name") or "artifact"
    if payload.get("lastChunk"):
        return f"{name} is complete."
    size = sum(len(part.get("text", "")) for event in events for part in event.payload["parts"])
    return f"{name}: {size:,} more characters." if payload.get("append") else f"{name}: {size:,} characters."


def _excerpt(message: dict[str, Any] | None) -> str:
    if not message:
        return ""
    text = " ".join(" ".join(part.get("text") or part.get("filename") or "" for part in message["parts"]).split())
    return text if len(text) <= 160 else text[:159] + "…"


def _file_sizes(parts: Iterable[dict[str, Any]]) -> dict[str, int]:
    ids = {part["file"] for part in parts if "file" in part}
    if not ids:
        return {}
    return {str(pk): size for pk, size in StoredFile.objects.filter(pk__in=ids).values_list("pk", "size")}


def _is_markdown(name: str, part: dict[str, Any]) -> bool:
    """What the media type says, else what the name says, else what the text looks like."""
    media_type = part.get("mediaType", "")
    if media_type:
        return media_type.partition(";")[0].strip().lower() in MARKDOWN_TYPES
    _, dot, suffix = (part.get("filename") or name).rpartition(".")
    return suffix.lower() in {"md", "markdown"} if dot else markdown.is_likely(part["text"])


def _part(part: dict[str, Any], sizes: dict[str, int], name: str = "", *, is_prose: bool = True) -> Part:
    filename, media_type = part.get("filename", ""), part.get("mediaType", "")
    if "text" in part:
        text = part["text"]
        is_cut = len(text) > TEXT_LIMIT
        kind = "markdown" if is_prose and not is_cut and _is_markdown(name, part) else "text"
        return Part(kind, text[:TEXT_LIMIT], is_cut=is_cut)
    if "data" in part:
        text = json.dumps(part["data"], indent=2, ensure_ascii=False)
        return Part("data", text[:TEXT_LIMIT], is_cut=len(text) > TEXT_LIMIT)
    if "file" in part:
        kind = "image" if media_type in SHOWN_AS_IMAGE else "file"
        url = reverse("file", args=[part["file"]])
        return Part(kind, url=url, filename=filename or "file", media_type=media_type, size=sizes.get(part["file"]))
    url = str(part.get("url", ""))
    is_web = url.startswith(("https://", "http://"))
    return Part("link", text=url, url=url if is_web else "", filename=filename, media_type=media_type)
