"""The echo agent and the echo tool. The agent is what benchmarks measure, so what it costs is a promise."""

import pytest

from agents.models import Decision, ToolCall
from agents.outcomes import Ok
from agents.registry import get_handler
from tasks.results import ArtifactDraft

pytestmark = pytest.mark.django_db


def test_it_says_back_the_text(run):
    assert run("echo", "hello\nworld") == Ok(artifacts=[ArtifactDraft("echo", [{"text": "hello\nworld"}])])


def test_without_text_it_gives_back_the_parts(run):
    assert run("echo", "", {"data": {"a": 1}}).artifacts[0].parts == [{"data": {"a": 1}}]


def test_it_costs_at_most_one_query_and_leaves_no_record(begin, django_assert_max_num_queries):
    turn = begin("echo", "hello")
    with django_assert_max_num_queries(1):
        get_handler("echo").run(turn)
    assert not Decision.objects.exists()
    assert not ToolCall.objects.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo hello there", "hello there"),
        ("Please repeat after me: one, two", "one, two"),
        ("Say this text back to me: “to be or not”", "to be or not"),
        ("could you repeat this: 12:30", "12:30"),
    ],
)
def test_the_assistant_echoes_with_a_record(run, text, said):
    outcome = run("assistant", text)
    assert outcome == Ok("", [ArtifactDraft("echo", [{"text": said}])])
    assert ToolCall.objects.get().tool == "echo"


def test_the_assistant_asks_what_to_echo(run, follow_up):
    blocked = run("assistant", "echo")
    assert blocked.questions == ["What should I say back?"]
    assert follow_up(blocked, "list files").artifacts[0].name == "files"
