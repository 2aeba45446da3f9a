"""Agents that are a tool each. They decide nothing: the tool's grammar reads what they are told."""

from typing import Any, ClassVar

from agents.conversation import Conversation
from agents.handlers.acting import resume_unsettled, use_tool
from agents.outcomes import Blocked, Outcome
from agents.registry import Handler, register
from agents.tools.base import Tool
from agents.tools.catalog import tools
from agents.tools.grammar import explicit_form
from agents.turn import Turn


class ToolHandler(Handler):
    """Runs one tool with what the messages give: its exact form, JSON data, or whatever it can find in the words.

    Later messages add to what earlier ones gave, so that an answer to the tool's question completes it. `others`
    are tools that it has beside it, for those who name them or use their exact form.
    """

    tool: ClassVar[str]
    others: ClassVar[tuple[str, ...]] = ()

    def run(self, turn: Turn) -> Outcome:
        mine = {name: tools()[name] for name in (self.tool, *self.others)}
        conversation = Conversation(turn)
        if outcome := resume_unsettled(turn, conversation, mine):
            return outcome
        form = explicit_form(conversation.newest.text)
        if form and (form.problem or form.name not in mine):
            has = f"one tool, {self.tool}," if not self.others else f"the tools {' and '.join(mine)},"
            problem = form.problem or f"This agent has {has} and not {form.name}."
            return Blocked(problem, [f"How should I run it? For example: :tool {self.tool} {{}}"])
        tool = _meant(mine, conversation) or mine[self.tool]
        return use_tool(turn, conversation, tool, gather(tool, conversation))


def _meant(mine: dict[str, Tool[Any]], conversation: Conversation) -> Tool[Any] | None:
    """The tool that was named last, or whose exact form was used."""
    for request in reversed(conversation.requests):
        form = explicit_form(request.text)
        if form and form.name in mine:
            return mine[form.name]
        found = next((tool for tool in mine.values() if tool.parse(request) is not None), None)
        if found:
            return found
    return None


def gather(tool: Tool[Any], conversation: Conversation) -> dict[str, Any]:
    """The parameters that the messages give together. A complete command, or data, starts anew."""
    params: dict[str, Any] = {}
    for number, request in enumerate(conversation.requests):
        form = explicit_form(request.text)
        if form and form.name == tool.name:
            params = form.params
        elif request.data is not None:
            params = params | request.data
        elif (parsed := tool.parse(request)) is not None:
            params = parsed
        else:
            params |= tool.complete(request) if number else tool.extract(request)
    return params


@register
class SummarizerHandler(ToolHandler):
    name = "summarizer"
    tool = "summarize"


@register
class DirectoryHandler(ToolHandler):
    name = "directory"
    tool = "list_agents"
    others = ("remember_agent",)


@register
class FileListerHandler(ToolHandler):
    name = "file-lister"
    tool = "list_files"


@register
class FileReaderHandler(ToolHandler):
    name = "file-reader"
    tool = "read_file"
