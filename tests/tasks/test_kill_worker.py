"""Real worker processes on a real database: what dies or is canceled in the middle is neither lost nor doubled."""

import pytest
from django.utils import timezone

from tasks.content import Incoming
from tasks.models import Event, Task
from tasks.services import cancel_task, send_message
from tests.support.cast import ALICE
from tests.support.messages_api import Reply, running
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]

TEXT = (
    "summarise: " + "Bees dance to tell each other where the flowers are. The dance says how far, and which way. " * 9
)


@pytest.fixture
def model():
    """Its first answer stops in the middle and never goes on, so that the worker is at work for certain."""
    with running() as api:
        api.add(Reply(text="Bees dance to tell " * 40, fault="hang_midway"), Reply(text="Bees dance.", times=0))
        yield api


@pytest.fixture
def begun(worker_process, model):
    """A task that a worker has begun to write: (its id, the worker, a way to start another)."""
    from agents.seeding import seed
    from directory.models import Agent
    from directory.services import forget_agents

    seed()
    forget_agents()
    # Who is slow at times keeps its task all the same.
    env = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "test", "BUREAU_LEASE_SECONDS": "90"}
    worker = worker_process(**env)
    agent = Agent.objects.get(slug="summarizer")
    task_id = send_message(ALICE, agent, Incoming.from_text(TEXT)).task_id
    chunks = Event.objects.filter(task=task_id, kind=Event.Kind.ARTIFACT)
    wait_until(chunks.exists, what="the first chunk")
    return task_id, worker, lambda: worker_process(**env)


def state_of(task_id) -> str:
    return Task.objects.values_list("state", flat=True).get(pk=task_id)


def wait_for_completion(task_id) -> None:
    from tasks.jobs import sweep

    def is_completed() -> bool:
        sweep()  # what the scheduler does every few seconds
        return state_of(task_id) == Task.State.COMPLETED

    wait_until(is_completed, what="another turn")


def test_another_worker_finishes_what_a_killed_one_began(begun):
    task_id, victim, start_another = begun
    victim.kill()
    assert state_of(task_id) == Task.State.WORKING
    # Its lease runs out.
    Task.objects.filter(pk=task_id).update(due_at=timezone.now())
    start_another()
    wait_for_completion(task_id)

    task = Task.objects.get(pk=task_id)
    events = list(task.events.order_by("seq").values_list("seq", "kind", "payload"))
    closing = [payload for _, kind, payload in events if kind == Event.Kind.ARTIFACT and payload.get("lastChunk")]
    assert (task.state, task.epoch, len(closing)) == ("completed", 2, 1)
    assert task.artifacts.get().parts == [{"text": "Bees dance."}]
    assert [seq for seq, _, _ in events] == list(range(1, task.last_seq + 1))


def test_a_worker_that_is_asked_to_end_hands_its_task_back(begun):
    task_id, worker, start_another = begun
    worker.stop()

    task = Task.objects.get(pk=task_id)
    assert (task.state, task.lease_owner, task.attempts) == ("working", "", 0)
    start_another()
    wait_for_completion(task_id)


def test_cancel_stops_a_worker_in_the_middle_of_an_answer(begun):
    task_id, _, _ = begun
    cancel_task(ALICE, task_id)
    last_seq = Task.objects.get(pk=task_id).last_seq

    # The same worker is free for the next task, and adds nothing to the canceled one.
    from directory.models import Agent

    agent = Agent.objects.get(slug="summarizer")
    other = send_message(ALICE, agent, Incoming.from_text(TEXT)).task_id
    wait_for_completion(other)

    task = Task.objects.get(pk=task_id)
    assert (task.state, task.last_seq) == ("canceled", last_seq)
