"""What a mission needs next, decided from plain values: no database, no model, no clock of its own."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

MAX_KEY = 64


class PartState(StrEnum):
    """How a sub-plan stands."""

    PENDING = "pending"
    ON_HOLD = "on-hold"
    """Not begun, and a person is asked whether something else shall be done instead."""
    RUNNING = "running"
    ASKING = "asking"
    DONE = "done"
    FAILED = "failed"
    DROPPED = "dropped"

    @property
    def is_over(self) -> bool:
        return self in (PartState.DONE, PartState.DROPPED)


UNDER_WAY = (PartState.RUNNING, PartState.ASKING)


@dataclass(frozen=True, slots=True)
class Part:
    """A sub-plan as the flow sees it."""

    key: str
    state: PartState
    depends_on: tuple[str, ...] = ()
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Delegate:
    """Give these sub-plans out: all that they need has been delivered."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Recover:
    """This sub-plan failed; decide what to do about it."""

    key: str


@dataclass(frozen=True, slots=True)
class Drop:
    """This sub-plan can never run: what it needs was given up."""

    key: str
    needs: str


@dataclass(frozen=True, slots=True)
class Ask:
    """These sub-plans wait for a person. What rests meanwhile is to be looked at `until` then."""

    keys: tuple[str, ...]
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before something ends, or before `until`."""

    until: datetime | None


@dataclass(frozen=True, slots=True)
class Synthesise:
    """All of it has ended."""


Move = Delegate | Recover | Drop | Ask | Wait | Synthesise


def next_move(parts: Sequence[Part], now: datetime) -> Move:
    """The one next thing. Work is given out before anybody is asked, and failures are seen to before that.

    1. What failed is recovered, since it decides what else may run.
    2. What can never run is dropped, one at a time, so that whatever needs it follows.
    3. What is ready runs; a sub-plan that rests until `retry_at` is not ready.
    4. Only then is a question asked or the end of something waited for.
    """
    by_key = {part.key: part for part in parts}
    for part in parts:
        if part.state == PartState.FAILED:
            return Recover(part.key)
    pending = [part for part in parts if part.state == PartState.PENDING]
    for part in pending:
        for key in part.depends_on:
            if by_key[key].state == PartState.DROPPED:
                return Drop(part.key, key)
    ready = [part for part in pending if all(by_key[key].state == PartState.DONE for key in part.depends_on)]
    startable = [part.key for part in ready if part.retry_at is None or part.retry_at <= now]
    if startable:
        return Delegate(tuple(startable))
    until = min((part.retry_at for part in ready if part.retry_at), default=None)
    if asking := tuple(part.key for part in parts if part.state == PartState.ASKING):
        return Ask(asking, until)
    return Synthesise() if all(part.state.is_over for part in parts) else Wait(until)


class PlanProblem(ValueError):
    """The plan cannot be run, and why, in words for whoever made it."""


def check_plan(depends_on: Mapping[str, Iterable[str]], steps: Mapping[str, int], most: int) -> None:
    """Raises PlanProblem: too many sub-plans or none, an empty one, an unknown id, or a cycle.

    `depends_on` and `steps` (how many) are by id of the sub-plan.
    """
    if not depends_on:
        raise PlanProblem("The plan has no sub-plans.")
    if len(depends_on) > most:
        raise PlanProblem(f"The plan has {len(depends_on)} sub-plans; {most} is the most.")
    for key, needed in depends_on.items():
        if not steps.get(key):
            raise PlanProblem(f"The sub-plan {key!r} has no steps.")
        for other in needed:
            if other not in depends_on:
                raise PlanProblem(f"{key!r} depends on {other!r}, which is no id of this plan.")
    left = {key: set(needed) for key, needed in depends_on.items()}
    while left:
        free = [key for key, needed in left.items() if not needed]
        if not free:
            raise PlanProblem(f"These sub-plans wait for each other: {', '.join(sorted(left))}.")
        left = {key: needed - set(free) for key, needed in left.items() if key not in free}


def depths(parts: Iterable[Part]) -> dict[str, int]:
    """For drawing: how many sub-plans have to be done before each one, along the longest way."""
    by_key = {part.key: part for part in parts}
    found: dict[str, int] = {}

    def depth(key: str) -> int:
        if key not in found:
            found[key] = 0
            needed = [other for other in by_key[key].depends_on if other in by_key]
            found[key] = 1 + max(map(depth, needed)) if needed else 0
        return found[key]

    for key in by_key:
        depth(key)
    return found


class ErrorKind(StrEnum):
    """What an error means for trying again."""

    TRANSIENT = "transient network"
    PERMISSION = "permission or auth"
    SYNTAX = "tool syntax"
    UNAVAILABLE = "agent unavailable"
    OTHER = "other"


TRANSIENT = {
    "timeout", "unreachable", "rate_limited", "overloaded", "server", "connection_lost", "timed_out", "transient",
}  # fmt: skip
PERMISSION = {"auth", "forbidden", "forbidden_file", "permission", "outside_root", "not_confirmed"}
SYNTAX = {"invalid_params", "invalid_path", "bad_request", "invalid"}
UNAVAILABLE = {"handler_missing", "agent_unavailable", "disabled", "given_up", "circuit_open"}


def classify(error_class: str) -> ErrorKind:
    """The kind of an error by its class, such as `model_timeout` or `invalid_params`."""
    word = error_class.removeprefix("model_")
    for kind, words in (
        (ErrorKind.TRANSIENT, TRANSIENT),
        (ErrorKind.PERMISSION, PERMISSION),
        (ErrorKind.SYNTAX, SYNTAX),
        (ErrorKind.UNAVAILABLE, UNAVAILABLE),
    ):
        if word in words:
            return kind
    return ErrorKind.OTHER


def backoff(attempt: int) -> float:
    """Seconds to rest before the attempt after `attempt` earlier ones."""
    return min(0.5 * 4.0**attempt, 60.0)
