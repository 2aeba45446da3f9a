"""Lists what is in the project folder."""

import re
from itertools import islice
from typing import Any

from pydantic import Field

from agents.conversation import Request
from agents.tools.base import Params, Risk, Tool, ToolResult
from agents.tools.grammar import LONGEST_COMMAND, command, core, names_file, path_in, quoted, unquote
from agents.tools.project import MAX_DEPTH, Entry, entries, human
from agents.turn import Turn
from tasks.results import ArtifactDraft

SHOWN = 200
# Beyond this it is no longer worth counting.
COUNTED = 20_000

_COMMAND = re.compile(
    r"^(?:(?:list|show|display|give)(?:\s+me)?(?:\s+(?:all|the|of|my|project))*\s+"
    r"(?:files|folders|directory|contents?)(?:\s+and\s+(?:folders|files))?|ls|dir)\b",
    re.IGNORECASE,
)
_PLACE = re.compile(r"^(?:(?:in|of|under|inside|from)\s+)?(?:the\s+)?(?:(?:folder|directory)\s+)?", re.IGNORECASE)
_PLACE_END = re.compile(r"\s+(?:folder|directory)$", re.IGNORECASE)
_MATCHING = re.compile(r"(?:^|\s+)matching\s+(?P<pattern>\S+)", re.IGNORECASE)
_DEPTH = re.compile(r"(?:^|\s+)(?:(?:to\s+)?depth\s+(?P<depth>\d+)|recursively)$", re.IGNORECASE)
_ROOT = {
    "",
    ".",
    "./",
    "here",
    "this",
    "root",
    "project",
    "this project",
    "the project",
    "project folder",
    "project root",
}
_FOLDER = re.compile(
    r"\b(?:in|inside|under|of|from)\s+(?:the\s+)?(?:(?:folder|directory)\s+)?(?P<dir>[\w./-]+)",
    re.IGNORECASE,
)
_NAMED = re.compile(r"\b(?:the\s+)?(?P<dir>[\w./-]+)\s+(?:folder|directory)\b", re.IGNORECASE)
_BY_NAME = re.compile(r"\b(?:names?|named|called|matching)\b", re.IGNORECASE)
_GLOB = re.compile(r"(?<!\S)(?P<glob>[\w./-]*\*[\w./*-]*)")
_WORDS = {"the", "a", "an", "this", "that", "project", "my", "our", "which", "what", "it", "files", "all", "there"}
_EXTENSIONS = {
    "python": "py", "markdown": "md", "html": "html", "javascript": "js", "css": "css", "json": "json", "yaml": "y*ml",
    "toml": "toml", "text": "txt",
}  # fmt: skip
_KIND = re.compile(rf"\b({'|'.join(_EXTENSIONS)})\s+(?:files|documents)", re.IGNORECASE)


class ListFilesParams(Params):
    directory: str = Field(default="", description="Folder relative to the project folder; empty for that itself.")
    pattern: str = Field(default="", description="Glob such as *.py, matched against names and paths; empty for all.")
    depth: int = Field(
        default=0, ge=0, le=MAX_DEPTH, description="How many levels to go down; 0: one, or all if there is a pattern."
    )


class ListFiles(Tool[ListFilesParams]):
    name = "list_files"
    description = "Lists the files and folders in the project folder, or in a folder of it."
    params = ListFilesParams
    risk = Risk.READS
    examples = (
        "List files",
        "List the files in docs",
        "Which files are in the project?",
        "Show me the folder structure",
        "What is in the tests directory?",
        "Find all Python files",
        "ls -l",
        "Are there any markdown files here?",
        "What is inside this folder?",
        "Are there files of that type?",
        "Look for files by name",
        "Give me an overview of the directory tree",
    )
    cues = ("files", "folders", "folder", "directory", "listing")

    def parse(self, request: Request) -> dict[str, Any] | None:
        text = command(request.text)
        found = _COMMAND.match(text)
        if not found:
            return None
        rest = text[found.end() :]
        params: dict[str, Any] = {}
        if found := _DEPTH.search(rest):
            params["depth"] = min(max(int(found["depth"] or MAX_DEPTH), 1), MAX_DEPTH)
            rest = rest[: found.start()]
        if found := _MATCHING.search(rest):
            params["pattern"] = unquote(found["pattern"])
            rest = rest[: found.start()] + rest[found.end() :]
        place = _place_in(rest.strip())
        return None if place is None else params | place

    def extract(self, request: Request) -> dict[str, Any]:
        text = core(request.text[:LONGEST_COMMAND])
        params: dict[str, Any] = {}
        if found := _GLOB.search(text):
            params["pattern"] = found["glob"]
        elif kind := _KIND.search(text):
            params["pattern"] = f"*.{_EXTENSIONS[kind[1].lower()]}"
        inside = quoted(text)
        if inside and "/" not in inside and _BY_NAME.search(text):
            params["pattern"] = inside if "*" in inside else f"*{inside}*"
        elif inside := inside or _directory_in(text):
            params["directory"] = inside
        return params

    def run(self, turn: Turn, params: ListFilesParams) -> ToolResult:
        depth = params.depth or (MAX_DEPTH if params.pattern else 1)
        found: list[Entry] = []
        more = 0
        for entry in islice(entries(params.directory, params.pattern, depth), COUNTED):
            if len(found) < SHOWN:
                found.append(entry)
            else:
                more += 1
                if more % SHOWN == 0:
                    turn.check()
        where = params.directory.strip("/") or "the project folder"
        lines = [_line(entry) for entry in found] or ["(nothing)"]
        if more:
            at_least = "at least " if len(found) + more == COUNTED else ""
            lines.append(f"and {at_least}{more} more")
        data = {
            "directory": params.directory or ".",
            "entries": [{"path": entry.path, "kind": entry.kind, "size": entry.size} for entry in found],
            "more": more,
        }
        total = len(found) + more
        text = f"{total} {'entry' if total == 1 else 'entries'} in {where}."
        return ToolResult(text, [ArtifactDraft("files", [{"text": "\n".join(lines)}, {"data": data}])], data)


def _line(entry: Entry) -> str:
    if entry.kind == "folder":
        return f"{entry.path}/"
    if entry.kind == "file":
        return f"{entry.path}  {human(entry.size)}"
    return f"{entry.path}  ({'symbolic link, not followed' if entry.kind == 'link' else 'not an ordinary file'})"


def _place_in(rest: str) -> dict[str, Any] | None:
    """What the words behind the command name: a folder, a glob, nothing; None when they are something else."""
    place = unquote(_PLACE_END.sub("", _PLACE.sub("", rest)))
    if place.lower() in _ROOT or place.startswith("-"):
        return {}
    if "*" in place:
        return {"pattern": place}
    if names_file(place) or (" " in place and "/" not in place):
        return None
    return {"directory": place}


def _directory_in(text: str) -> str:
    for form in (_NAMED, _FOLDER):
        for found in form.finditer(text):
            if found["dir"].lower() not in _WORDS:
                return found["dir"].strip("/")
    path = path_in(text)
    return path.rstrip("/") if path.endswith("/") else ""
