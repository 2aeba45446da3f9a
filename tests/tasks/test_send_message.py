import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from django.db import connection

from tasks.claims import claim_next, release
from tasks.content import Incoming
from tasks.exceptions import (
    ContextMismatch,
    InvalidMessage,
    QuestionIsClosed,
    TaskIsTerminal,
    TaskNotFound,
    Unread,
)
from tasks.models import Context, Event, Message, Task
from tasks.results import finish, plain
from tasks.services import send_message
from tests.support.cast import ALICE, BOB, OLGA, snapshot

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


def test_it_makes_a_due_task_with_its_first_event(agent):
    sent = send_message(ALICE, agent, Incoming.from_text("List  the\nfiles"))

    task = Task.objects.get(pk=sent.task_id)
    assert (task.state, task.owner, task.title, task.last_seq) == ("submitted", "user:1", "List the files", 1)
    assert task.due_at is not None
    assert list(task.events.values_list("seq", "kind", "payload")) == [(1, "status", {"state": "submitted"})]
    assert task.messages.get().parts == [{"text": "List  the\nfiles"}]
    assert sent.is_new
    assert sent.context_key == task.context.key


def test_it_keeps_contexts_of_the_same_name_apart_by_owner(agent):
    first = send_message(ALICE, agent, Incoming.from_text("a"), context_key="trip / 2026 ✈")
    again = send_message(ALICE, agent, Incoming.from_text("b"), context_key="trip / 2026 ✈")
    other = send_message(BOB, agent, Incoming.from_text("c"), context_key="trip / 2026 ✈")

    contexts = [Task.objects.get(pk=s.task_id).context_id for s in (first, again, other)]
    assert contexts[0] == contexts[1] != contexts[2]


def test_it_hands_a_waiting_task_in_again(agent, claim):
    asked = finish(claim, Task.State.INPUT_REQUIRED, message=plain("Which one?"))

    sent = send_message(ALICE, agent, Incoming.from_text("The blue one"), task_id=str(claim.task_id))

    task = Task.objects.get(pk=claim.task_id)
    assert (task.state, sent.seq, sent.is_new) == ("submitted", asked + 2, False)
    assert task.status_message is None
    assert [m.role for m in task.messages.all()] == ["user", "agent", "user"]
    assert claim_next("default", "other").task_id == task.pk


def test_it_tells_a_working_turn_that_there_is_something_unread(agent, claim):
    before = Task.objects.get(pk=claim.task_id)

    send_message(ALICE, agent, Incoming.from_text("And hurry"), task_id=str(claim.task_id))

    task = Task.objects.get(pk=claim.task_id)
    assert (task.state, task.unread, task.due_at) == ("working", True, before.due_at)
    assert task.events.last().kind == Event.Kind.MESSAGE


def test_it_refuses_an_ended_task(agent, claim):
    finish(claim, Task.State.COMPLETED)
    before = snapshot(claim.task_id)

    with pytest.raises(TaskIsTerminal):
        send_message(ALICE, agent, Incoming.from_text("more"), task_id=str(claim.task_id))

    assert snapshot(claim.task_id) == before


@pytest.mark.parametrize("task_id", ["nonsense", "00000000-0000-4000-8000-000000000000"])
def test_it_does_not_find_what_is_not_there(agent, task_id):
    with pytest.raises(TaskNotFound):
        send_message(ALICE, agent, Incoming.from_text("hi"), task_id=task_id)
    assert not Message.objects.exists()


def test_it_does_not_find_the_task_of_somebody_else(agent, sent):
    before = snapshot(sent.task_id)

    with pytest.raises(TaskNotFound):
        send_message(BOB, agent, Incoming.from_text("hi"), task_id=str(sent.task_id))

    assert snapshot(sent.task_id) == before


def test_it_refuses_another_context_than_the_tasks(agent, sent):
    before = snapshot(sent.task_id)

    with pytest.raises(ContextMismatch):
        send_message(ALICE, agent, Incoming.from_text("hi"), task_id=str(sent.task_id), context_key="other")

    assert snapshot(sent.task_id) == before


def test_it_refines_an_ended_task_in_the_same_context(agent, claim):
    finish(claim, Task.State.COMPLETED)
    before = snapshot(claim.task_id)

    refined = send_message(ALICE, agent, Incoming.from_text("Shorter", references=[str(claim.task_id)]))

    task = Task.objects.get(pk=refined.task_id)
    assert task.context_id == claim.context_id
    assert list(task.references.values_list("pk", flat=True)) == [claim.task_id]
    assert snapshot(claim.task_id) == before


def test_it_refuses_a_reference_to_the_task_of_somebody_else(agent, sent):
    with pytest.raises(TaskNotFound):
        send_message(BOB, agent, Incoming.from_text("Shorter", references=[str(sent.task_id)]))
    assert Task.objects.count() == 1


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [{"text": "a\x00b"}],
        [{"text": "a\ud800b"}],
        [{"data": {"key\x00": 1}}],
        [{"text": "x"}] * 101,
    ],
)
def test_it_refuses_what_cannot_be_stored(agent, parts):
    with pytest.raises(InvalidMessage):
        send_message(ALICE, agent, Incoming(parts=parts, message_id="m"))
    assert not Context.objects.exists()
    assert not Task.objects.exists()


def test_it_refuses_bottomless_nesting(agent):
    data: list = []
    for _ in range(5000):
        data = [data]

    with pytest.raises(InvalidMessage):
        send_message(ALICE, agent, Incoming(parts=[{"data": data}], message_id="m"))

    assert not Task.objects.exists()


def test_it_takes_two_messages_with_one_id_for_two(agent):
    for _ in range(2):
        send_message(ALICE, agent, Incoming(parts=[{"text": "hi"}], message_id="same"))
    assert Message.objects.filter(message_id="same").count() == 2


@pytest.mark.django_db(transaction=True)
def test_it_is_not_refused_while_a_worker_goes_to_and_fro(agent):
    """Whether the task works or waits at that moment, the message is taken: only an ended task refuses."""
    task_id = send_message(ALICE, agent, Incoming.from_text("go")).task_id
    is_over = threading.Event()

    def work() -> None:
        try:
            while not is_over.is_set():
                if claim := claim_next("default", "w"):
                    with suppress(Unread):
                        finish(claim, Task.State.INPUT_REQUIRED, message=plain("And?"))
                        continue
                    release(claim)
        finally:
            connection.close()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for number in range(60):
            send_message(ALICE, agent, Incoming.from_text(str(number)), task_id=task_id)
    finally:
        is_over.set()
        worker.join(60)
    assert Message.objects.filter(task=task_id, role="user").count() == 61


@pytest.fixture
def question(claim):
    """The id of the message that the task waits for an answer to."""
    finish(claim, Task.State.INPUT_REQUIRED, message=plain("Which one?"))
    return Task.objects.get(pk=claim.task_id).status_message["messageId"]


def answer(caller, agent, task_id, question, text="The green one"):
    return send_message(caller, agent, Incoming.from_text(text), task_id=task_id, answering=question)


def test_an_operator_answers_in_the_owners_place_and_is_on_record(agent, claim, question):
    answer(OLGA, agent, claim.task_id, question)
    task = Task.objects.get(pk=claim.task_id)
    assert (task.state, task.owner) == ("submitted", ALICE.principal)
    assert task.messages.last().author == OLGA.principal
    assert task.events.get(kind="message").payload["author"] == OLGA.principal
    assert "author" not in task.events.get(kind="message").payload["message"]


def test_the_owners_own_answer_names_nobody_else(agent, claim, question):
    answer(ALICE, agent, claim.task_id, question)
    assert Message.objects.last().author == ""


def test_an_operator_adds_nothing_where_nothing_was_asked(agent, claim):
    before = snapshot(claim.task_id)
    with pytest.raises(TaskNotFound):
        send_message(OLGA, agent, Incoming.from_text("Hurry"), task_id=claim.task_id)
    with pytest.raises(QuestionIsClosed):
        answer(OLGA, agent, claim.task_id, "another")
    assert snapshot(claim.task_id) == before


def test_somebody_else_does_not_answer(agent, claim, question):
    before = snapshot(claim.task_id)
    with pytest.raises(TaskNotFound):
        answer(BOB, agent, claim.task_id, question)
    assert snapshot(claim.task_id) == before


def test_an_answer_is_no_answer_to_the_next_question(agent, claim, question):
    answer(ALICE, agent, claim.task_id, question)
    again = claim_next("default", "w")
    finish(again, Task.State.INPUT_REQUIRED, message=plain("How large?"))
    before = snapshot(claim.task_id)
    with pytest.raises(QuestionIsClosed):
        answer(ALICE, agent, claim.task_id, question)
    assert snapshot(claim.task_id) == before


@pytest.mark.django_db(transaction=True)
def test_of_two_answers_at_once_one_wins(agent, claim, question):
    start = threading.Barrier(2)

    def say(caller) -> str:
        try:
            start.wait(60)
            answer(caller, agent, claim.task_id, question, caller.name)
        except QuestionIsClosed:
            return "closed"
        finally:
            connection.close()
        return caller.name

    with ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(say, (ALICE, OLGA)))
    assert ends.count("closed") == 1
    (winner,) = {*ends} - {"closed"}
    task = Task.objects.get(pk=claim.task_id)
    assert task.messages.filter(role="user").last().parts == [{"text": winner}]
    assert task.messages.filter(role="user").count() == 2
