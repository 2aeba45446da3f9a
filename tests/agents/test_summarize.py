"""`summarize`: every source; sentences of the text without a model, Claude with one, and an honest label on both."""

import pytest

from agents.models import Decision
from agents.outcomes import Blocked, Error, Ok, Rejected
from tasks.files import file_part, store_file
from tasks.models import Task
from tests.support.cast import ALICE
from tests.support.messages_api import Reply

pytestmark = pytest.mark.django_db

TEXT = " ".join(
    [
        "Whales are mammals that live in the sea.",
        "They breathe air through a hole on top of their heads.",
        "Some whales have teeth and hunt for squid.",
        "Others filter tiny animals out of the water with their baleen.",
        "The blue whale is the largest animal that ever lived.",
        "Yesterday I bought a new pair of shoes.",
        "Whales sing to each other over hundreds of kilometres.",
    ]
)


def sentences(outcome) -> list[str]:
    return [line.removeprefix("- ") for line in outcome.artifacts[0].parts[0]["text"].splitlines()]


def test_without_a_model_it_chooses_sentences_and_says_so(run):
    outcome = run("summarizer", f"Summarise in three sentences: {TEXT}")
    assert isinstance(outcome, Ok)
    chosen = sentences(outcome)
    assert len(chosen) == 3
    assert all(sentence in TEXT for sentence in chosen)
    assert not any("shoes" in sentence for sentence in chosen)
    assert "Extractive summary: 3 of 7 sentences, word for word; no language model was used." in outcome.message
    assert outcome.artifacts[0].metadata == {"method": "extractive"}


def test_a_file_is_summarised(run, project):
    outcome = run("summarizer", "Summarise the file README.md")
    assert sentences(outcome) == ["Bureau runs agents for people.", "It keeps a record of all they do."]


def test_a_text_alone_is_summarised(run):
    assert len(sentences(run("summarizer", TEXT))) == 5


def test_attached_files_are_summarised(run):
    parts = [file_part(store_file(ALICE.principal, f"{n}.txt", "text/plain", TEXT.encode())) for n in (1, 2)]
    outcome = run("summarizer", "summarise the attached files in 2 sentences", *parts)
    assert "Summary of 1.txt, 2.txt." in outcome.message
    assert len(sentences(outcome)) == 2


def test_the_result_of_an_earlier_task_is_summarised(run):
    from agents.runtime import as_state
    from tasks.results import finish

    state, message, artifacts = as_state(run("echo", TEXT))
    finish(run.turn.claim, state, message=message, artifacts=artifacts)
    earlier = str(run.turn.claim.task_id)
    assert len(sentences(run("summarizer", "summarise that", references=[earlier]))) == 5
    assert len(sentences(run("summarizer", f"summarise task {earlier} in 2 lines"))) == 2


def test_a_task_of_somebody_else_or_unfinished_is_not_summarised(run):
    run("echo", TEXT)
    unfinished = run.turn.claim.task_id
    assert run("summarizer", f"summarise task {unfinished}").error_class == "task_not_finished"
    Task.objects.filter(pk=unfinished).update(owner="user:2")
    assert run("summarizer", f"summarise task {unfinished}").error_class == "task_not_found"


def test_it_asks_what_to_summarise(run, follow_up):
    blocked = run("summarizer", "summarise")
    assert isinstance(blocked, Blocked)
    assert blocked.missing_inputs == ["text"]
    assert isinstance(follow_up(blocked, TEXT), Ok)


@pytest.mark.parametrize("text", ["summarise: 1 2 3", "summarise: ***"])
def test_what_has_no_sentences_is_said_to_have_none(run, text):
    outcome = run("summarizer", text)
    assert isinstance(outcome, Error)
    assert outcome.error_class == "no_text"


def test_with_a_model_it_writes(run, model, project):
    model.add(
        Reply(text="Bureau runs agents and records what they do.", usage={"input_tokens": 10, "output_tokens": 9})
    )
    outcome = run("summarizer", "Summarise the file README.md in 2 sentences")
    assert isinstance(outcome, Ok)
    assert outcome.artifacts[0].parts == [{"text": "Bureau runs agents and records what they do."}]
    assert "Write at most 2 sentences." in model.prompts[0]
    assert "from 'README.md'\n# Title" in model.prompts[0]
    row = Decision.objects.get()
    assert (row.point, row.brain, row.choice["artifact"], row.output_tokens) == ("summarise", "claude", "summary", 9)


def test_when_the_model_fails_it_chooses_sentences_and_says_so(run, model, project):
    model.add(Reply(status=401))
    outcome = run("summarizer", "Summarise the file README.md")
    assert isinstance(outcome, Ok)
    assert outcome.artifacts[0].metadata == {"method": "extractive"}
    assert "no language model was used (The model server refused the key" in outcome.message
    assert Decision.objects.get().error.startswith("auth: ")


def test_when_the_model_declines_the_task_is_rejected(run, model):
    model.add(Reply(text="", stop_reason="refusal"))
    assert isinstance(run("summarizer", TEXT), Rejected)


def test_a_summary_that_is_cut_off_says_so(run, model):
    model.add(Reply(text="Whales are", stop_reason="max_tokens"))
    assert "cut off" in run("summarizer", TEXT).message
