"""The brain makes decisions, and every one becomes a row, whoever made it and however it went."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any, ClassVar, Generic, TypeVar

from django.conf import settings
from pydantic import ValidationError

from agents.budget import settling
from agents.exceptions import ModelError, Stopped
from agents.models import Decision
from agents.points import Answer, ChoicePoint, TextPoint, Triage, Writing
from agents.pricing import Usage, cost_of
from agents.turn import Turn
from tasks.content import clean
from tasks.exceptions import Superseded
from tasks.models import Event
from tasks.results import ArtifactDraft, note

A = TypeVar("A", bound=Answer)


@dataclass(frozen=True, slots=True)
class Choice(Generic[A]):
    """What was chosen. `is_fallback` when no clear answer came, with why in `error`."""

    answer: A
    is_fallback: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """A text that was written and streamed. `remark` tells people what is wrong with it, if anything."""

    artifact: ArtifactDraft
    remark: str = ""


@dataclass(slots=True)
class Verdict(Generic[A]):
    """An answer on its way to the record: who gave it, what it cost, and what went wrong."""

    answer: A
    brain: str
    candidates: list[dict[str, Any]] = field(default_factory=list)
    is_fallback: bool = False
    error: str = ""
    model: str = ""
    usage: Usage = field(default_factory=Usage)
    calls: int = 0


class Brain(ABC):
    """Makes decisions for agents. Keeps no state of its own between them."""

    name: ClassVar[str]
    can_write: ClassVar[bool]
    """Whether there is a language model behind it."""

    @abstractmethod
    def judge(self, turn: Turn, point: ChoicePoint[A], triage: Triage) -> Verdict[A]:
        """The answer at this point; always one, for want of a better one the point's fallback. Raises Stopped."""

    @abstractmethod
    def write(self, turn: Turn, point: TextPoint, writing: Writing, name: str) -> Written:
        """Write a text into the artifact `name`, streamed. Raises ModelError, then nothing was made up, or Stopped."""

    @abstractmethod
    def compose(self, turn: Turn, point: TextPoint, writing: Writing, keep: Callable[[str], None]) -> None:
        """Write a text that is material for others, not a deliverable, and `keep` it in the transaction that puts it
        on record. Raises ModelError, or Stopped."""

    def decide(self, turn: Turn, point: ChoicePoint[A], triage: Triage) -> Choice[A]:
        """Make one choice and put it on record. A turn that is run again gets the choice it made before."""
        if known := self._recall(turn, point, triage):
            return known
        recorded = triage.as_record()
        started = time.monotonic()
        verdict = self.judge(turn, point, triage)
        costs = spent(verdict.model, verdict.usage, verdict.calls)
        rows = point.rows(triage, verdict.answer)
        common = {
            "brain": verdict.brain,
            "inputs": recorded,
            "confidence": verdict.answer.confidence,
            "rationale": verdict.answer.rationale,
            "is_fallback": verdict.is_fallback,
            "error": verdict.error,
        }
        found: list[dict[str, Any]] = []
        for name, choice, candidates in rows:
            # One call may answer several points; what it cost stands with the first.
            cost = {"model": costs["model"]} if found else costs
            shown = verdict.candidates or candidates if len(rows) == 1 else candidates
            fields = {"point": name, "key": triage.key(name), "candidates": shown, "choice": choice}
            found.append(common | fields | cost)
        record(turn, started, *found)
        return Choice(verdict.answer, verdict.is_fallback, verdict.error)

    def _recall(self, turn: Turn, point: ChoicePoint[A], triage: Triage) -> Choice[A] | None:
        """The choice on record, so that what is done after a crash is what was begun before it."""
        names = point.recorded_as or (point.name,)
        if not _recorded(turn).issuperset(map(triage.key, names)):
            return None
        choice: dict[str, Any] = {}
        row: Decision | None = None
        for name in names:
            row = Decision.objects.filter(task_id=turn.claim.task_id, key=triage.key(name)).order_by("-id").first()
            if row is None or not triage.is_same(row.inputs):
                return None
            choice |= row.choice
        assert row is not None
        try:
            answer = point.answer.model_validate({**choice, "rationale": row.rationale, "confidence": row.confidence})
        except ValidationError:
            # Made by an earlier version, for which it was an answer.
            return None
        return Choice(answer, row.is_fallback, row.error)


def _recorded(turn: Turn) -> set[str]:
    if turn.recorded is None:
        turn.recorded = set(Decision.objects.filter(task_id=turn.claim.task_id).values_list("key", flat=True))
    return turn.recorded


def record(turn: Turn, started: float, *choices: dict[str, Any], keep: Callable[[], None] | None = None) -> None:
    """Write a Decision row with its event for each of these columns, all or none, and what they took of the budget.

    `keep` writes more in the same transaction. Raises Stopped when the claim is over.
    """
    latency = round((time.monotonic() - started) * 1000)
    rows = [Decision(task_id=turn.claim.task_id, latency_ms=latency, **clean(columns)) for columns in choices]
    try:
        with settling(turn):
            Decision.objects.bulk_create(rows)
            note(turn.claim, Event.Kind.DECISION, *(row.pk for row in rows))
            if keep:
                keep()
    except Superseded:
        raise Stopped from None
    if turn.recorded is not None:
        turn.recorded.update(row.key for row in rows)


def spent(model: str, usage: Usage, calls: int) -> dict[str, Any]:
    """The columns of a decision that say what the model took."""
    cost: Decimal | None = cost_of(model, usage) if model else None
    return {
        # A server may call itself what it likes.
        "model": model[:80],
        "attempts": calls,
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cache_read_tokens": usage.cache_read,
        "cache_write_tokens": usage.cache_write,
        "cost_usd": cost,
    }


@contextmanager
def recording_failure(turn: Turn, brain: str, point: TextPoint, writing: Writing) -> Iterator[float]:
    """Put a text that could not be written on record, then let the error go on. Gives the time it began."""
    started = time.monotonic()
    try:
        yield started
    except ModelError as error:
        columns = {"point": point.name, "key": writing.key(point.name), "brain": brain, "inputs": writing.as_record()}
        costs = spent(error.model, error.usage, error.calls)
        record(turn, started, columns | costs | {"error": f"{error.kind}: {error}"})
        raise


@lru_cache(maxsize=1)
def _brains() -> tuple[Brain, Brain]:
    from agents.claude import ClaudeBrain
    from agents.rules import RulesBrain

    return ClaudeBrain(), RulesBrain()


def get_brain() -> Brain:
    """Claude when there is a key or a server to ask, else the built-in rules."""
    claude, rules = _brains()
    return claude if settings.ANTHROPIC_API_KEY or settings.ANTHROPIC_BASE_URL else rules
