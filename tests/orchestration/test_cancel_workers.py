"""A cancel in the middle of a plan, with real workers: every leg stops, and the time it took is on record."""

from datetime import timedelta

import pytest
from django.utils import timezone

from agents.models import ToolCall
from agents.stopping import AT_WORK, WORKER_IS_SILENT, WORKER_LET_GO, read_stopping
from directory.models import Agent
from tasks.content import Incoming
from tasks.models import Artifact, Event, Stop, Subtask, Task
from tasks.services import cancel_task, send_message
from tests.orchestration.script import DIAMOND, plan, triage, writes
from tests.support.cast import ALICE
from tests.support.messages_api import Reply
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]

MIDDLE = ("Work on left", "Work on right", "Work on middle")


LEASE_SECONDS = 90


@pytest.fixture
def workers(seeded, model, worker_process):
    """Two of them, which let go long before their leases run out, however busy the machine is."""
    env = {"ANTHROPIC_BASE_URL": model.url, "BUREAU_LEASE_SECONDS": str(LEASE_SECONDS)}
    return [worker_process("--threads", "2", **env) for _ in range(2)]


@pytest.fixture
def mission(workers, model):
    """A mission of five sub-plans, three of which wait for the model in two worker processes."""
    model.add(triage(needs_plan=True), plan(*DIAMOND), writes("facts"))
    model.add(Reply(match="Work on (left|right|middle)", fault="hang", times=0))
    sent = send("assistant", "Find out all about it and write a report")
    wait_until(lambda: sum(any(one in said for one in MIDDLE) for said in model.prompts) == 3, what="three model calls")
    return Task.objects.get(pk=sent.task_id)


def send(slug: str, text: str):
    return send_message(ALICE, Agent.objects.get(slug=slug), Incoming.from_text(text))


def stopped(mission):
    mission.refresh_from_db()
    return wait_until(lambda: (found := read_stopping(mission)) and not found.open and found, what="all legs")


def everything(mission) -> tuple:
    """All that a leg could leave behind."""
    tasks = Task.objects.filter(root=mission) | Task.objects.filter(pk=mission.pk)
    return (
        list(tasks.order_by("pk").values_list("pk", "state", "last_seq", "epoch")),
        list(Artifact.objects.filter(task__in=tasks).order_by("pk").values_list("pk", "version", "is_complete")),
        list(Subtask.objects.order_by("pk").values_list("pk", "state", "evidence")),
        list(Event.objects.filter(task__in=tasks).order_by("task", "seq").values_list("task", "seq")),
        ToolCall.objects.filter(task__in=tasks).count(),
    )


def test_every_leg_stops_and_the_time_is_on_record(mission, model):
    cancel_task(ALICE, mission.pk)
    before = everything(mission)
    found = stopped(mission)
    assert [leg.how for leg in found.legs] == [WORKER_LET_GO] * 3
    assert found.seconds > 0
    # The model answers at last, and the same workers go on to something else: nothing more comes of the mission.
    model.reset()
    other = send("echo", "Still there?")
    wait_until(lambda: Task.objects.get(pk=other.task_id).state == "completed", what="the workers")
    assert everything(mission) == before
    assert not Task.objects.filter(root=mission).exclude(state__in=Task.TERMINAL).exists()


def test_a_worker_that_died_is_gone_with_its_lease(mission, workers):
    for worker in workers:
        worker.kill()
    cancel_task(ALICE, mission.pk)
    mission.refresh_from_db()
    assert [leg.how for leg in read_stopping(mission).legs] == [AT_WORK] * 3
    longest = timedelta(seconds=LEASE_SECONDS)
    assert all(one.asked_at < one.lease_until <= one.asked_at + longest for one in Stop.objects.all())
    # As if so much time had passed.
    over = timezone.now()
    Stop.objects.update(lease_until=over)
    found = stopped(mission)
    assert [leg.how for leg in found.legs] == [WORKER_IS_SILENT] * 3
    assert found.seconds == (over - found.asked_at).total_seconds() > 0
