"""What the tools' grammars have in common: polite words, paths, and the explicit form `:tool NAME {…}`."""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tasks.content import read_json

# Patterns are tried on so much text only: a message may have megabytes, and some of them take their time on it.
LONGEST_COMMAND = 1000
LONGEST_CLOSING = 100
LOOKED_AT = 4000

_OPENING = re.compile(
    r"^(?:(?:hey|hi|hello|ok|okay|now|so|and|then|please|kindly|bureau|assistant"
    r"|can you|could you|would you|will you|i want you to|i need you to|i(?:'d| would) like you to|let's"
    r"|go ahead and)\b[\s,!.:]*)+",
    re.IGNORECASE,
)
# A full stop counts as an end only behind a word: `list files in .` means the folder.
_CLOSING = re.compile(
    r"(?:[\s,]+(?:please|thanks|thank you|for me|now|at once)\b|(?<=[\w\"'`”»)\]])\.+|[!?\s])+$", re.IGNORECASE
)
_QUOTED = re.compile(
    r"\"([^\"\n]{1,1000})\"|'([^'\n]{1,1000})'|`([^`\n]{1,1000})`|“([^“”\n]{1,1000})”|«([^«»\n]{1,1000})»"
)
# Something with an extension, or with a slash in it that is not an address.
_PATH = re.compile(
    r"(?<![\w:/.@+-])((?:\.{1,2}/|/|~/)?(?:[\w@+.-]+/)*[\w@+-][\w@+.-]*\.[A-Za-z0-9]{1,8}"
    r"|(?:\.{1,2}/|/|~/)?(?:[\w@+.-]+/)+[\w@+.-]*)(?![\w/])"
)
_FILE_NAME = re.compile(r"[\w@+-][\w@+.-]*\.[A-Za-z0-9]{1,8}")
# What has the looks of a path and is none: abbreviations, figures, pairs of words, addresses.
_NO_PATH = re.compile(
    r"(?:e\.g|i\.e|a\.m|p\.m|u\.s|[\d./]+|(?:and|either)/or|s?he/s?he|his/hers?|yes/no|i/o|n/a|w/o|[^/]+@[^/]+)\.?",
    re.IGNORECASE,
)
# Names that everybody knows to be files, though they have no extension.
_WELL_KNOWN = re.compile(r"\b(README|LICEN[CS]E|Makefile|Dockerfile|CHANGELOG|CONTRIBUTING|NOTICE)\b")
_KNOWN_WORD = re.compile(_WELL_KNOWN.pattern, re.IGNORECASE)
# Behind what joins two clauses: acts that no looking tool does along the way.
_MORE = re.compile(
    r"(?:[,;.!]\s+|\b(?:and|then|but|also|finally|afterwards|next)\b[\s,]+)"
    r"(?:(?:and|then|also|finally|afterwards|next|after that|please)\b[\s,]+)*"
    r"(?P<act>(?:translate|convert|compare|count|fix|correct|improve|rewrite|rephrase|proofread|e-?mail|mail|send|post"
    r"|publish|upload|download|delete|remove|rename|move|copy|edit|change|replace|update|append|add|insert|run|execute"
    r"|start|stop|restart|deploy|install|commit|push|merge|check|test|verify|review|analy[sz]e|sort|calculate|compute"
    r"|answer|ask|call|book|order|buy|remind|write|save|store|put|create|make|draw)\b.*)",
    re.IGNORECASE | re.DOTALL,
)
# What a summary may be asked for in other words.
_TOLD = re.compile(
    r"(?:[,;.!]\s+|\b(?:and|then)\b[\s,]+)(?:(?:and|then|also|please)\b[\s,]+)*(?P<act>(?:tell|explain|describe)\b.*)",
    re.IGNORECASE | re.DOTALL,
)
_JOINED = re.compile(
    r"(?:[,;&]|\b(?:and|or|plus|with))\s*(?:also\s+)?(?:the\s+)?(?:(?:file|folder)s?\s+)?$", re.IGNORECASE
)
_EXPLICIT = re.compile(r"^\s*:tool\s+(?P<name>[\w-]+)\s*(?P<rest>.*)$", re.DOTALL)


def without_opening(text: str) -> str:
    """The request without its polite beginning."""
    return _OPENING.sub("", text.strip(), count=1)


def without_closing(text: str) -> str:
    """The request without its polite end and its last mark."""
    return text[:-LONGEST_CLOSING] + _CLOSING.sub("", text[-LONGEST_CLOSING:])


def core(text: str) -> str:
    """The request without its polite beginning and end."""
    return without_closing(without_opening(text))


def command(text: str) -> str:
    """The core of a request that may be a command: one line of bearable length, else ""."""
    stripped = text.strip()
    return "" if len(stripped) > LONGEST_COMMAND or "\n" in stripped else core(stripped)


def unquote(text: str) -> str:
    """The text without one pair of quotation marks around all of it."""
    found = _QUOTED.fullmatch(text.strip())
    return next(group for group in found.groups() if group) if found else text.strip()


def quoted(text: str) -> str:
    """The first thing in quotation marks, or ""."""
    found = _QUOTED.search(text[:LOOKED_AT])
    return next(group for group in found.groups() if group) if found else ""


def path_in(text: str) -> str:
    """The first thing in the text that is a path by its looks, or ""."""
    text = text[:LOOKED_AT]
    if (inside := quoted(text)) and looks_like_path(inside.replace(" ", "_")):
        return inside
    for found in _PATH.finditer(text):
        if not _NO_PATH.fullmatch(found[1]):
            return found[1].rstrip(".")
    known = _WELL_KNOWN.search(text)
    return known[1] if known else ""


def _second_path(text: str) -> str:
    """A path that is joined to an earlier one by "and" or a comma, or ""."""
    spans = [found for found in _QUOTED.finditer(text) if looks_like_path(unquote(found[0]).replace(" ", "_"))]
    spans += [found for found in _PATH.finditer(text) if not _NO_PATH.fullmatch(found[1])]
    spans += list(_WELL_KNOWN.finditer(text))
    spans.sort(key=lambda found: (found.start(), -found.end()))
    for first, found in pairwise(spans):
        if (
            found.start() >= first.end()
            and _JOINED.search(text[first.end() : found.start()])
            and found[0] != spans[0][0]
        ):
            return unquote(found[0])
    return ""


def left_over(text: str, *, is_summary: bool = False) -> str:
    """What a request wants besides one look at one thing: a second act, or a second path; "" when it wants no more."""
    text = text[:LOOKED_AT]
    if found := _MORE.search(_QUOTED.sub("it", text)) or (not is_summary and _TOLD.search(text)):
        return found["act"].strip(" .!?")
    return _second_path(text)


def looks_like_path(text: str) -> bool:
    """Whether the whole text can only be meant as a path."""
    return bool(_PATH.fullmatch(text) or _WELL_KNOWN.fullmatch(text)) and not _NO_PATH.fullmatch(text)


def names_file(path: str) -> bool:
    """Whether a path is that of a file by its looks: a name with an extension, or a well-known one."""
    name = path.rstrip("/").rpartition("/")[2]
    return bool(_FILE_NAME.fullmatch(name) or _WELL_KNOWN.fullmatch(name))


def mask(text: str) -> str:
    """The text with "this file", "this folder" or "this text" in place of the paths and quotations in it."""

    def instead(found: re.Match[str]) -> str:
        if _NO_PATH.fullmatch(found[1]):
            return found[0]
        return "this file" if names_file(found[1]) else "this folder"

    def instead_of_quotation(found: re.Match[str]) -> str:
        return "this file" if looks_like_path(unquote(found[0])) else "this text"

    return _KNOWN_WORD.sub("this file", _PATH.sub(instead, _QUOTED.sub(instead_of_quotation, text)))


@dataclass(frozen=True, slots=True)
class Explicit:
    """`:tool NAME {…}`. `problem` says what is wrong with the part after the name, if anything."""

    name: str
    params: dict[str, Any]
    problem: str = ""


def explicit_form(text: str) -> Explicit | None:
    """The explicit form, or None when the text is not one."""
    found = _EXPLICIT.match(text)
    if not found:
        return None
    name, rest = found["name"].replace("-", "_"), found["rest"].strip()
    if not rest:
        return Explicit(name, {})
    try:
        params = read_json(rest)
    except ValueError as error:
        return Explicit(name, {}, f"What follows :tool {name} is not JSON ({error}).")
    if not isinstance(params, dict):
        return Explicit(name, {}, f"What follows :tool {name} must be a JSON object, such as {{}}.")
    return Explicit(name, params)
