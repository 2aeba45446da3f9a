"""Requests of several acts in one sentence, read by the built-in rules: every clause must be one that they know.

"List the files of this project, read README.md, and write a summary of it to summary.md" becomes steps with tools.
Acts that work on each other's results make one deliverable, and so one sub-plan; the others stand by themselves.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from agents.conversation import request_from_text
from agents.exceptions import ToolError
from agents.rules import read_request
from agents.tools.base import Tool
from agents.tools.grammar import LONGEST_COMMAND, core, looks_like_path, path_in, unquote
from tasks.delegation import StepDraft, SubPlanDraft

_VERBS = (
    "list|show|display|read|open|print|cat|view|summari[sz]e|sum up|condense|write|save|store|put|find|give me|tell me|"
    "look for|ls|make|create"
)
_BETWEEN = re.compile(
    r"(?:[,;.]\s+(?:and\s+)?|\s+and\s+)?(?:(?:then|finally|after that|afterwards|next|also)[\s,]+)?"
    rf"(?<=\s)(?=(?:{_VERBS})\b)",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(r"[,;.]|\b(?:and|then|finally|after that|afterwards|next|also)\b", re.IGNORECASE)
_WRITE = re.compile(
    r"^(?:write|save|store|put|make|create)\s+(?P<what>.+?)\s+(?:(?:in)?to|in|as)\s+"
    r"(?:(?:the|a|a new)\s+)?(?:file\s+)?(?:(?:called|named)\s+)?(?P<path>\S+)$",
    re.IGNORECASE | re.DOTALL,
)
_SUMMARY = re.compile(
    r"^(?:(?:a|the|your)\s+)?(?:(?:short|brief|quick)\s+)?summary(?:\s+of\s+(?P<of>.+?))?(?P<length>\s+in\s+.+)?$",
    re.IGNORECASE,
)
_EARLIER = re.compile(
    r"^(?:it|this|that|them|(?:the|that|this|these|those)\s+(?:file|text|document|contents?|result|results|output|list|"
    r"listing|summary|answer))$",
    re.IGNORECASE,
)
_ALL = re.compile(r"^(?:everything|all of (?:it|them|this|that)|the results)$", re.IGNORECASE)
_LIST_OF = re.compile(r"^(?:(?:a|the)\s+)?list(?:ing)?\s+of\s+", re.IGNORECASE)
_FREE_TEXT = re.compile(r"^\W*(?:echo|repeat|say|:tool|parrot)\b", re.IGNORECASE)
# What makes a text is a writer's; what only looks is a librarian's.
_WRITERS = {"write_file", "summarize"}


@dataclass
class _Act:
    """One step on its way: parameters may hold `{{act N}}`, N counted over the whole request."""

    instruction: str
    tool: str
    params: dict[str, Any]
    uses: list[int] = field(default_factory=list)


def read_composite(text: str, tools: dict[str, Tool[Any]]) -> list[SubPlanDraft]:
    """The plan that a request says by itself; empty when it is no composite one, or holds a clause of another kind."""
    if len(text) > LONGEST_COMMAND or "\n" in text.strip() or _FREE_TEXT.match(text):
        return []
    acts: list[_Act] = []
    for clause in clauses(core(text)):
        found = _read_clause(clause, acts, tools)
        if not found:
            return []
        acts += found
    return _as_plan(acts) if len(acts) > 1 else []


def clauses(text: str) -> Iterator[str]:
    """The request cut before each verb that follows a comma, "and", "then" or a full stop."""
    start = 0
    for found in _BETWEEN.finditer(text):
        piece = text[start : found.start()].strip(" ,;")
        if piece and _SEPARATOR.search(found[0]):
            yield piece
            start = found.end()
    yield text[start:].strip(" ,;")


def _read_clause(clause: str, before: list[_Act], tools: dict[str, Tool[Any]]) -> list[_Act]:
    written = _WRITE.match(clause)
    if written and "write_file" in tools and looks_like_path(unquote(written["path"])):
        return _read_write(clause, written["what"].strip(), unquote(written["path"]), before, tools)
    tool, params = _read_simple(clause, before, tools)
    if not tool:
        return []
    uses = _mentioned(params) or _same_file(tool, params, before)
    return [_Act(clause, tool, params, uses)]


def _read_write(clause: str, what: str, path: str, before: list[_Act], tools: dict[str, Tool[Any]]) -> list[_Act]:
    """The acts of "write … to FILE": perhaps one that makes the text, and the writing."""
    if _ALL.match(what) and before:
        used = list(range(len(before)))
        text = "\n\n".join(f"{{{{act {number}}}}}" for number in used)
        return [_Act(clause, "write_file", {"path": path, "text": text}, used)]
    summary = _SUMMARY.match(what)
    # "The summary" of what was only read so far is still to be made.
    is_new = summary and before and before[-1].tool != "summarize"
    if _EARLIER.match(what) and not is_new:
        if not before:
            return []
        last = len(before) - 1
        return [_Act(clause, "write_file", {"path": path, "text": f"{{{{act {last}}}}}"}, [last])]
    if what[0] in "\"'“«`":
        return [_Act(clause, "write_file", {"path": path, "text": unquote(what)})]
    inner = f"summarise {summary['of'] or 'it'}{summary['length'] or ''}" if summary else what
    if not summary:
        inner = f"list {_LIST_OF.sub('', what)}" if re.search(r"\bfiles\b", what) else f"show me {what}"
    made = _read_clause(inner, before, tools)
    if len(made) != 1:
        return []
    made[0].instruction = inner
    number = len(before)
    return [*made, _Act(clause, "write_file", {"path": path, "text": f"{{{{act {number}}}}}"}, [number])]


def _read_simple(clause: str, before: list[_Act], tools: dict[str, Tool[Any]]) -> tuple[str, dict[str, Any]]:
    """The one tool that a clause means, with complete parameters; ("", {}) when it is none."""
    reading = read_request(request_from_text(clause), tools)
    tool = tools.get(reading.tool)
    if not reading.is_definite or reading.refusal or tool is None or tool.needs_model:
        return "", {}
    params = dict(reading.params)
    try:
        if tool.question(tool.check(params)):
            source = _source(before)
            if tool.name != "summarize" or not source or not _says_earlier(clause):
                return "", {}
            params |= source
        tool.check(params)
    except ToolError:
        return "", {}
    return tool.name, params


def _says_earlier(clause: str) -> bool:
    return bool(re.search(r"\b(?:it|this|that|them|the (?:file|text|document|contents?|result|list))\b", clause, re.I))


def _source(before: list[_Act]) -> dict[str, Any]:
    """What "it" means: the file that was read last, else the result before."""
    for act in reversed(before):
        if act.tool == "read_file" and act.params.get("path"):
            return {"path": act.params["path"]}
    return {"text": f"{{{{act {len(before) - 1}}}}}"} if before else {}


def _same_file(tool: str, params: dict[str, Any], before: list[_Act]) -> list[int]:
    """A summary of a file belongs to the reading of it."""
    path = params.get("path")
    if tool != "summarize" or not path:
        return []
    return [n for n, act in enumerate(before) if act.tool == "read_file" and act.params.get("path") == path][-1:]


def _mentioned(params: dict[str, Any]) -> list[int]:
    texts = [value for value in params.values() if isinstance(value, str)]
    return [int(number) for text in texts for number in re.findall(r"\{\{act (\d+)\}\}", text)]


def _as_plan(acts: list[_Act]) -> list[SubPlanDraft]:
    """A sub-plan for each group of acts that work on each other's results."""
    group = list(range(len(acts)))
    for number, act in enumerate(acts):
        for used in act.uses:
            joined, kept = group[number], group[used]
            group = [kept if member == joined else member for member in group]
    drafts: list[SubPlanDraft] = []
    for name in dict.fromkeys(group):
        members = [number for number, member in enumerate(group) if member == name]
        place = {number: position for position, number in enumerate(members, 1)}
        steps = tuple(
            StepDraft(acts[number].instruction, acts[number].tool, _placed(acts[number].params, place))
            for number in members
        )
        role = "writer" if _WRITERS & {step.tool for step in steps} else "librarian"
        goal = "; ".join(step.instruction for step in steps)
        drafts.append(SubPlanDraft(f"{role}-{len(drafts) + 1}", goal, role, steps, (), _expected(steps)))
    return drafts


def _placed(params: dict[str, Any], place: dict[int, int]) -> dict[str, Any]:
    def step(found: re.Match[str]) -> str:
        return f"{{{{step {place[int(found[1])]}}}}}"

    return {
        name: re.sub(r"\{\{act (\d+)\}\}", step, value) if isinstance(value, str) else value
        for name, value in params.items()
    }


def _expected(steps: tuple[StepDraft, ...]) -> str:
    last = steps[-1]
    return f"The file {last.params['path']}" if last.tool == "write_file" else f"The result of {last.tool}"


def file_named(text: str) -> str:
    """The file that a request names by its looks, or "". Such a request cannot be answered from memory."""
    return path_in(text)
