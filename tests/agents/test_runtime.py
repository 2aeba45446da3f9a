"""Outcomes become states; what a turn cannot foresee becomes a state too."""

import threading
import time
from datetime import timedelta

import pytest
import redis
from celery import current_app
from django.db import InterfaceError, OperationalError, connection
from django.utils import timezone

from agents import registry, runtime
from agents.exceptions import Stopped
from agents.outcomes import Auth, Blocked, Error, Ok, Rejected
from agents.watch import watch
from directory import services as directory
from directory.models import Agent
from tasks import doorbell
from tasks.claims import claim_next
from tasks.content import Incoming
from tasks.models import Task
from tasks.results import ArtifactDraft
from tasks.services import cancel_task, send_message
from tests.support.cast import ALICE

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]


@pytest.fixture
def play(monkeypatch):
    """Install a handler that does what the test says, and send its agent a message."""

    def install(run):
        class Played(registry.Handler):
            name = "played"

        Played.run = lambda self, turn: run(turn)
        Played.__abstractmethods__ = frozenset()
        monkeypatch.setitem(registry._handlers, "played", Played())
        directory.forget_agents()
        agent, _ = Agent.objects.get_or_create(slug="played", handler="played")
        return send_message(ALICE, agent, Incoming.from_text("please")).task_id

    return install


@pytest.mark.parametrize(
    ("outcome", "state", "text"),
    [
        (Ok("Done.", [ArtifactDraft("a", [{"text": "x"}])]), "completed", "Done."),
        (Blocked("No file was named.", ["Which file?"], ["path"]), "input-required", "No file was named.\nWhich file?"),
        (Auth("Sign in, please.", "oauth2", "calendar"), "auth-required", "Sign in, please."),
        (Rejected("Not here."), "rejected", "Not here."),
        (Error("file_not_found", "There is no such file."), "failed", "There is no such file."),
    ],
)
def test_an_outcome_becomes_a_state(play, outcome, state, text):
    task_id = play(lambda turn: outcome)

    assert runtime.drain("default") == 1

    task = Task.objects.get(pk=task_id)
    assert (task.state, task.status_message["parts"]) == (state, [{"text": text}])
    assert (task.due_at, task.lease_owner, task.attempts) == (None, "", 0)


def test_a_crash_of_the_agent_says_nothing_of_its_inside(play, caplog):
    def crash(turn):
        raise ValueError("the password is hunter2")

    task_id = play(crash)
    runtime.drain("default")

    task = Task.objects.get(pk=task_id)
    assert (task.state, task.status_message["parts"][0]["text"]) == ("failed", runtime.UNEXPECTED)
    assert "ValueError" in caplog.text


def test_an_agent_without_implementation_fails_with_the_reason(play):
    task_id = play(lambda turn: Ok())
    Agent.objects.update(handler="gone")
    directory.forget_agents()

    runtime.drain("default")

    assert "'gone'" in Task.objects.get(pk=task_id).status_message["parts"][0]["text"]


def test_a_failing_database_is_tried_again_later_and_counted(play):
    def fail(turn):
        raise OperationalError("server closed the connection")

    task_id = play(fail)
    runtime.drain("default")

    task = Task.objects.get(pk=task_id)
    assert (task.state, task.lease_owner, task.attempts) == ("working", "", 1)
    assert task.due_at > timezone.now()


def test_a_message_during_the_turn_gives_another_turn(play):
    seen: list[str] = []

    def run(turn):
        if not seen:
            send_message(ALICE, turn.agent, Incoming.from_text("and this"), task_id=turn.claim.task_id)
        seen.append(turn.text if len(seen) else "first")
        return Ok(artifacts=[ArtifactDraft("a", [{"text": str(len(turn.messages))}])])

    task_id = play(run)
    assert runtime.drain("default") == 2

    task = Task.objects.get(pk=task_id)
    assert (task.state, seen) == ("completed", ["first", "and this"])
    assert task.artifacts.get().parts == [{"text": "2"}]


def test_cancel_reaches_a_turn_in_progress(play, valkey):
    begun, stopped = threading.Event(), threading.Event()

    def run(turn):
        begun.set()
        try:
            while not turn._over.wait(0.01):
                turn.check()
            turn.check()
        except Stopped:
            stopped.set()
            raise
        return Ok()

    task_id = play(run)
    worker = threading.Thread(target=lambda: (runtime.drain("default"), connection.close()))
    worker.start()
    assert begun.wait(60)
    cancel_task(ALICE, task_id)

    assert stopped.wait(60)
    worker.join(60)
    task = Task.objects.get(pk=task_id)
    assert (task.state, task.artifacts.count()) == ("canceled", 0)


def test_a_worker_that_ends_hands_its_task_back(play, monkeypatch):
    def run(turn):
        watch.shut_down()
        turn.check()

    task_id = play(run)
    try:
        runtime.drain("default")
    finally:
        watch.is_stopping.clear()

    task = Task.objects.get(pk=task_id)
    assert (task.state, task.lease_owner, task.attempts) == ("working", "", 0)
    assert claim_next("default", "next").task_id == task_id


def test_a_slow_turn_keeps_its_lease_and_rings_for_another_worker(play, valkey, settings, monkeypatch):
    settings.BUREAU_LEASE_SECONDS = 0.6
    rung = threading.Event()
    monkeypatch.setattr("tasks.doorbell.ring_again", lambda queue: rung.set())
    first_end: list = []

    def run(turn):
        doorbell.hold("default")
        first_end.append(Task.objects.get(pk=turn.claim.task_id).due_at)
        assert rung.wait(60)
        assert not doorbell.is_held("default")
        deadline = timezone.now() + timedelta(seconds=60)
        while Task.objects.get(pk=turn.claim.task_id).due_at == first_end[0]:
            assert timezone.now() < deadline
        return Ok("Took a while.")

    task_id = play(run)
    assert runtime.drain("default") == 1
    assert Task.objects.get(pk=task_id).state == "completed"


def test_an_outcome_that_cannot_be_written_fails_the_task_at_once(play):
    task_id = play(lambda turn: Ok(artifacts=[ArtifactDraft("a", [{"data": {"x": object()}}])]))
    runtime.drain("default")
    assert Task.objects.get(pk=task_id).state == "failed"


def test_numbers_that_json_does_not_have_become_null(play):
    task_id = play(lambda turn: Ok(artifacts=[ArtifactDraft("a", [{"data": {"x": float("nan")}}])]))
    runtime.drain("default")
    assert Task.objects.get(pk=task_id).artifacts.get().parts == [{"data": {"x": None}}]


def test_a_message_during_a_turn_that_fails_is_looked_at(play):
    said: list[str] = []

    def run(turn):
        said.append(turn.text)
        if len(said) == 1:
            send_message(ALICE, turn.agent, Incoming.from_text("I meant README.md"), task_id=turn.claim.task_id)
            return Error("file_not_found", "There is no file REDME.md.")
        return Ok("Read.")

    task_id = play(run)
    runtime.drain("default")
    assert (Task.objects.get(pk=task_id).state, said[-1]) == ("completed", "I meant README.md")


def test_a_watch_that_fails_for_a_moment_goes_on(play, valkey, monkeypatch):
    failed, went_on = threading.Event(), threading.Event()

    def find_lost(claims):
        if not failed.is_set():
            failed.set()
            raise InterfaceError("connection already closed")
        went_on.set()
        return []

    monkeypatch.setattr("tasks.claims.find_lost", find_lost)
    monkeypatch.setattr("agents.watch.LOST_SECONDS", 0.0)

    def run(turn):
        assert went_on.wait(60)
        return Ok()

    task_id = play(run)
    runtime.drain("default")
    assert failed.is_set()
    assert Task.objects.get(pk=task_id).state == "completed"


@pytest.fixture
def sent_jobs(valkey, monkeypatch):
    """What was sent to Celery, instead of sending it. How long something takes here sends nothing."""
    monkeypatch.setattr(doorbell, "BELL_MILLISECONDS", 60_000)
    monkeypatch.setattr(runtime, "BACKLOG_SECONDS", 60)
    monkeypatch.setattr(watch, "_ring_for_slow_turns", lambda: None)
    jobs: list[str] = []
    monkeypatch.setattr(current_app, "send_task", lambda name, **options: jobs.append(name))
    return jobs


@pytest.fixture
def is_busy(monkeypatch):
    """A task was taken just now."""
    monkeypatch.setattr(runtime, "_busy_at", {"default": time.monotonic()})


def test_a_task_that_follows_closely_needs_no_job(play, sent_jobs, is_busy, monkeypatch):
    monkeypatch.setattr(runtime, "LINGER_SECONDS", 10)
    monkeypatch.setattr(runtime, "ATTEND_SECONDS", 60)
    done = threading.Semaphore(0)
    first = play(lambda turn: done.release() or Ok("Done."))
    assert sent_jobs == ["agents.drain"]

    worker = threading.Thread(target=lambda: (runtime.attend("default"), connection.close()))
    worker.start()
    try:
        assert done.acquire(timeout=10)
        others = [send_message(ALICE, Agent.objects.get(), Incoming.from_text("more")).task_id for _ in range(3)]
        assert all(done.acquire(timeout=10) for _ in others)
    finally:
        watch.is_stopping.set()
        doorbell.ring("default")
        worker.join(20)
        watch.is_stopping.clear()

    assert sent_jobs == ["agents.drain"]
    assert set(Task.objects.filter(state="completed").values_list("pk", flat=True)) == {first, *others}


def test_a_task_that_comes_as_the_door_is_left_is_taken(play, sent_jobs, is_busy, monkeypatch):
    doorbell.hold("default")
    late: list = []

    def leave(door, seconds):
        late.append(play(lambda turn: Ok("Done.")))
        return False

    monkeypatch.setattr(doorbell.Door, "hears", leave)
    doorbell.clear("default")
    assert runtime.attend("default") == 1
    assert (Task.objects.get(pk=late[0]).state, sent_jobs) == ("completed", [])


def test_a_door_that_is_gone_ends_the_wait_and_nothing_is_lost(play, sent_jobs, is_busy, monkeypatch):
    def break_off(door, seconds):
        play(lambda turn: Ok("Done."))
        raise redis.ConnectionError

    monkeypatch.setattr(doorbell.Door, "hears", break_off)
    assert runtime.attend("default") == 1
    assert Task.objects.get().state == "completed"


def test_a_task_by_itself_is_not_waited_behind(play, sent_jobs, monkeypatch):
    monkeypatch.setattr(runtime, "_busy_at", {})
    monkeypatch.setattr(doorbell, "standing_at_door", None)
    play(lambda turn: Ok("Done."))
    assert runtime.attend("default") == 1


def test_a_helper_leaves_the_bell_to_who_holds_it(play, sent_jobs):
    play(lambda turn: Ok("Done."))
    doorbell.hold("default")
    for _ in range(2):
        send_message(ALICE, Agent.objects.get(), Incoming.from_text("more"))
    assert runtime.drain("default") == 3
    assert doorbell.is_held("default")


def test_a_bell_that_was_only_rung_is_cleared(play, sent_jobs):
    for _ in range(3):
        play(lambda turn: Ok("Done."))
        assert runtime.drain("default") == 1
    assert sent_jobs == ["agents.drain"] * 3


def test_a_worker_that_stops_claims_nothing_more(play, valkey):
    def run(turn):
        watch.is_stopping.set()
        return Ok("Done.")

    first = play(run)
    play(run)
    try:
        assert runtime.drain("default") == 1
    finally:
        watch.is_stopping.clear()
    assert Task.objects.get(pk=first).state == "completed"
    assert Task.objects.get(state="submitted").epoch == 0
