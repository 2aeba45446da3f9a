"""How often requests had to be sent again with more detail: what counts, and what does not."""

import json
from io import StringIO

import pytest

from agents.resent import read_resent, says_more
from bureau.management.commands.resent import as_text
from directory.models import Agent
from tasks.claims import claim_next
from tasks.content import Incoming
from tasks.models import Task
from tasks.results import finish, plain
from tasks.services import send_message
from tests.support.cast import ALICE, BOB

SAME = [
    ("Summarise the file", "Summarise the file docs/agents.md in three sentences"),
    ("Write a report", "Write a report about the bees of Crimea, two pages"),
    ("Find flights to Berlin", "Find flights from Kyiv to Berlin on 3 March, below 200 euros"),
    ("Fix the bug", "Fix the bug in the login form: the error is shown twice"),
    ("Translate this", "Translate this letter into German, formally: Dear Sir"),
    ("Plot the data", "Plot the data of sales.csv as a bar chart by month"),
    ("Compare the offers", "Compare the three offers I attached by price and delivery time"),
    ("Make a plan for the move", "Make a plan for moving our office of 12 people in June"),
    ("Book a table", "Book a table for four at an Italian place tomorrow at seven"),
]
OTHER = [
    ("Summarise the file", "List the agents that can write German letters"),
    ("Write a report", "What is the capital of France, and how many people live there?"),
    ("Find flights to Berlin", "Translate this sentence into German for me please"),
    ("Fix the bug", "Make a plan for learning Spanish within a year"),
    ("List the files", "Summarise docs/agents.md in three sentences"),
    ("Summarise README.md", "Write a summary of the meeting notes to notes.md"),
    ("Read main.py", "Read docs/guide.txt and print its first line"),
    ("Translate this", "List the files of this project, newest first"),
]
CLARIFY = {"questions": ["About what?"], "missingInputs": [], "asks": {"kind": "clarify"}}


@pytest.mark.parametrize(("earlier", "later"), SAME)
def test_the_same_in_more_detail_is_recognised(earlier, later):
    assert says_more(earlier, later, refers=False)


@pytest.mark.parametrize(("earlier", "later"), OTHER)
def test_something_else_is_not(earlier, later):
    assert not says_more(earlier, later, refers=False)


@pytest.mark.parametrize("later", ["Write a report", "Write it", "Report, write a report write"])
def test_what_says_no_more_is_no_detail(later):
    assert not says_more("Write a report", later, refers=True)


def test_who_refers_to_it_may_use_words_of_his_own():
    assert says_more("Who are the customers?", "All buyers of last year by revenue, as a table", refers=True)


@pytest.fixture
def agent(db):
    return Agent.objects.create(slug="bee", name="Bee", handler="echo")


@pytest.fixture
def mission(agent):
    """mission("text", "failed", context="c"): one that has come to that state."""

    def make(text, state="completed", *, context="", references=None, caller=ALICE, asks=None):
        incoming = Incoming.from_text(text, references=references)
        sent = send_message(caller, agent, incoming, context_key=context)
        if asks:
            said = plain("About what?") | {"metadata": asks}
            finish(claim_next("default", "w"), Task.State.INPUT_REQUIRED, message=said)
            if state == "input-required":
                return str(sent.task_id)
            send_message(caller, agent, Incoming.from_text("About bees"), task_id=sent.task_id)
        finish(claim_next("default", "w"), state)
        return str(sent.task_id)

    return make


@pytest.mark.both_databases
class TestCounting:
    def test_an_answer_to_a_clarifying_question(self, mission):
        mission("Write a report", asks=CLARIFY)
        mission("Read it", asks={"questions": ["Which?"], "missingInputs": ["path"]})
        mission("List the files")
        found = read_resent()
        assert (found.missions, found.asked, found.answered, found.total) == (3, 2, 2, 2)
        assert (found.rate_asked, found.rate_unasked) == (0, 0)

    def test_a_question_that_nobody_answered(self, mission):
        mission("Write a report", "input-required", asks=CLARIFY)
        assert (read_resent().asked, read_resent().total) == (1, 0)

    @pytest.mark.parametrize(
        "asks",
        [
            {"questions": ["May I?"], "missingInputs": [], "asks": {"kind": "confirm"}},
            {"questions": ["Again?"], "missingInputs": ["repeat"]},
        ],
    )
    def test_a_question_about_something_else(self, mission, asks):
        mission("Write a report", asks=asks)
        assert (read_resent().asked, read_resent().total) == (0, 0)

    @pytest.mark.parametrize("state", ["failed", "rejected"])
    def test_a_new_mission_that_says_more(self, mission, state):
        mission("Write a report", state, context="c")
        mission("Write a report about the bees of Crimea", context="c")
        found = read_resent()
        assert (found.restated_asked, found.restated_unasked, found.rate) == (0, 1, 0.5)

    def test_with_and_without_having_been_asked(self, mission):
        mission("Write a report", "failed", context="c", asks=CLARIFY)
        mission("Write a report about the bees of Crimea", context="c")
        mission("Find flights to Berlin", "failed", context="d")
        mission("Find flights from Kyiv to Berlin on 3 March", context="d")
        found = read_resent()
        assert (found.answered, found.restated_asked, found.restated_unasked) == (1, 1, 1)
        assert (found.rate_asked, found.rate_unasked) == (1.0, 1 / 3)

    def test_one_that_refers_to_what_came_to_nothing(self, mission):
        first = mission("Who are the customers?", "rejected")
        mission("All buyers of last year by revenue, as a table", references=[first])
        assert read_resent().restated_unasked == 1

    @pytest.mark.parametrize(
        ("state", "contexts", "later"),
        [
            ("completed", "cc", "Write a report about the bees of Crimea"),
            ("failed", "cd", "Write a report about the bees of Crimea"),
            ("failed", "cc", "List the files of this project"),
            ("failed", "cc", "Write a report"),
        ],
    )
    def test_what_is_none(self, mission, state, contexts, later):
        mission("Write a report", state, context=contexts[0])
        mission(later, context=contexts[1])
        assert read_resent().total == 0

    def test_contexts_of_one_name_belong_to_their_owners(self, mission):
        mission("Write a report", "failed", context="c")
        mission("Write a report about the bees of Crimea", context="c", caller=BOB)
        assert read_resent().total == 0

    def test_a_request_that_was_sent_again_twice_counts_once_for_each_failure(self, mission):
        for text, state in (
            ("Write a report", "failed"),
            ("Write a report about bees", "failed"),
            ("Write a report about bees in Crimea", "completed"),
        ):
            mission(text, state, context="c")
        assert read_resent().total == 2

    def test_no_more_than_so_many_are_looked_at(self, mission):
        for _ in range(3):
            mission("Write a report")
        assert read_resent(last=2).missions == 2

    def test_without_missions_there_is_no_rate(self, db):
        assert (read_resent().rate, read_resent().rate_asked, read_resent().rate_unasked) == (None, None, None)


@pytest.mark.django_db
def test_the_command_says_it(mission, capsys):
    from django.core.management import call_command

    mission("Write a report", "failed", context="c")
    mission("Write a report about the bees of Crimea", context="c")
    call_command("resent")
    text = capsys.readouterr().out
    assert text == as_text(read_resent()) + "\n"
    assert "without having been asked        1  50.0% of 2 that were not" in text
    call_command("resent", "--json")
    assert json.loads(capsys.readouterr().out) == read_resent().as_json()


@pytest.mark.parametrize("last", ["0", "-3"])
def test_the_command_refuses_nonsense(last):
    from django.core.management import CommandError, call_command

    with pytest.raises(CommandError, match="1 or more"):
        call_command("resent", "--last", last, stdout=StringIO())
