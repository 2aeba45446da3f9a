"""What a message may hold, checked once where it comes in, and cleaned where an agent made it."""

import json
import math
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tasks.exceptions import InvalidMessage

# PostgreSQL stores neither in text or jsonb; SQLite would, and could not be migrated later.
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
MAX_PARTS = 100
MAX_REFERENCES = 100
MAX_DEPTH = 50
MAX_ID = 255
TITLE_LENGTH = 120


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message on its way in: parts are A2A 1.0 ProtoJSON dicts, files already `{"file": id}`."""

    parts: list[dict[str, Any]]
    message_id: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    extensions: list[str] = field(default_factory=list)
    references: list[str] = field(default_factory=list)

    @classmethod
    def from_text(cls, text: str, *more: dict[str, Any], references: list[str] | None = None) -> "Incoming":
        parts = [{"text": text}, *more] if text else list(more)
        return cls(parts=parts, message_id=str(uuid.uuid4()), references=references or [])

    def check(self) -> None:
        """Raises InvalidMessage with the reason, in words for the sender."""
        if not self.parts:
            raise InvalidMessage("A message needs at least one part.")
        if len(self.parts) > MAX_PARTS:
            raise InvalidMessage(f"A message may have {MAX_PARTS} parts at most.")
        if len(self.references) > MAX_REFERENCES:
            raise InvalidMessage(f"A message may refer to {MAX_REFERENCES} tasks at most.")
        if len(self.message_id) > MAX_ID:
            raise InvalidMessage(f"A message id may have {MAX_ID} characters at most.")
        check_storable([self.parts, self.message_id, self.metadata, self.extensions], "The message")


def check_storable(value: Any, what: str) -> None:
    """Raises InvalidMessage where no database could keep the value: NUL, lone surrogates, deep nesting."""
    for text, depth in _walk(value, 0):
        if depth > MAX_DEPTH:
            raise InvalidMessage(f"{what} is nested more than {MAX_DEPTH} levels deep.")
        if UNSTORABLE.search(text):
            raise InvalidMessage(f"{what} holds a NUL character or a lone surrogate, which cannot be stored.")


def read_json(text: str) -> Any:
    """The JSON in a text that somebody wrote. Raises ValueError: it is none, or cannot be stored."""
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        check_storable(value, "It")
    except (RecursionError, InvalidMessage) as error:
        raise ValueError(str(error)) from None
    return value


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large")
    return number


def clean(value: Any) -> Any:
    """The same value with what no database keeps replaced, by U+FFFD or null; for what agents made."""
    if isinstance(value, str):
        return UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return value


def text_of(parts: list[dict[str, Any]]) -> str:
    """The text parts, a line each."""
    return "\n".join(part["text"] for part in parts if "text" in part)


def title_of(parts: list[dict[str, Any]]) -> str:
    """One line that tells people which mission this is."""
    line = " ".join(text_of(parts).split()) or next((part["filename"] for part in parts if part.get("filename")), "")
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1] + "…"


def _walk(value: Any, depth: int) -> Iterator[tuple[str, int]]:
    """Every string with its depth. Stops going down just past the limit, so that depth cannot overflow."""
    if isinstance(value, str):
        yield value, depth
    elif depth > MAX_DEPTH:
        yield "", depth
    elif isinstance(value, dict):
        for key, item in value.items():
            yield str(key), depth
            yield from _walk(item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _walk(item, depth + 1)
