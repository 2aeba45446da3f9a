import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

from tasks.content import Incoming
from tasks.exceptions import InvalidMessage, TaskNotFound
from tasks.models import Task
from tasks.queries import events_after, fetch_task, list_tasks
from tasks.results import plain, say
from tasks.services import send_message
from tests.support.cast import ALICE, BOB

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


def test_nobody_elses_task_is_found(sent):
    for task_id in (sent.task_id, uuid.uuid4(), "nonsense"):
        with pytest.raises(TaskNotFound):
            fetch_task(BOB, task_id)
    assert list_tasks(BOB).total == 0


def test_a_task_of_another_agent_is_not_found(sent):
    with pytest.raises(TaskNotFound):
        fetch_task(ALICE, sent.task_id, agent_slug="another")


@pytest.mark.parametrize(("length", "expected"), [(None, 3), (0, 0), (1, 1), (2, 2), (9, 3)])
def test_history_is_as_long_as_asked(claim, length, expected):
    say(claim, plain("one"))
    say(claim, plain("two"))
    history = fetch_task(ALICE, claim.task_id, history=length).history
    assert [m["parts"][0]["text"] for m in history] == ["Hello there", "one", "two"][3 - expected :]


def test_pages_meet_without_gap_or_overlap_while_tasks_are_added(agent):
    made = [send_message(ALICE, agent, Incoming.from_text(str(n))).task_id for n in range(7)]
    seen: list[uuid.UUID] = []
    token = ""
    while True:
        page = list_tasks(ALICE, page_size=3, page_token=token)
        seen += [view.id for view in page.tasks]
        send_message(ALICE, agent, Incoming.from_text("newer"))
        token = page.next_token
        if not token:
            break
    assert seen == made[::-1]


def test_tasks_of_one_moment_are_paged_by_id(agent):
    for n in range(5):
        send_message(ALICE, agent, Incoming.from_text(str(n)))
    Task.objects.update(status_at=timezone.now())
    first = list_tasks(ALICE, page_size=3)
    second = list_tasks(ALICE, page_size=3, page_token=first.next_token)
    assert len({view.id for view in first.tasks + second.tasks}) == 5
    assert (second.next_token, second.total) == ("", 5)


def test_filters_narrow(agent, claim):
    other = send_message(ALICE, agent, Incoming.from_text("x"), context_key="trip")
    assert [v.id for v in list_tasks(ALICE, states=["working"]).tasks] == [claim.task_id]
    assert [v.id for v in list_tasks(ALICE, context_key="trip").tasks] == [other.task_id]
    assert list_tasks(ALICE, status_after=timezone.now() + timedelta(minutes=1)).tasks == []
    assert list_tasks(ALICE, agent_slug="another").total == 0


@pytest.mark.parametrize("token", ["x", "bm9wZQ==", "//8=", "MS8y"])
def test_a_forged_page_token_is_refused(sent, token):
    with pytest.raises(InvalidMessage):
        list_tasks(ALICE, page_token=token)


def test_events_can_be_read_from_any_number(claim):
    assert [e.seq for e in events_after(claim.task_id, 0)] == [1, 2]
    assert [e.seq for e in events_after(claim.task_id, 1)] == [2]
    assert events_after(claim.task_id, 2) == []
