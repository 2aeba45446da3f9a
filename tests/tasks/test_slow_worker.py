"""A worker that was only slow: its lease ran out and was swept, but nobody took the task."""

from datetime import timedelta

import pytest
from django.utils import timezone

from tasks.claims import renew, sweep
from tasks.content import Incoming
from tasks.exceptions import Unread
from tasks.models import Task
from tasks.results import ArtifactDraft, finish
from tasks.services import send_message
from tests.support.cast import ALICE

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


@pytest.fixture
def swept(claim):
    Task.objects.update(due_at=timezone.now() - timedelta(seconds=1))
    sweep()
    assert Task.objects.get().lease_owner == ""
    return claim


@pytest.mark.parametrize("is_renewed", [False, True])
def test_a_message_in_the_meantime_is_not_overlooked(swept, agent, is_renewed):
    if is_renewed:
        renew(swept)
    send_message(ALICE, agent, Incoming.from_text("And this"), task_id=swept.task_id)
    with pytest.raises(Unread):
        finish(swept, Task.State.COMPLETED)


def test_renewing_takes_the_lease_back(swept):
    renew(swept)
    assert Task.objects.get().lease_owner == "test-worker"


def test_two_artifacts_of_one_name_are_told_apart(claim):
    finish(claim, Task.State.COMPLETED, artifacts=[ArtifactDraft("a.txt", [{"text": str(n)}]) for n in range(2)])
    assert list(Task.objects.get().artifacts.order_by("name").values_list("name", flat=True)) == ["a.txt", "a.txt (2)"]


def test_what_was_begun_and_not_delivered_is_not_shown(claim, agent):
    from tasks.claims import claim_next, release
    from tasks.queries import fetch_task
    from tasks.results import stream_chunk

    stream_chunk(claim, "draft", "It was a dark", is_first=True)
    release(claim)
    finish(claim_next("default", "w"), Task.State.COMPLETED, artifacts=[ArtifactDraft("other", [{"text": "x"}])])
    assert [a["name"] for a in fetch_task(ALICE, claim.task_id).artifacts] == ["other"]
