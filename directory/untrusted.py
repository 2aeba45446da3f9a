"""Text that a stranger wrote, made fit to be stored and shown. What it says stays untrusted all the same."""

import json
import re
from typing import Any

# What no database keeps (NUL, lone surrogates), what turns text around (bidirectional controls), and what
# nobody can see but a model reads (tag characters, invisible operators).
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_INVISIBLE = re.compile(
    "[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
_RETURN = re.compile("\r\n?")
# What `json.dumps` leaves as it is of these.
_OBEYED = re.compile(f"{_UNSTORABLE.pattern}|{_INVISIBLE.pattern}")
MAX_DEPTH = 50


def clean_text(text: str, limit: int) -> str:
    """Without what cannot be stored or seen, and cut to `limit` characters."""
    text = _INVISIBLE.sub("", _UNSTORABLE.sub("\ufffd", text)).strip()
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def clean_line(text: str, limit: int) -> str:
    """The same, on one line."""
    return clean_text(" ".join(text.split()), limit)


def clean_card(value: Any, *, max_text: int = 2000, max_items: int = 100, depth: int = 0) -> Any:
    """A tree of JSON with short clean text, short lists and no deep nesting; what is too much is left out."""
    if isinstance(value, str):
        return clean_text(value, max_text)
    if isinstance(value, dict):
        if depth >= 12:
            return {}
        items = list(value.items())[:max_items]
        return {clean_line(key, 200): clean_card(item, max_text=max_text, depth=depth + 1) for key, item in items}
    if isinstance(value, list):
        if depth >= 12:
            return []
        return [clean_card(item, max_text=max_text, depth=depth + 1) for item in value[:max_items]]
    return value


def storable(value: Any, depth: int = 0) -> Any:
    """A tree of JSON that every database keeps, otherwise as it came. Raises ValueError when nested too deeply."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {storable(key): storable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [storable(item, depth + 1) for item in value]
    return value


def shorten(value: Any, limit: int) -> Any:
    """A tree of JSON whose text, all together, has about `limit` characters at most: for keeping a record of it."""
    left = limit

    def cut(item: Any) -> Any:
        nonlocal left
        if isinstance(item, str):
            taken = item if len(item) <= left else item[: max(left, 0)] + "…"
            left -= len(taken)
            return taken
        if isinstance(item, dict):
            return {key: cut(inner) for key, inner in item.items()}
        if isinstance(item, list):
            return [cut(inner) for inner in item if left > 0]
        return item

    return cut(value)


def printable(text: str) -> str:
    """Without what a terminal would obey (escape sequences) or could not show; line breaks and tabs stay.

    A carriage return alone would have the rest of a line written over its beginning, so it is a line break.
    """
    return _INVISIBLE.sub("", _UNSTORABLE.sub("\ufffd", _RETURN.sub("\n", text)))


def json_text(value: Any, **options: Any) -> str:
    """JSON for a terminal or a log: readable in any language, with what `printable` takes away as \\u escapes."""
    return _OBEYED.sub(_escaped, json.dumps(value, ensure_ascii=False, **options))


def _escaped(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1].replace("\x7f", "\\u007f")
