"""Agents of one tool: parameters from words, data and answers, put together over the messages of a task."""

import pytest

from agents.conversation import Conversation
from agents.handlers.tool_agents import gather
from agents.models import Decision, ToolCall
from agents.outcomes import Blocked, Ok
from agents.tools.catalog import tools
from tasks.claims import release

pytestmark = pytest.mark.django_db


def gathered(begin, slug, tool, *messages) -> dict:
    turn = None
    for message in messages:
        parts = [message] if isinstance(message, dict) else []
        text = "" if parts else message
        if turn:
            release(turn.claim)
        turn = begin(slug, text, *parts, task=turn and turn.claim.task_id)
    return gather(tools()[tool], Conversation(turn))


@pytest.mark.parametrize(
    ("slug", "tool", "messages", "params"),
    [
        ("file-reader", "read_file", ["README.md"], {"path": "README.md"}),
        ("file-reader", "read_file", ['{"path": "a.txt"}'], {"path": "a.txt"}),
        ("file-reader", "read_file", [{"data": {"path": "a.txt"}}], {"path": "a.txt"}),
        ("file-reader", "read_file", ["hello", "notes"], {"path": "notes"}),
        ("file-reader", "read_file", ["read a.txt", "read b.txt"], {"path": "b.txt"}),
        ("file-reader", "read_file", [':tool read_file {"path": "c.txt"}'], {"path": "c.txt"}),
        ("summarizer", "summarize", ["summarise in 2 sentences", "a.txt"], {"sentences": 2, "path": "a.txt"}),
        ("summarizer", "summarize", ["summarise", {"data": {"path": "a.txt"}}], {"path": "a.txt"}),
        ("summarizer", "summarize", ["summarise", "It was a dark night."], {"text": "It was a dark night."}),
        (
            "file-lister",
            "list_files",
            ["list files in docs", {"data": {"depth": 3}}],
            {"directory": "docs", "depth": 3},
        ),
        ("directory", "list_agents", ["just the names, please"], {"format": "simple"}),
    ],
)
def test_parameters_are_gathered(begin, slug, tool, messages, params):
    assert gathered(begin, slug, tool, *messages) == params


def test_they_decide_nothing_but_their_act_is_on_record(run, project):
    assert isinstance(run("file-reader", "README.md"), Ok)
    assert not Decision.objects.exists()
    assert ToolCall.objects.get().key == "1:1:read_file"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (":tool echo {}", "This agent has one tool, read_file, and not echo."),
        (":tool read_file x", "What follows :tool read_file is not JSON"),
        ('{"file": "x"}', "file: Extra inputs are not permitted"),
        ('{"path": 7}', "path: Input should be a valid string"),
    ],
)
def test_what_does_not_fit_is_asked_about(run, text, why):
    outcome = run("file-reader", text)
    assert isinstance(outcome, Blocked)
    assert why in outcome.why
    assert not ToolCall.objects.exists()


@pytest.mark.parametrize("slug", ["summarizer", "directory", "file-lister", "file-reader"])
@pytest.mark.parametrize("text", ["🦄", "Привіт", "\u200b", "[1, 2]", "{", "a" * 5000])
def test_odd_messages_end_in_an_outcome(run, project, slug, text):
    assert run(slug, text) is not None


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_that_json_does_not_have_are_asked_about(run, number):
    outcome = run("assistant", f':tool summarize {{"text": "One. Two.", "sentences": {number}}}')
    assert isinstance(outcome, Blocked)
