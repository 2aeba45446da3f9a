"""Random verbs from several threads at once, on real connections: whatever the order, the log has no gap,
no update is lost, and nothing happens after an end."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise

import pytest
from django.db import connection, transaction
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from directory.models import Agent
from tasks.claims import Claim, claim_next, release, renew, sweep
from tasks.content import Incoming
from tasks.delegation import wake
from tasks.exceptions import Superseded, TaskIsTerminal, TaskNotInState
from tasks.models import Event, Task
from tasks.results import ArtifactDraft, finish, plain, resume, say, stream_chunk, wait
from tasks.services import cancel_task, send_message
from tests.support.cast import ALICE

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]

ENDS = [Task.State.COMPLETED, Task.State.FAILED, Task.State.REJECTED, Task.State.INPUT_REQUIRED]
VERBS = ["claim", "follow_up", "say", "chunk", "renew", "release", "expire", "sweep", "cancel", "wake", *map(str, ENDS)]
# Which states may follow which (A2A 1.0, 4.1.3); `working` may follow itself: another claim, or progress. So may
# `input-required`: progress of a turn aside.
ARROWS = {
    "submitted": {"working", "canceled"},
    "working": {"working", "input-required", "completed", "failed", "rejected", "canceled"},
    "input-required": {"input-required", "submitted", "working", "canceled"},
}


class Actor:
    """One thread: a worker and a caller in one, who counts the events that it was told it caused."""

    def __init__(self, agent: Agent, task_id) -> None:
        self.agent = agent
        self.task_id = task_id
        self.claim: Claim | None = None
        self.events = 0
        self.ends = 0

    def act(self, verb: str) -> None:
        # Somebody was faster; the invariants below show that nothing happened then.
        with suppress(Superseded, TaskNotInState, TaskIsTerminal):
            self.do(verb)

    def do(self, verb: str) -> None:
        if verb == "claim":
            claim = claim_next("default", threading.current_thread().name)
            if claim:
                self.claim = claim
                self.events += not claim.is_aside
        elif verb == "follow_up":
            before = Task.objects.filter(pk=self.task_id).values_list("last_seq", flat=True).get()
            sent = send_message(ALICE, self.agent, Incoming.from_text("more"), task_id=self.task_id)
            assert sent.seq > before
            # One event for a task at work, two for one that waited: the log itself says which.
            with_state = Event.objects.get(task=self.task_id, seq=sent.seq).kind == Event.Kind.STATUS
            self.events += 2 if with_state else 1
        elif verb == "expire":
            Task.objects.filter(pk=self.task_id, due_at__isnull=False).update(
                due_at=timezone.now() - timedelta(seconds=1)
            )
        elif verb == "sweep":
            sweep()
        elif verb == "wake":
            with transaction.atomic():
                wake(self.task_id, even_asking=True)
        elif verb == "cancel":
            cancel_task(ALICE, self.task_id)
            self.events += 1
            self.ends += 1
        elif self.claim:
            self.write(verb, self.claim)

    def write(self, verb: str, claim: Claim) -> None:
        if verb == "renew":
            renew(claim)
        elif verb == "release":
            release(claim)
        elif verb == "say":
            say(claim, plain("..."))
            self.events += 1
        elif verb == "chunk":
            stream_chunk(claim, "text", "x", is_first=True)
            self.events += 1
        elif claim.is_aside:
            # What a turn aside comes to, the runtime turns into one of these.
            if verb == Task.State.INPUT_REQUIRED:
                wait(claim)
            else:
                resume(claim)
                self.events += 1
        else:
            finish(claim, verb, artifacts=[ArtifactDraft("text", [{"text": "x"}])])
            self.events += 2
            self.ends += verb in Task.TERMINAL


def run(actor: Actor, script: list[str], together: threading.Barrier) -> None:
    try:
        together.wait(60)
        for verb in script:
            actor.act(verb)
    finally:
        connection.close()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(scripts=st.lists(st.lists(st.sampled_from(VERBS), min_size=1, max_size=8), min_size=2, max_size=4))
def test_no_lost_update_no_gap_no_second_end(db, scripts, settings):
    settings.BUREAU_MAX_ATTEMPTS = 1000
    Task.objects.all().delete()
    agent, _ = Agent.objects.get_or_create(slug="worker-bee", handler="echo")
    task_id = send_message(ALICE, agent, Incoming.from_text("go")).task_id
    actors = [Actor(agent, task_id) for _ in scripts]
    together = threading.Barrier(len(actors))

    with ThreadPoolExecutor(len(actors)) as pool:
        for done in [pool.submit(run, a, s, together) for a, s in zip(actors, scripts, strict=True)]:
            done.result()

    task = Task.objects.get(pk=task_id)
    events = list(Event.objects.filter(task=task).order_by("seq").values_list("seq", "kind", "payload"))
    states = [payload["state"] for _, kind, payload in events if kind == Event.Kind.STATUS]
    assert [seq for seq, _, _ in events] == list(range(1, task.last_seq + 1))
    assert len(events) == 1 + sum(actor.events for actor in actors)
    assert task.state == states[-1]
    assert all(after in ARROWS.get(before, ()) for before, after in pairwise(states))
    assert sum(actor.ends for actor in actors) == sum(state in Task.TERMINAL for state in states) <= 1
    if task.is_terminal:
        assert events[-1][2]["state"] == task.state
        assert (task.due_at, task.lease_owner) == (None, "")
    assert task.artifacts.count() <= 1


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tasks=st.integers(1, 12), workers=st.integers(2, 4))
def test_racing_workers_never_hold_the_same_task(db, tasks, workers):
    Task.objects.all().delete()
    agent, _ = Agent.objects.get_or_create(slug="worker-bee", handler="echo")
    sent = {send_message(ALICE, agent, Incoming.from_text("go")).task_id for _ in range(tasks)}
    together = threading.Barrier(workers)

    def take() -> list:
        try:
            together.wait(60)
            taken = []
            while claim := claim_next("default", threading.current_thread().name):
                taken.append(claim.task_id)
            return taken
        finally:
            connection.close()

    with ThreadPoolExecutor(workers) as pool:
        taken = [task_id for done in [pool.submit(take) for _ in range(workers)] for task_id in done.result()]

    assert len(taken) == len(set(taken))
    # SKIP LOCKED may hide a row that another holds for a moment, but then that one takes it.
    assert set(taken) == sent
