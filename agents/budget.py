"""What a mission may take of the model: reserved before each call, settled after it, shared by the whole tree.

A reservation counts at its worst, so calls side by side cannot pass the limit together. One that a killed worker
left goes when its task is taken up again, or has ended.
"""

import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Count, F, Sum
from django.db.models.functions import Least
from django.utils import timezone

from agents.dialogue import Answered
from agents.exceptions import BudgetExhausted, ModelError
from agents.model_api import Ask, Reply, converse
from agents.models import Budget, Reservation
from agents.outcomes import Blocked, Error, Outcome
from agents.pricing import Usage, cost_of
from agents.turn import Turn

# Prompts are prose, JSON and code; fewer characters than this make a token in none of them.
CHARACTERS_PER_TOKEN = 3
EVERY_RAISE = 2
# What the columns hold.
MOST, MOST_USD = 2**31 - 1, Decimal(999_999)
CLOSED = "No more calls to the model: the mission is to end with what there is."


def mission_of(turn: Turn) -> uuid.UUID:
    """The id of the mission that a turn belongs to."""
    return turn.mission_id


def within_budget(turn: Turn, ask: Ask) -> Reply:
    """Ask the model, if the mission can afford the worst that this may come to.

    What fails for a moment is tried again while the mission can afford that, too. What it took is written down by
    `settling`. Raises BudgetExhausted before anything is asked, else what `converse` raises.
    """
    held = _reserve(turn, ask)
    paid = _Paid(held)
    # What a turn that was stopped took is not known: the model's answer was never read to its end.
    taken: tuple[int, Usage, str] | None = None
    try:
        reply = converse(turn, replace(ask, may_retry=paid.may_retry))
        taken = (reply.calls, reply.usage, reply.model)
    except ModelError as error:
        taken = (error.calls, error.usage, error.model or ask.model)
        raise
    finally:
        calls, usage, model = taken or (paid.calls + 1, paid.usage, ask.model)
        turn.unsettled.append(partial(_settle, held, calls - paid.calls, usage - paid.usage, model))
    return reply


@dataclass(slots=True)
class _Paid:
    """What the failed attempts at one call took: it is written down before another one, for which `held` stands."""

    held: Reservation
    calls: int = 0
    usage: Usage = field(default_factory=Usage)

    def may_retry(self, error: ModelError) -> bool:
        """Whether the mission can afford another attempt after this one."""
        with transaction.atomic():
            budget = _locked(self.held.budget_id)
            _pay(budget.pk, error.calls - self.calls, error.usage - self.usage, error.model)
            budget.refresh_from_db()
            try:
                _check(budget, list(budget.reservations.exclude(pk=self.held.pk)), self.held)
                fits = True
            except BudgetExhausted:
                fits = False
        self.calls, self.usage = error.calls, error.usage
        return fits


@contextmanager
def settling(turn: Turn) -> Iterator[None]:
    """A transaction in which the calls of this turn are settled, too; when it fails, they wait for the next one."""
    with transaction.atomic():
        yield
        # Last, since the mission's other tasks wait for that row.
        _settle_all(turn)
    turn.unsettled.clear()


@contextmanager
def settled(turn: Turn) -> Iterator[None]:
    """Behind the block no call of this turn is left to be settled, however it ended."""
    try:
        yield
    finally:
        if turn.unsettled:
            with settling(turn):
                pass


def _reserve(turn: Turn, ask: Ask) -> Reservation:
    prompt = (len(ask.prompt.stable) + len(ask.prompt.request)) // CHARACTERS_PER_TOKEN
    worst = Usage(input=prompt, output=ask.max_tokens)
    wanted = Reservation(
        budget_id=mission_of(turn),
        task_id=turn.claim.task_id,
        epoch=turn.claim.epoch,
        tokens=prompt + ask.max_tokens,
        usd=cost_of(ask.model, worst) or Decimal(0),
    )
    with transaction.atomic():
        _settle_all(turn)
        budget = _locked(wanted.budget_id)
        held = list(budget.reservations.select_related("task"))
        if left := [one.pk for one in held if _is_left(one, wanted)]:
            Reservation.objects.filter(pk__in=left).delete()
        _check(budget, [one for one in held if one.pk not in left], wanted)
        wanted.save(force_insert=True)
    turn.unsettled.clear()
    return wanted


def _is_left(held: Reservation, wanted: Reservation) -> bool:
    """Whether a killed worker left it: its task was taken up again, or has ended, and nobody can still be at it."""
    if held.task_id == wanted.task_id:
        return held.epoch < wanted.epoch
    over = timezone.now() - timedelta(seconds=settings.BUREAU_LEASE_SECONDS)
    return held.task.is_terminal and held.task.status_at < over


def _check(budget: Budget, held: Sequence[Reservation], wanted: Reservation) -> None:
    """Raises BudgetExhausted."""
    if budget.is_closed:
        raise BudgetExhausted(CLOSED, is_closed=True)
    if budget.calls + len(held) + 1 > budget.calls_limit:
        raise BudgetExhausted(f"The mission may call the model {budget.calls_limit} times, and has.")
    if budget.tokens + sum(one.tokens for one in held) + wanted.tokens > budget.tokens_limit:
        raise BudgetExhausted(
            f"The mission may take {budget.tokens_limit:,} tokens; it took {budget.tokens:,}, and the next call "
            f"may take {wanted.tokens:,}."
        )
    if budget.usd + sum(one.usd for one in held) + wanted.usd > budget.usd_limit:
        raise BudgetExhausted(
            f"The mission may cost ${budget.usd_limit:.2f}; it cost ${budget.usd:.2f}, and the next call may cost "
            f"${wanted.usd:.2f}."
        )


def _locked(mission: uuid.UUID) -> Budget:
    """The mission's budget, ours until the transaction ends."""
    rows = Budget.objects.select_for_update()
    try:
        return rows.get(pk=mission)
    except Budget.DoesNotExist:
        _open(mission)
        return rows.get(pk=mission)


def _open(mission: uuid.UUID) -> None:
    Budget.objects.bulk_create([Budget(mission_id=mission, **_limits())], ignore_conflicts=True)


def _limits() -> dict[str, Any]:
    return {
        "calls_limit": settings.BUREAU_BUDGET_CALLS,
        "tokens_limit": settings.BUREAU_BUDGET_TOKENS,
        "usd_limit": Decimal(str(settings.BUREAU_BUDGET_USD)),
    }


def _settle_all(turn: Turn) -> None:
    """Whoever calls this forgets `turn.unsettled` when the transaction is through, and not before."""
    for settle in turn.unsettled:
        settle()


def _settle(held: Reservation, calls: int, usage: Usage, model: str) -> None:
    # When another worker has taken over and let it go, what was taken counts all the same.
    Reservation.objects.filter(pk=held.pk).delete()
    _pay(held.budget_id, calls, usage, model)


def _pay(mission: uuid.UUID, calls: int, usage: Usage, model: str) -> None:
    tokens = usage.input + usage.output + usage.cache_read + usage.cache_write
    Budget.objects.filter(pk=mission).update(
        calls=F("calls") + calls,
        tokens=F("tokens") + tokens,
        usd=F("usd") + (cost_of(model, usage) or Decimal(0)),
    )


@dataclass(frozen=True, slots=True)
class Room:
    """What a mission may still take, beyond what calls under way may come to."""

    calls: int
    tokens: int
    usd: Decimal


def room_of(mission: uuid.UUID) -> Room | None:
    """What is left of a mission's budget; None when a person has closed it, so that nothing more will be taken."""
    budget = Budget.objects.filter(pk=mission).first() or Budget(mission_id=mission, **_limits())
    if budget.is_closed:
        return None
    held = Reservation.objects.filter(budget_id=mission).aggregate(n=Count("pk"), tokens=Sum("tokens"), usd=Sum("usd"))
    return Room(
        max(0, budget.calls_limit - budget.calls - held["n"]),
        max(0, budget.tokens_limit - budget.tokens - (held["tokens"] or 0)),
        max(Decimal(0), budget.usd_limit - budget.usd - (held["usd"] or 0)),
    )


def raise_budget(mission: uuid.UUID, message_id: str) -> None:
    """Raise every limit, once for each message that asks for it."""
    # Where not even the first call fitted, there is no row yet.
    _open(mission)
    Budget.objects.filter(pk=mission).exclude(answered=message_id).update(
        calls_limit=Least(F("calls_limit"), MOST // EVERY_RAISE) * EVERY_RAISE,
        tokens_limit=Least(F("tokens_limit"), MOST // EVERY_RAISE) * EVERY_RAISE,
        usd_limit=Least(F("usd_limit"), MOST_USD / EVERY_RAISE) * EVERY_RAISE,
        answered=message_id,
        is_closed=False,
    )


def close_budget(mission: uuid.UUID) -> None:
    """No more calls to the model in this mission."""
    _open(mission)
    Budget.objects.filter(pk=mission).update(is_closed=True)


# What was meant has to be the one thing that was said: a stop cannot be taken back.
ANSWERS = {
    "raise": re.compile(r"\b(?:raise|more|continue|go on|yes)\b", re.IGNORECASE),
    "finish": re.compile(r"\b(?:finish|what there is|wrap up|end)\b", re.IGNORECASE),
    "stop": re.compile(r"\b(?:stop|cancel)\b|^\W*no(?:\W+thanks)?\W*$", re.IGNORECASE),
}
NEGATED = re.compile(r"(?:\b(?:do not|not|never|dont)|n['\u2019]t)\b", re.IGNORECASE)
QUESTION = "Shall I raise it to twice as much, finish with what there is, or stop? Answer raise, finish or stop."


def ask_for_more(error: BudgetExhausted) -> Blocked:
    """The question that stands in for a failure."""
    return Blocked(str(error), [QUESTION], about={"kind": "budget"})


def take_budget_answer(turn: Turn, answer: Answered) -> Outcome | None:
    """Do what the person said about the budget. None: go on."""
    said = [name for name, pattern in ANSWERS.items() if pattern.search(answer.text)]
    if len(said) != 1 or NEGATED.search(answer.text):
        return Blocked("", [QUESTION], about={"kind": "budget"})
    match said[0]:
        case "stop":
            return Error("budget", "Stopped, as you asked: the budget of this mission is used up.")
        case "finish":
            close_budget(mission_of(turn))
        case "raise":
            raise_budget(mission_of(turn), answer.message_id)
    return None
