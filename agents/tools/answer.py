"""Answers in words: the language model writes, and without one there is no answer."""

from agents.brain import get_brain
from agents.conversation import Conversation, read_attachment, read_task
from agents.exceptions import ModelError, ToolError
from agents.points import FULFIL, Writing
from agents.tools.base import Params, Tool, ToolResult
from agents.tools.project import as_text
from agents.turn import Turn
from tasks.content import text_of
from tasks.models import Artifact
from tasks.results import ArtifactDraft

PAGE = 4_000


class AnswerParams(Params):
    """None: the request itself is what is answered."""


class Answer(Tool[AnswerParams]):
    name = "answer"
    description = "Answers a question or writes a text from what a language model knows and from attached files."
    hint = "Take it whenever no other tool does just what is asked."
    params = AnswerParams
    uses_model = True
    needs_model = True
    examples = (
        "What is the capital of France?",
        "Write a poem about the sea",
        "Translate this sentence into German",
        "Explain how photosynthesis works",
        "Who wrote War and Peace?",
        "Give me ideas for a birthday present",
        "How do I sort a list in Python?",
        "What will the weather be like tomorrow?",
        "Draft an e-mail to my landlord",
        "Tell me a joke",
        "Calculate 17 times 23",
        "Fix the bug in this code",
        "Make a plan for learning Spanish",
        "Compare these two options for me",
        "Book a flight to Berlin",
    )

    def run(self, turn: Turn, params: AnswerParams) -> ToolResult:
        conversation = Conversation(turn)
        try:
            writing = Writing(conversation, _documents(turn, conversation))
            written = get_brain().write(turn, FULFIL, writing, _name(conversation))
        except ModelError as error:
            error_class = error.kind if error.kind in ("declined", "no_model") else f"model_{error.kind}"
            raise ToolError(error_class, str(error)) from None
        return ToolResult(written.remark or _said(written.artifact), [written.artifact])


def _said(artifact: ArtifactDraft) -> str:
    """Of a text that is longer than a page: what was done, and where it is."""
    text = text_of(artifact.parts)
    return f"Done.\n{len(text.split()):,} words, in “{artifact.name}”." if len(text) > PAGE else ""


def _name(conversation: Conversation) -> str:
    """What refines the one artifact of the one task that it refers to keeps its name; anything else is an answer."""
    if len(conversation.references) != 1:
        return "answer"
    names = Artifact.objects.filter(task_id=conversation.references[0], is_complete=True).values_list("name", flat=True)
    return names[0] if len(names) == 1 else "answer"


def _documents(turn: Turn, conversation: Conversation) -> list[tuple[str, str]]:
    """What came with the messages, and what the tasks they refer to made. A file that is no text is only named."""
    found: list[tuple[str, str]] = []
    for attachment in conversation.newest.attachments:
        try:
            text = as_text(read_attachment(turn, attachment), attachment.name)
        except ToolError as error:
            text = f"[not readable: {error}]"
        found.append((attachment.name, text))
    for reference in conversation.references:
        try:
            found.append(read_task(turn, str(reference)))
        except ToolError as error:
            found.append(("earlier task", f"[not readable: {error}]"))
    return found
