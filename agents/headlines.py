"""What a decision chose, in a few words: for its line on the page, in the log and in the admin."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from markdown_it import MarkdownIt

from agents.models import Decision

LONGEST = 160
# A field that is true or false, in words for each.
EITHER = {
    "is_clear": ("clear enough", "not clear enough"),
    "needs_plan": ("needs a plan", "needs no plan"),
}
COUNTED = {"sub_plans": "part", "characters": "character"}
WORDS = {
    "local": "done here",
    "reject": "refused",
    "proceed": "go ahead",
    "ask": "ask first",
    "retry_modified": "retry in another way",
}


def headline(row: Decision) -> str:
    """The first thing that a choice says is what it is about: {"tool": "echo", "params": …} is "echo"."""
    for name, value in row.choice.items():
        if isinstance(value, dict) or value in ("", None, []):
            continue
        return cut(in_words(row, name, value))
    return ""


def in_words(row: Decision, name: str, value: Any) -> str:
    """One field of a choice or of a candidate."""
    if isinstance(value, bool):
        yes, no = EITHER.get(name, (f"{_spaced(name)}: yes", f"{_spaced(name)}: no"))
        return yes if value else no
    if isinstance(value, list) or name in COUNTED:
        number = len(value) if isinstance(value, list) else value
        one = COUNTED.get(name)
        return f"{number:,} {one}{'' if number == 1 else 's'}" if one else f"{number} {_spaced(name)}"
    if name == "agent":
        return _agent(row, str(value))
    if name == "final_answer":
        return plain(str(value))
    return WORDS.get(str(value), str(value))


def details(values: Mapping[str, Any]) -> str:
    """The rest of what a candidate says."""
    said = [f"{_spaced(key)}: {value}" for key, value in values.items() if value not in ("", None) and key != "why"]
    return "; ".join([str(values["why"]), *said] if values.get("why") else said)


def plain(text: str) -> str:
    """The words of Markdown in one line, without its signs."""
    pieces = [token.children or [] for token in _parser().parse(text) if token.type == "inline"]
    lines = ("".join(" " if one.type.endswith("break") else one.content for one in piece) for piece in pieces)
    return " ".join(" ".join(lines).split())


def cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _agent(row: Decision, slug: str) -> str:
    """An agent that was made for the mission has part of the mission's id in its name, which tells nobody anything."""
    role, mark, _ = slug.partition(f"-{row.task_id.hex[:12]}")
    return f"{role}, made for this mission" if mark else slug


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("js-default")


def _spaced(name: str) -> str:
    return name.replace("_", " ")
