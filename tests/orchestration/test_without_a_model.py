"""Composite requests without a model: read clause by clause, done for real."""

import pytest

from agents.models import Decision, ToolCall
from agents.orchestration.composite import read_composite
from agents.tools.catalog import tools
from tasks.models import SubPlan, Subtask

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]

REQUEST = "List the files of this project, read README.md, and write a summary of it to summary.md"


def plan_of(text: str) -> list[list[str]]:
    return [[step.tool for step in draft.steps] for draft in read_composite(text, tools())]


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        (REQUEST, [["list_files"], ["read_file", "summarize", "write_file"]]),
        ("read README.md and write it to copy.md", [["read_file", "write_file"]]),
        ("Write a summary of README.md in 3 sentences to s.md", [["summarize", "write_file"]]),
        ("List files in docs; then summarise README.md", [["list_files"], ["summarize"]]),
        ("read a.md, read b.md, and save everything to all.txt", [["read_file", "read_file", "write_file"]]),
        ("Please save the list of files to files.txt", [["list_files", "write_file"]]),
        ("read README.md and summarise it", [["read_file", "summarize"]]),
        ("Summarise README.md in three sentences and save it as s.md", [["summarize", "write_file"]]),
        ("read README.md and put the summary in s.md", [["read_file", "summarize", "write_file"]]),
        # One act, or a clause that the rules do not know: no plan.
        ("summarise README.md", []),
        ("list files in docs and templates", []),
        ("echo one, then list files", []),
        ("What is the capital of France, and write a poem to x.md", []),
        ("Read README.md and translate it into German", []),
        ("Read README.md, translate it into German and write it to de.md", []),
        ("summarise a.md and b.md and write both to both.md", []),
    ],
)
def test_a_request_read_by_its_clauses(text, plan):
    assert plan_of(text) == plan


def test_it_becomes_a_plan_and_ends_with_the_file(settle, project):
    mission = settle(REQUEST)
    assert mission.state == "completed"
    written = (project / "output" / "summary.md").read_text()
    assert written == "- Bureau runs agents for people.\n- It keeps a record of all they do.\n"
    assert mission.status_message["parts"][0]["text"] == "Done, in 2 parts.\nFiles: summary.md."
    artifact = mission.artifacts.get()
    assert "main.py  15 bytes" in artifact.parts[0]["text"]
    assert artifact.parts[1]["filename"] == "summary.md"
    assert set(Decision.objects.values_list("brain", flat=True)) == {"rules"}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Read README.md, translate it into German and write it to de.md", "translate it into German and write it to"),
        ("Summarise README.md and e-mail it to Bob", "e-mail it to Bob"),
        ("Read main.py and tell me what it prints", "tell me what it prints"),
        ("List the files, count them, and save the number", "count them, and save the number"),
        ("Summarise README.md and main.py", "main.py"),
        ("Show me “README.md” and the file main.py", "main.py"),
    ],
)
def test_half_of_a_request_is_not_done_as_if_it_were_all(settle, project, text, left):
    mission = settle(text)
    assert mission.state == "rejected"
    assert f"and this not: “{left}" in mission.status_message["parts"][0]["text"]
    assert not ToolCall.objects.exists()
    assert not (project / "output").exists()


def test_a_trivial_sub_plan_stays_with_the_coordinator(settle):
    mission = settle(REQUEST)
    listing, summary = SubPlan.objects.order_by("id")
    assert listing.task is None
    assert summary.task.agent.slug == "writer"
    assert mission.children.count() == 1
    assert set(Subtask.objects.values_list("state", flat=True)) == {"done"}


def test_a_part_that_fails_is_named(settle):
    mission = settle("List the files, read nothing.md, and write a summary of it to summary.md")
    assert mission.state == "completed"
    text = mission.artifacts.get().parts[0]["text"]
    assert text.startswith("Not done:\n")
    assert "There is no nothing.md in the project folder" in text
    assert "main.py" in text
    assert ToolCall.objects.filter(state="failed").count() == 1


def test_it_is_not_done_twice(settle, project):
    settle(REQUEST)
    settle(REQUEST)
    assert [path.name for path in (project / "output").iterdir()] == ["summary.md"]
