"""How often a request had to be sent again with more detail. Nothing is stored for it: the missions tell.

It was sent again *within the mission*, when the mission asked for what was missing and the person answered; or *as a
new mission*, when the one before it in the same context came to nothing and the new one says more of the same.
docs/adr/0049 has the reasons, and how well that is recognised.
"""

import re
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from django.db.models import Max, Min, Q

from agents.matching import similarities
from tasks.content import text_of
from tasks.models import Message, Task

LOOKED_AT = 1000
# Cosine of a request and the same with more detail, at least; tests/agents/test_resent.py has the pairs.
SAME = 0.5
CAME_TO_NOTHING = (Task.State.REJECTED, Task.State.FAILED, Task.State.CANCELED)
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Resent:
    """Counts of missions. `restated_asked` and `restated_unasked`: whether the earlier one had been asked for more."""

    missions: int = 0
    asked: int = 0
    answered: int = 0
    restated_asked: int = 0
    restated_unasked: int = 0

    @property
    def total(self) -> int:
        """How many requests had to be sent again, in either way."""
        return self.answered + self.restated_asked + self.restated_unasked

    @property
    def unasked(self) -> int:
        """How many missions asked for nothing more."""
        return self.missions - self.asked

    @property
    def rate(self) -> float | None:
        """Share of the missions; None where there are none."""
        return self.total / self.missions if self.missions else None

    @property
    def rate_asked(self) -> float | None:
        """Share of the missions that were asked for more, and had to be sent anew all the same."""
        return self.restated_asked / self.asked if self.asked else None

    @property
    def rate_unasked(self) -> float | None:
        """Share of the missions that were not asked for more, and should have been."""
        return self.restated_unasked / self.unasked if self.unasked else None

    def as_json(self) -> dict[str, Any]:
        """For machines; rates from 0 to 1."""
        rates = {"rate": self.rate, "rate_asked": self.rate_asked, "rate_unasked": self.rate_unasked}
        return asdict(self) | {"total": self.total} | rates


@dataclass(frozen=True, slots=True)
class _Mission:
    id: uuid.UUID
    context_id: uuid.UUID
    state: str


def read_resent(last: int = LOOKED_AT) -> Resent:
    """The counts over the newest missions of everybody, `last` at most."""
    newest = Task.objects.filter(parent=None).order_by("-status_at", "-id")
    rows = newest.values_list("pk", "context_id", "state", "created_at")[:last]
    missions = [_Mission(*row[:3]) for row in sorted(rows, key=lambda row: row[3])]
    ids = [mission.id for mission in missions]
    asked = dict(_questions(ids))
    spoke = dict(
        Message.objects.filter(task__in=list(asked), role=Message.Role.USER)
        .order_by()
        .values_list("task")
        .annotate(newest=Max("pk"))
    )
    restated = _restated(missions)
    after_question = sum(earlier in asked for earlier in restated)
    return Resent(
        missions=len(missions),
        asked=len(asked),
        answered=sum(spoke.get(task, 0) > first for task, first in asked.items()),
        restated_asked=after_question,
        restated_unasked=len(restated) - after_question,
    )


def says_more(earlier: str, later: str, *, refers: bool) -> bool:
    """Whether the later request is the earlier one with more detail. `refers`: it names the earlier one's mission."""
    before, after = (_WORD.findall(text.lower()) for text in (earlier, later))
    if len(after) <= len(before) or not set(after) - set(before):
        return False
    return refers or similarities(later, (earlier,))[0] >= SAME


def _questions(ids: list[uuid.UUID]) -> Iterable[tuple[uuid.UUID, int]]:
    """The missions that asked for what was missing, with the row of the message that asked first."""
    is_missing = Q(metadata__missingInputs__0__isnull=False) & ~Q(metadata__missingInputs__0="repeat")
    said = Message.objects.filter(task__in=ids, role=Message.Role.AGENT)
    asked = said.filter(Q(metadata__asks__kind="clarify") | is_missing)
    return asked.order_by().values_list("task").annotate(first=Min("pk"))


def _restated(missions: list[_Mission]) -> list[uuid.UUID]:
    """The missions that came to nothing and were sent again as a new one in more detail."""
    by_id = {mission.id: mission for mission in missions}
    links = Task.references.through.objects.filter(from_task__in=list(by_id), to_task__in=list(by_id))
    pairs = {(to, new): True for new, to in links.values_list("from_task", "to_task")}
    before: dict[uuid.UUID, _Mission] = {}
    for mission in missions:
        if (last := before.get(mission.context_id)) is not None:
            pairs.setdefault((last.id, mission.id), False)
        before[mission.context_id] = mission
    pairs = {pair: refers for pair, refers in pairs.items() if by_id[pair[0]].state in CAME_TO_NOTHING}
    texts = _requests({one for pair in pairs for one in pair})
    found = [old for (old, new), refers in pairs.items() if says_more(texts[old], texts[new], refers=refers)]
    return list(dict.fromkeys(found))


def _requests(ids: set[uuid.UUID]) -> dict[uuid.UUID, str]:
    """What each of these missions was asked first."""
    mine = Message.objects.filter(task__in=ids, role=Message.Role.USER).order_by()
    first = [row for _, row in mine.values_list("task").annotate(first=Min("pk"))]
    rows = Message.objects.filter(pk__in=first).values_list("task", "parts")
    return dict.fromkeys(ids, "") | {task: text_of(parts) for task, parts in rows}
