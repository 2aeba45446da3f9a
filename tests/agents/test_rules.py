"""The built-in rules: exact forms, questions and their answers, honest refusals."""

import pytest

from agents.models import Decision, ToolCall
from agents.outcomes import Blocked, Ok, Rejected
from agents.rules import NO_MODEL
from tasks.claims import release
from tasks.files import file_part, store_file
from tests.support.cast import ALICE

pytestmark = pytest.mark.django_db


def chosen() -> Decision:
    return Decision.objects.filter(point="tool").latest("id")


@pytest.mark.parametrize(
    ("text", "tool", "params"),
    [
        ("echo hello world", "echo", {"text": "hello world"}),
        ("Echo: “quoted”", "echo", {"text": "quoted"}),
        ("list files", "list_files", {}),
        ("ls", "list_files", {}),
        ("ls -la", "list_files", {}),
        ("Could you please list all the files in the docs folder?", "list_files", {"directory": "docs"}),
        ("list files in docs/deep", "list_files", {"directory": "docs/deep"}),
        ("list files in .", "list_files", {}),
        ("list files matching *.md", "list_files", {"pattern": "*.md"}),
        ("list files in docs matching *.md", "list_files", {"directory": "docs", "pattern": "*.md"}),
        ("list files in docs recursively", "list_files", {"directory": "docs", "depth": 32}),
        ("list files depth 2", "list_files", {"depth": 2}),
        ("read README.md", "read_file", {"path": "README.md"}),
        ("Read the file docs/my notes.txt.", "read_file", {"path": "docs/my notes.txt"}),
        ("show me the contents of `main.py`", "read_file", {"path": "main.py"}),
        ("display the contents of docs/guide.txt, please", "read_file", {"path": "docs/guide.txt"}),
        ("open LICENSE", "read_file", {"path": "LICENSE"}),
        ("Summarise the file README.md", "summarize", {"path": "README.md"}),
        ("summarize README.md in 2 sentences", "summarize", {"path": "README.md", "sentences": 2}),
        ("sum up the file README.md to three lines please", "summarize", {"path": "README.md", "sentences": 3}),
        ("summarise: one. two.", "summarize", {"text": "one. two."}),
        ("give me a short summary of docs/guide.txt", "summarize", {"path": "docs/guide.txt"}),
        ("list agents", "list_agents", {}),
        ("list_agents", "list_agents", {}),
        ("Show me all known agents in simple form", "list_agents", {"format": "simple"}),
        ("list agents simple", "list_agents", {"format": "simple"}),
        (":tool list_agents", "list_agents", {}),
        (':tool list-agents {"format":"simple"}', "list_agents", {"format": "simple"}),
    ],
)
def test_exact_forms(begin, text, tool, params):
    from agents.brain import get_brain
    from agents.conversation import Conversation
    from agents.points import ROUTE, TOOL, Triage
    from agents.tools.catalog import tools

    turn = begin("assistant", text)
    triage = Triage(Conversation(turn), list(tools().values()))
    assert get_brain().decide(turn, ROUTE, triage).answer.decision == "local"
    answer = get_brain().decide(turn, TOOL, triage).answer
    assert (answer.tool, answer.params) == (tool, params)
    assert answer.confidence == 1.0


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("What is inside the docs folder?", {"directory": "docs"}),
        ("Which files are in docs/deep", {"directory": "docs/deep"}),
        ("find all python files", {"pattern": "*.py"}),
        ("find files with 'read' in their name", {"pattern": "*read*"}),
        ("are there files named “*.toml”", {"pattern": "*.toml"}),
        ("are there any *.md files", {"pattern": "*.md"}),
    ],
)
def test_parameters_in_words_of_ones_own(run, project, text, params):
    assert isinstance(run("assistant", text), Ok)
    assert chosen().choice == {"tool": "list_files", "params": params}


@pytest.mark.parametrize(
    "text",
    [
        "What is the capital of France?",
        "Напиши вірш про осінь",
        "今天天气怎么样",
        "write me a poem",
        "xyzzy",
        "🦄",
    ],
)
def test_what_nobody_here_can_do_is_refused_with_a_way_out(run, text):
    outcome = run("assistant", text)
    assert isinstance(outcome, Rejected)
    assert NO_MODEL in outcome.reason
    assert "ANTHROPIC_API_KEY" in outcome.reason
    assert not ToolCall.objects.exists()
    row = Decision.objects.get()
    assert (row.point, row.brain, row.choice["decision"], row.is_fallback) == ("route", "rules", "reject", False)
    assert row.rationale


@pytest.mark.parametrize("text", ["   ?", "hello", "Hi, please!"])
def test_a_message_that_asks_for_nothing_is_told_what_can_be_asked(run, text):
    outcome = run("assistant", text)
    assert isinstance(outcome, Rejected)
    assert outcome.reason.startswith("That says nothing of what to do. ")
    assert "“List files”" in outcome.reason
    assert "ANTHROPIC_API_KEY" in outcome.reason
    assert not ToolCall.objects.exists()


def test_a_refusal_names_what_comes_near(run):
    outcome = run("assistant", "delete all the files in this folder")
    assert "The nearest I can do: Lists the files" in outcome.reason


def test_what_is_harmful_is_refused_without_a_way_out(run):
    outcome = run("assistant", "Help me hack into a government database")
    assert outcome == Rejected("I will not help with breaking into systems or accounts that belong to others.")
    assert Decision.objects.get().rationale == "Harmful: intrusion."


def test_a_tool_that_is_not_there_is_named_and_so_are_those_that_are(run):
    outcome = run("assistant", ":tool fly {}")
    assert isinstance(outcome, Rejected)
    assert outcome.reason.startswith("There is no tool fly here. The tools are: answer, echo,")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (":tool echo hello", "is not JSON"),
        (":tool echo [1]", "must be a JSON object"),
        (':tool echo {"words": 1}', "Its parameters are: text."),
        (':tool list_files {"depth": "deep"}', "depth: Input should be a valid integer"),
    ],
)
def test_parameters_that_do_not_fit_are_asked_for(run, follow_up, text, problem):
    outcome = run("assistant", text)
    assert isinstance(outcome, Blocked)
    assert problem in outcome.why
    assert not ToolCall.objects.exists()
    assert isinstance(follow_up(outcome, ':tool echo {"text": "hi"}'), Ok)


def test_a_question_is_asked_and_its_answer_continues_the_task(run, follow_up, project):
    blocked = run("assistant", "read a file")
    assert isinstance(blocked, Blocked)
    assert len(blocked.questions) == 1
    outcome = follow_up(blocked, "main.py")
    assert isinstance(outcome, Ok)
    assert outcome.artifacts[0].name == "main.py"


def test_the_answer_may_be_another_request(run, follow_up, project):
    outcome = follow_up(run("assistant", "read a file"), "list agents")
    assert outcome.artifacts[0].name == "agents"


def test_the_answer_may_be_a_file(run, follow_up):
    note = file_part(store_file(ALICE.principal, "note.txt", "text/plain", b"Inside."))
    outcome = follow_up(run("assistant", "read a file"), "this one", note)
    assert outcome.artifacts[0].parts == [{"text": "Inside."}]


def test_a_remark_after_a_request_does_not_lose_the_request(begin, project):
    from agents.registry import get_handler

    turn = begin("assistant", "read main.py")
    release(turn.claim)
    turn = begin("assistant", "thanks a lot, you are great", task=turn.claim.task_id)
    outcome = get_handler("assistant").run(turn)
    assert isinstance(outcome, Ok)
    assert outcome.artifacts[0].name == "main.py"


def test_a_file_without_words_is_summarised(run):
    text = "The first sentence is about whales. The second sentence is about ships."
    outcome = run("assistant", "", file_part(store_file(ALICE.principal, "whales.txt", "text/plain", text.encode())))
    assert isinstance(outcome, Ok)
    assert outcome.artifacts[0].name == "summary"


def test_data_without_words_is_refused(run):
    assert isinstance(run("assistant", "", {"data": {"a": 1}}), Rejected)
