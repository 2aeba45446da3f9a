"""What is about to be done is likely to cost: in model calls, tokens and dollars, by what calls like it took lately.

An estimate is no limit. Budgets reserve the worst that a call may come to (`agents.budget`); this says what to expect.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.conf import settings
from pydantic import BaseModel

from agents.brain import get_brain
from agents.budget import CHARACTERS_PER_TOKEN, Room
from agents.models import Decision
from agents.points import FULFIL, SUMMARISE, TextPoint
from agents.pricing import Usage, cost_of
from agents.tools.base import Tool
from tasks.delegation import SubPlanDraft

# The calls of that point that are looked at, newest first.
SAMPLE = 50
# Of a point at which no model was asked yet.
UNKNOWN = Usage(input=3_000, output=1_000)
STEP, SYNTHESISE = "step", "synthesise"
POINTS: dict[str, TextPoint] = {"answer": FULFIL, "summarize": SUMMARISE}


@dataclass(frozen=True, slots=True)
class Estimate:
    """What it may take. `usd` is 0 as well where the price of the model is not known."""

    calls: int = 0
    tokens: int = 0
    usd: Decimal = Decimal(0)

    def __add__(self, other: "Estimate") -> "Estimate":
        return Estimate(self.calls + other.calls, self.tokens + other.tokens, self.usd + other.usd)

    def __str__(self) -> str:
        calls = f"{self.calls} call{'s' if self.calls != 1 else ''} to the model"
        return f"{calls}, {self.tokens:,} tokens{f' and ${_shown(self.usd)}' if self.usd else ''}"

    def as_json(self) -> dict[str, Any]:
        """For the record."""
        return {"calls": self.calls, "tokens": self.tokens, "usd": str(self.usd)}

    def share_of(self, room: Room) -> float:
        """How much of the room it takes, from 0; above 1 it does not fit.

        A single call of the last few is no large share: calls count only where there are too few of them.
        """
        shares = [_share(self.tokens, room.tokens), _share(float(self.usd), float(room.usd))]
        if self.calls > room.calls:
            shares.append(_share(self.calls, room.calls))
        return max(shares)


def of_plan(drafts: Sequence[SubPlanDraft]) -> Estimate:
    """What the sub-plans and the answer put together from them may take, if nothing has to be tried again."""
    if not get_brain().can_write:
        return Estimate()
    steps = [step for draft in drafts for step in draft.steps]
    points = [
        STEP if not step.tool else POINTS[step.tool].name for step in steps if not step.tool or step.tool in POINTS
    ]
    return _sum([*(_of_call(point, settings.BUREAU_MODEL_LARGE) for point in points), _of_answer()])


def of_act(tool: Tool[Any], params: BaseModel) -> Estimate:
    """What one use of a tool may take."""
    if tool.name not in POINTS or not get_brain().can_write:
        return Estimate()
    given = len(json.dumps(params.model_dump(mode="json"), ensure_ascii=False)) // CHARACTERS_PER_TOKEN
    return _of_call(POINTS[tool.name].name, settings.BUREAU_MODEL_LARGE, given)


def _of_answer() -> Estimate:
    return _of_call(SYNTHESISE, settings.BUREAU_MODEL_SMALL)


def _of_call(point: str, model: str, given: int = 0) -> Estimate:
    """One call at that point, with a prompt of `given` tokens at least."""
    usual = _usual(point)
    usage = Usage(input=max(usual.input, given), output=usual.output)
    return Estimate(1, usage.input + usage.output, cost_of(model, usage) or Decimal(0))


def _usual(point: str) -> Usage:
    """What a call at that point took, on the average of the newest. What was cached is counted as if it were not."""
    rows = Decision.objects.filter(point=point, attempts__gt=0, error="").order_by("-created_at")
    columns = ("attempts", "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")
    found = list(rows.values_list(*columns)[:SAMPLE])
    calls = sum(row[0] for row in found)
    if not calls:
        return UNKNOWN
    return Usage(input=sum(sum(row[1:4]) for row in found) // calls, output=sum(row[4] for row in found) // calls)


def _sum(estimates: Iterable[Estimate]) -> Estimate:
    return sum(estimates, Estimate())


def _share(amount: float, room: float) -> float:
    if not amount:
        return 0.0
    return amount / room if room > 0 else float("inf")


def _shown(usd: Decimal) -> str:
    return f"{usd:.2f}" if usd >= Decimal("0.1") else f"{usd:.4f}"
