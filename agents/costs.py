"""What a task and all below it took of the model, and what is left of the mission's budget."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db.models import Count, Q, Sum

from agents.budget import Room, room_of
from agents.models import Budget, Decision
from tasks.models import Task
from tasks.queries import ids_of_tree


@dataclass(frozen=True, slots=True)
class Cost:
    """A sum over decisions. `usd` is None where no call had a known price; `unpriced` counts those without one."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: Decimal | None = None
    unpriced: int = 0

    def as_json(self) -> dict[str, Any]:
        """For machines; dollars as a decimal string, null where no price is known."""
        usd = None if self.usd is None else str(self.usd)
        return {"calls": self.calls, "inputTokens": self.tokens_in, "outputTokens": self.tokens_out, "usd": usd}


NOTHING = Cost()


@dataclass(frozen=True, slots=True)
class Bill:
    """What a task and all below it took (`total`), what is its own part of that, and what the mission may still take.

    `room` is None where no budget was opened, or a person has closed it.
    """

    total: Cost
    own: Cost
    room: Room | None

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {**self.total.as_json(), "own": self.own.as_json()}
        if self.room:
            found["left"] = {"calls": self.room.calls, "tokens": self.room.tokens, "usd": str(self.room.usd)}
        return found


def bill_of(task: Task) -> Bill:
    """The bill of a task, as far as it has come."""
    ids = ids_of_tree(task)
    by_task = costs_by_task(ids)
    mission = task.root_id or task.pk
    has_budget = Budget.objects.filter(pk=mission).exists()
    return Bill(_sum(by_task.values()), by_task.get(task.pk, NOTHING), room_of(mission) if has_budget else None)


def costs_by_task(ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, Cost]:
    """What each of these tasks took by itself; those that asked no model are left out."""
    tokens_in = Sum("input_tokens") + Sum("cache_read_tokens") + Sum("cache_write_tokens")
    sums = {
        "calls": Sum("attempts"),
        "tokens_in": tokens_in,
        "tokens_out": Sum("output_tokens"),
        "usd": Sum("cost_usd"),
        "unpriced": Count("pk", filter=Q(cost_usd=None)),
    }
    rows = Decision.objects.filter(task__in=list(ids), attempts__gt=0).order_by().values_list("task").annotate(**sums)
    return {task: Cost(*found) for task, *found in rows}


def _sum(costs: Iterable[Cost]) -> Cost:
    total = NOTHING
    for one in costs:
        usd = total.usd if one.usd is None else (total.usd or Decimal(0)) + one.usd
        total = Cost(
            total.calls + one.calls,
            total.tokens_in + one.tokens_in,
            total.tokens_out + one.tokens_out,
            usd,
            total.unpriced + one.unpriced,
        )
    return total
