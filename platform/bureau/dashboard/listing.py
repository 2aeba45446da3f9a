"""The list of missions, cheap at any number of them: keyset pages, capped counts, searches of a bounded stretch.

Every query here is a walk along an index of `Task` that stops early; none looks at all rows.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import heapq
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import Q, QuerySet

from directory.identity import Caller
from tasks.content import text_of
from tasks.exceptions import InvalidMessage
from tasks.models import Task

PAGE_SIZE = 25
COUNT_CAP = 1000
# How many missions one search looks through; the next page goes on from there.
SEARCH_STRETCH = 10_000


@dataclass(frozen=True, slots=True)
class Filter:
    """One tab above the list. `states` is empty for the one that shows everything."""

    key: str
    label: str
    states: tuple[str, ...]


FILTERS = (
    Filter("", "All", ()),
    Filter("running", "Running", Task.RUNNING),
    Filter("waiting", "Needs an answer", Task.INTERRUPTED),
    Filter("completed", "Completed", (Task.State.COMPLETED,)),
    Filter("failed", "Failed", (Task.State.FAILED,)),
    Filter("rejected", "Rejected", (Task.State.REJECTED,)),
    Filter("canceled", "Canceled", (Task.State.CANCELED,)),
)


class Mark(NamedTuple):
    """A place in the list: everything behind it is older. The order is that of the indexes."""

    status_at: datetime
    id: uuid.UUID

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(f"{self.status_at.isoformat()}/{self.id.hex}".encode()).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> Mark:
        """Raises InvalidMessage."""
        try:
            at, _, last_id = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().partition("/")
            mark = cls(datetime.fromisoformat(at), uuid.UUID(last_id))
        except (binascii.Error, ValueError):
            raise InvalidMessage("That page address is broken; start from the newest missions.") from None
        if mark.status_at.tzinfo is None:
            raise InvalidMessage("That page address is broken; start from the newest missions.")
        return mark


class Row(NamedTuple):
    """One mission in the list."""

    status_at: datetime
    id: uuid.UUID
    title: str
    state: str
    status_message: dict[str, Any] | None
    owner: str
    agent: str
    last_seq: int
    created_at: datetime

    @property
    def mark(self) -> Mark:
        return Mark(self.status_at, self.id)

    @property
    def note(self) -> str:
        """What it waits for, or why it ended early: what a reader of the list wants to know next."""
        if self.state == Task.State.COMPLETED or not self.status_message:
            return ""
        return " ".join(text_of(self.status_message["parts"]).split())


COLUMNS = ("status_at", "id", "title", "state", "status_message", "owner", "agent__name", "last_seq", "created_at")


@dataclass(frozen=True, slots=True)
class Listing:
    """One page. `older` continues it; `searched_until` says how far back a search has looked, if not to the end."""

    rows: Sequence[Row]
    older: Mark | None = None
    searched_until: datetime | None = None

    @property
    def is_running(self) -> bool:
        """Whether something on it will change by itself."""
        return any(row.state in Task.RUNNING for row in self.rows)

    @property
    def signature(self) -> str:
        """Equal for equal lists: lets a poll be answered with "nothing new"."""
        seen = "".join(f"{row.id.hex}{row.state}{row.last_seq}" for row in self.rows)
        return hashlib.sha256(seen.encode()).hexdigest()[:16]


def missions_of(caller: Caller, *, everyone: bool) -> QuerySet[Task]:
    """The missions the caller may list; `everyone` counts for operators only."""
    missions = Task.objects.filter(parent=None)
    return missions if everyone and caller.is_operator else missions.filter(owner=caller.principal)


def list_missions(
    missions: QuerySet[Task], states: Iterable[str], search: str = "", after: Mark | None = None
) -> Listing:
    """A page of missions in any of `states` (all when empty), newest status first, behind the mark `after`.

    A search matches titles, ignoring case, or a task id as a whole.
    """
    if after:
        # The first condition alone says where in the index the walk begins; an OR would be read from its start.
        missions = missions.filter(status_at__lte=after.status_at)
        missions = missions.filter(Q(status_at__lt=after.status_at) | Q(id__lt=after.id))
    # One walk per state: an index that starts with the state gives each in order, but not their union.
    walks = [missions.filter(state=state) for state in states] or [missions]
    if search:
        return _search(walks, search)
    rows = _merged([_rows(walk) for walk in walks])
    return _page(rows)


def _search(walks: Sequence[QuerySet[Task]], search: str) -> Listing:
    try:
        wanted = uuid.UUID(search)
    except ValueError:
        pass
    else:
        return _page(_merged([_rows(walk.filter(pk=wanted)) for walk in walks]))
    found, ends = [], []
    for walk in walks:
        stretch = walk.order_by("-status_at", "-id")
        end = stretch.values_list("status_at", "id")[SEARCH_STRETCH - 1 : SEARCH_STRETCH].first()
        if end:
            ends.append(Mark(*end))
        inside = walk.filter(status_at__gte=end[0]) if end else walk
        found.append(_rows(inside.filter(title__icontains=search)))
    if not ends:
        return _page(_merged(found))
    # The walks looked back to different times; the page ends where the first of them did.
    end = max(ends)
    page = _page([row for row in _merged(found) if row.mark >= end])
    return page if page.older else Listing(page.rows, older=end, searched_until=end.status_at)


def _rows(walk: QuerySet[Task]) -> list[Row]:
    return [Row(*row) for row in walk.order_by("-status_at", "-id").values_list(*COLUMNS)[: PAGE_SIZE + 1]]


def _merged(lists: Sequence[list[Row]]) -> list[Row]:
    return list(heapq.merge(*lists, key=lambda row: row.mark, reverse=True))


def _page(rows: list[Row]) -> Listing:
    shown = rows[:PAGE_SIZE]
    return Listing(shown, older=shown[-1].mark if len(rows) > PAGE_SIZE else None)


def count_missions(missions: QuerySet[Task]) -> dict[str, int]:
    """How many missions each filter shows, by its key; never more than COUNT_CAP + 1, which means "more"."""
    by_state = {state: missions.filter(state=state)[: COUNT_CAP + 1].count() for state in Task.State.values}
    counts = {one.key: sum(by_state[state] for state in one.states or Task.State.values) for one in FILTERS}
    return {key: min(count, COUNT_CAP + 1) for key, count in counts.items()}
