"""Random turns, answers and ends in a mission and below it, from several threads at once: whatever the order, who
rests has seen all that happened below it, no log has a gap, and nothing happens after an end."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from directory.models import Agent
from tasks import delegation
from tasks.claims import Claim, claim_next, note_stopped, release
from tasks.content import Incoming
from tasks.delegation import StepDraft, SubPlanDraft
from tasks.exceptions import Superseded, TaskIsTerminal, TaskNotInState, Unread
from tasks.models import Event, Stop, SubPlan, Task
from tasks.results import finish, finish_and_claim_next, plain, resume, wait
from tasks.services import cancel_task, send_message
from tests.support.cast import ALICE

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]

KEYS = ("first", "second", "third")
MOST_ATTEMPTS = 3
# How a turn ends: of a mission, that waits or asks; of a task below it, that ends or asks.
TURNS = ["wait", "ask", "complete", "fail"]
VERBS = st.one_of(
    st.tuples(st.sampled_from(["turn"]), st.sampled_from(TURNS)),
    st.tuples(st.sampled_from(["cancel", "settle", "expire"]), st.sampled_from(KEYS)),
    st.tuples(st.just("answer"), st.just("")),
    st.tuples(st.just("cancel mission"), st.just("")),
)
SCRIPTS = st.lists(st.lists(VERBS, min_size=1, max_size=8), min_size=2, max_size=4)


class Mission:
    """A mission of three sub-plans, all given out. `looks` has what each of its turns saw that came to an end."""

    def __init__(self) -> None:
        self.agent, _ = Agent.objects.get_or_create(slug="worker-bee", handler="echo")
        self.id = send_message(ALICE, self.agent, Incoming.from_text("go")).task_id
        self.looks: dict[int, dict[str, Any]] = {}
        claim = claim_next("default", "first")
        delegation.store_plan(claim, [SubPlanDraft(key, key, "writer", (StepDraft("Do it"),)) for key in KEYS])
        self.give_out(claim)
        self.looks[claim.epoch] = self.look()
        wait(claim)

    def look(self) -> dict[str, Any]:
        """What a mission has to react to: which of its parts have ended, or ask, and with which task."""
        plans = SubPlan.objects.filter(mission=self.id).select_related("task")
        return {plan.key: (plan.task_id, plan.task.state) for plan in plans if plan.task.state not in Task.RUNNING}

    def give_out(self, claim: Claim) -> None:
        for plan in SubPlan.objects.filter(mission=self.id).order_by("pk"):
            failed = plan.task and plan.task.state in (Task.State.FAILED, Task.State.CANCELED)
            if failed and plan.attempt < MOST_ATTEMPTS:
                delegation.retry(claim, plan)
                plan.refresh_from_db()
            if plan.task is None:
                delegation.delegate(claim, plan, self.agent, Incoming.from_text("Please"))

    def act(self, verb: str, what: str) -> None:
        # Somebody was faster; the invariants below show that nothing happened then.
        with suppress(Superseded, TaskNotInState, TaskIsTerminal):
            self.do(verb, what)

    def do(self, verb: str, what: str) -> None:
        if verb == "turn":
            claim = claim_next("default", threading.current_thread().name)
            if claim is not None:
                self.take(claim, what)
        elif verb == "answer":
            send_message(ALICE, self.agent, Incoming.from_text("more"), task_id=self.id)
        elif verb == "cancel mission":
            cancel_task(ALICE, self.id)
        elif task_id := SubPlan.objects.values_list("task_id", flat=True).get(mission=self.id, key=what):
            if verb == "cancel":
                cancel_task(ALICE, task_id)
            elif verb == "settle":
                delegation.resume(task_id)
            else:
                leased = Task.objects.exclude(lease_owner="")
                leased.filter(pk__in=[task_id, self.id]).update(due_at=timezone.now())

    def take(self, claim: Claim, how: str) -> None:
        try:
            self.turn(claim, how)
        except Unread:
            release(claim)
        except Superseded:
            note_stopped(claim)

    def turn(self, claim: Claim, how: str) -> None:
        if claim.task_id != self.id:
            ends = {"complete": "completed", "fail": "failed"}
            finish(claim, ends.get(how, Task.State.INPUT_REQUIRED), message=plain("Here."))
            return
        self.give_out(claim)
        for plan in SubPlan.objects.filter(mission=self.id, task__state__in=Task.INTERRUPTED):
            if how == "complete" and not claim.is_aside:
                delegation.tell(claim, plan.task_id, Incoming.from_text("That one"))
        seen = self.look()
        if claim.is_aside and how in ("ask", "fail"):
            resume(claim)
            return
        if how in ("wait", "complete"):
            wait(claim)
            self.looks[claim.epoch] = seen
            return
        target = Task.State.INPUT_REQUIRED if how == "ask" else Task.State.FAILED
        following = finish_and_claim_next(claim, target, message=plain("Which?"))
        self.looks[claim.epoch] = seen
        if following:
            self.take(following, how)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(scripts=SCRIPTS)
def test_who_rests_has_seen_all_that_happened_below(db, scripts, settings):
    settings.BUREAU_MAX_ATTEMPTS = 1000
    Task.objects.all().delete()
    mission = Mission()
    together = threading.Barrier(len(scripts))

    def run(script) -> None:
        try:
            together.wait(60)
            for verb, what in script:
                mission.act(verb, what)
        finally:
            connection.close()

    with ThreadPoolExecutor(len(scripts)) as pool:
        for done in [pool.submit(run, script) for script in scripts]:
            done.result()

    task = Task.objects.get(pk=mission.id)
    if not task.is_terminal and task.due_at is None:
        assert mission.look().items() <= mission.looks[max(mission.looks)].items()
    if task.is_terminal:
        assert not Task.objects.filter(root=task, state__in=Task.LIVE).exists()
    for one in Task.objects.all():
        check_log(one)
    for stop in Stop.objects.select_related("task"):
        assert (stop.task.state, stop.epoch < stop.task.epoch) == ("canceled", True)


def check_log(task: Task) -> None:
    events = list(Event.objects.filter(task=task).order_by("seq").values_list("seq", "kind", "payload"))
    states = [payload["state"] for _, kind, payload in events if kind == Event.Kind.STATUS]
    assert [seq for seq, _, _ in events] == list(range(1, task.last_seq + 1))
    assert task.state == states[-1]
    assert not any(before in Task.TERMINAL for before, _ in pairwise(states))
    assert not task.is_terminal or (task.due_at, task.lease_owner) == (None, "")
