"""Turns due rows into turns of agents, and their outcomes into states. Safe to kill at any line.

claim -> the agent's handler -> one outcome -> one guarded write. What a killed worker leaves behind is
a lease that runs out.
"""

import logging
import os
import socket
import time
from collections.abc import Callable
from typing import Any

import redis
from django.db import DatabaseError, InterfaceError, OperationalError

from agents.budget import ask_for_more, settled
from agents.exceptions import BudgetExhausted, HandlerMissing, Stopped
from agents.outcomes import Auth, Blocked, Error, Ok, Outcome, Rejected, Waiting
from agents.registry import get_handler
from agents.turn import Turn
from agents.watch import TICK_SECONDS, watch
from directory import logs
from directory.services import get_agent_by_id
from tasks import doorbell
from tasks.aio import refresh_connection
from tasks.claims import Claim, claim_next, note_stopped, release
from tasks.exceptions import Superseded, Unread
from tasks.models import Task
from tasks.results import ArtifactDraft, finish, finish_and_claim_next, plain, resume, wait

logger = logging.getLogger(__name__)

WORKER = f"{socket.gethostname()}:{os.getpid()}"
HOLD_SECONDS = 0.4
# Tasks that follow each other this closely are waited for.
BUSY_SECONDS = 0.5
LINGER_SECONDS = 0.05
ATTEND_SECONDS = 1.0
# A task that waited this long was queued behind others: one drainer is not enough.
BACKLOG_SECONDS = 0.02
RETRY_SECONDS = 2.0
UNEXPECTED = "Something went wrong inside this agent. The operator finds the reason in the logs of the worker."

# When this process last took a turn, by queue.
_busy_at: dict[str, float] = {}


def attend(queue: str) -> int:
    """Drain the queue; while tasks follow closely upon each other, wait at its door for the next ones.

    Nobody needs a message for these. It ends after a moment without a task, and after ATTEND_SECONDS in any
    case, so that other jobs get this worker's slot. Returns how many turns were taken.
    """
    taken = 0
    is_busy = time.monotonic() - _busy_at.get(queue, -BUSY_SECONDS) < BUSY_SECONDS
    if is_busy and not doorbell.is_held(queue):
        with doorbell.standing_at_door(queue) as door:
            if door is not None:
                taken = _take_at_door(queue, door)
    # Whoever committed a row before the bell is cleared here has not rung anew.
    taken += drain(queue)
    if taken:
        _busy_at[queue] = time.monotonic()
    return taken


def _take_at_door(queue: str, door: doorbell.Door) -> int:
    drainer = Drainer(queue)
    until = time.monotonic() + ATTEND_SECONDS
    try:
        while time.monotonic() < until and not watch.is_stopping.is_set():
            drainer.hold()
            if not drainer.take() and not door.hears(LINGER_SECONDS):
                break
    except redis.RedisError:
        logger.debug("The door is gone", exc_info=True)
    drainer.end()
    return drainer.taken


def drain(queue: str) -> int:
    """Take due turns of this queue until none is left. Returns how many were taken.

    1. While another drainer holds the bell, it is left alone: that one looks after us.
    2. Otherwise it is cleared before the first look: who commits a row after that look rings anew.
    3. From the second task on there is a backlog, and the bell is held: ringing again would only cost.
    4. A held bell is cleared before the last look, for the same reason as in 2.
    """
    drainer = Drainer(queue)
    is_helping = doorbell.is_held(queue)
    if not is_helping:
        drainer.clear()
    while not watch.is_stopping.is_set():
        if not drainer.take():
            if not drainer.is_holding:
                break
            drainer.clear()
        elif drainer.taken > 1 and not is_helping:
            drainer.hold()
    drainer.end()
    return drainer.taken


class Drainer:
    """Takes turns of one queue, one by one. Where it can be, ending one and claiming the next are one commit."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.taken = 0
        self._held_at: float | None = None
        self._has_looked = False
        self._next: Claim | None = None
        self._is_ending = False
        refresh_connection()

    @property
    def is_holding(self) -> bool:
        return self._held_at is not None

    def hold(self) -> None:
        now = time.monotonic()
        if self._held_at is None or now - self._held_at > HOLD_SECONDS:
            doorbell.hold(self.queue)
            self._held_at = now

    def clear(self) -> None:
        doorbell.clear(self.queue)
        self._held_at = None

    def take(self) -> bool:
        """Take one due turn; False when none is due."""
        claim = self._next if self._has_looked else claim_next(self.queue, WORKER)
        self._has_looked, self._next = False, None
        if claim is None:
            return False
        if claim.waited > BACKLOG_SECONDS:
            doorbell.call_for_help(self.queue)
        began = time.monotonic()
        run_turn(claim, self.finish)
        self.taken += 1
        if self._held_at is not None and time.monotonic() - began > TICK_SECONDS:
            # The watch may have cleared the bell.
            self._held_at = 0.0
        return True

    def finish(self, claim: Claim, state: str, **result: Any) -> None:
        """`tasks.results.finish`; unless this is the last turn, the next task is claimed with it."""
        if self._is_ending or watch.is_stopping.is_set():
            finish(claim, state, **result)
        else:
            self._next = finish_and_claim_next(claim, state, **result)
            self._has_looked = True

    def end(self) -> None:
        """Leave no task behind that was claimed already, and no held bell."""
        self._is_ending = True
        if self._next is not None:
            self.take()
        if self.is_holding:
            self.clear()


def run_turn(claim: Claim, end: Callable[..., object] = finish) -> None:
    """One turn, from claim to written outcome; `end` is or does what `tasks.results.finish` does. Never raises."""
    with logs.bind(task_id=str(claim.task_id), context_id=str(claim.context_id)):
        try:
            turn = Turn(claim, get_agent_by_id(claim.agent_id))
            with watch.over(turn), settled(turn):
                outcome = _ask(turn)
            _settle(turn, outcome, end)
        except Stopped:
            _let_go(claim)
        except Superseded:
            logger.info("The turn was overtaken; its result is dropped", extra={"action": "turn.superseded"})
            _note_stopped(claim)
        except (OperationalError, InterfaceError):
            logger.warning("The database failed in the middle of a turn", exc_info=True, extra={"action": "turn.retry"})
            _retry_later(claim)
        except Exception:
            logger.exception("A turn could not be settled", extra={"action": "turn.unsettled"})
            _give_up(claim)


def _ask(turn: Turn) -> Outcome:
    """The agent's outcome; an exception that it did not foresee becomes an error with a fixed text."""
    try:
        return get_handler("remote" if turn.agent.is_remote else turn.agent.handler).run(turn)
    except HandlerMissing as error:
        logger.error("%s", error, extra={"action": "turn.no_handler"})
        return Error("handler_missing", str(error))
    except (Stopped, Superseded, OperationalError, InterfaceError):
        raise
    except BudgetExhausted as error:
        return Error("budget", str(error)) if error.is_closed else ask_for_more(error)
    except Exception:
        logger.exception("Agent %s failed", turn.agent.slug, extra={"action": "turn.crashed"})
        return Error("internal", UNEXPECTED)


def _settle(turn: Turn, outcome: Outcome, end: Callable[..., object]) -> None:
    """Write the outcome. When a message came in meanwhile, the turn is taken again with it."""
    try:
        if turn.claim.is_aside:
            return _settle_aside(turn, outcome)
        if isinstance(outcome, Waiting):
            return wait(turn.claim, outcome.until)
        state, message, artifacts = as_state(outcome)
        if message and outcome.untrusted:
            message.setdefault("metadata", {})["untrusted"] = outcome.untrusted
        until = outcome.until if isinstance(outcome, Blocked | Auth) else None
        end(turn.claim, state, message=message, artifacts=artifacts, until=until)
    except Unread:
        logger.info("A message came in during the turn; taking another", extra={"action": "turn.unread"})
        release(turn.claim)


def _settle_aside(turn: Turn, outcome: Outcome) -> None:
    """The task waits for a person and goes on waiting while it would ask the same; else it is worked on again."""
    if isinstance(outcome, Blocked | Auth) and outcome.about and outcome.about == turn.open_question:
        return wait(turn.claim, outcome.until)
    resume(turn.claim)


def as_state(outcome: Ok | Blocked | Auth | Rejected | Error) -> tuple[str, dict[str, Any] | None, list[ArtifactDraft]]:
    """The task state, status message and artifacts that an outcome means."""
    match outcome:
        case Ok():
            message = plain(outcome.message) if outcome.message else None
            if message and outcome.next_questions:
                message["metadata"] = {"nextQuestions": outcome.next_questions}
            return Task.State.COMPLETED, message, outcome.artifacts
        case Blocked():
            message = plain("\n".join([outcome.why, *outcome.questions] if outcome.why else outcome.questions))
            message["metadata"] = {"questions": outcome.questions, "missingInputs": outcome.missing_inputs}
            if outcome.about:
                message["metadata"]["asks"] = outcome.about
            return Task.State.INPUT_REQUIRED, message, []
        case Auth():
            message = plain(outcome.prompt)
            message["metadata"] = {"authType": outcome.scheme, "service": outcome.service}
            if outcome.about:
                message["metadata"]["asks"] = outcome.about
            return Task.State.AUTH_REQUIRED, message, []
        case Rejected():
            return Task.State.REJECTED, plain(outcome.reason), []
        case Error():
            message = plain(outcome.message)
            message["metadata"] = {"errorClass": outcome.error_class}
            return Task.State.FAILED, message, []


def _let_go(claim: Claim) -> None:
    """The turn was told to stop: canceled (nothing to do), or this worker ends (hand the task back)."""
    try:
        release(claim)
        logger.info("Handed the task back", extra={"action": "turn.handed_back"})
    except Superseded:
        logger.info("The turn was canceled or overtaken", extra={"action": "turn.stopped"})
        _note_stopped(claim)


def _note_stopped(claim: Claim) -> None:
    """Whoever canceled it wants to know when it really stopped; untold, that is when the lease runs out."""
    try:
        note_stopped(claim)
    except (OperationalError, InterfaceError):
        logger.warning("The end of a canceled turn could not be noted", extra={"action": "turn.stop_unnoted"})


def _give_up(claim: Claim) -> None:
    """An outcome that cannot be written will not get better by another turn."""
    refresh_connection()
    try:
        finish(claim, Task.State.FAILED, message=plain(UNEXPECTED), even_unread=True)
    except Superseded:
        _note_stopped(claim)
    except DatabaseError:
        logger.warning("The failure could not be written either; the lease will run out", exc_info=True)


def _retry_later(claim: Claim) -> None:
    """Due again soon, and counted; if even this cannot be written, the lease runs out instead."""
    refresh_connection()
    try:
        release(claim, after=RETRY_SECONDS * claim.attempt, counts=True)
    except Superseded:
        _note_stopped(claim)
    except (OperationalError, InterfaceError):
        logger.warning("Could not hand the task back; its lease will run out", extra={"action": "turn.abandoned"})
