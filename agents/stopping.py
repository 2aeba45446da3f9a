"""How long a cancel took: from the request to the moment when the last leg below it had really stopped.

A leg is a turn in the hands of a worker (`tasks.models.Stop`) or a task at a remote agent (`RemoteLeg`). Nothing is
stored but the end of each; the rest is worked out here.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from agents.models import RemoteLeg
from tasks.models import Stop, Task
from tasks.queries import ids_of_tree

WORKER_LET_GO = "its worker let go"
WORKER_IS_SILENT = "its worker said nothing; its lease ran out"
AT_WORK = "a worker still holds it"
REMOTE_ENDED = "the remote agent ended it"
REMOTE_LOST = "the remote agent could not be followed to its end"
AT_REMOTE = "the remote agent has not ended it yet"


@dataclass(frozen=True, slots=True)
class Leg:
    """One thing that was under way when the cancel came. `stopped_at` is None while it still is."""

    task_id: uuid.UUID
    title: str
    who: str
    how: str
    asked_at: datetime
    stopped_at: datetime | None

    @property
    def seconds(self) -> float | None:
        """How long this one took; None while it is still under way."""
        return max(0.0, (self.stopped_at - self.asked_at).total_seconds()) if self.stopped_at else None


@dataclass(frozen=True, slots=True)
class Stopping:
    """All legs of a canceled task and of what was below it; empty when nothing was under way."""

    asked_at: datetime
    legs: Sequence[Leg]

    @property
    def open(self) -> int:
        """How many legs have not stopped yet."""
        return sum(leg.stopped_at is None for leg in self.legs)

    @property
    def seconds(self) -> float | None:
        """From the request until the last leg had stopped; None while one has not."""
        if self.open:
            return None
        ends = [leg.stopped_at for leg in self.legs if leg.stopped_at]
        return max([0.0, *((end - self.asked_at).total_seconds() for end in ends)])


def read_stopping(task: Task) -> Stopping | None:
    """What is known of the end of a canceled task; None for one that was not canceled."""
    if task.state != Task.State.CANCELED:
        return None
    ids = ids_of_tree(task)
    now = timezone.now()
    turns = [_of_turn(stop, now) for stop in Stop.objects.filter(pk__in=ids).select_related("task")]
    remote = RemoteLeg.objects.filter(task__in=ids, task__state=Task.State.CANCELED)
    remote = remote.exclude(phase=RemoteLeg.Phase.IDLE).select_related("task__agent")
    # What had ended there before it was canceled here was no leg any more.
    away = [_of_remote(leg) for leg in remote if leg.ended_at is None or leg.ended_at >= leg.task.status_at]
    asked_at = min([task.status_at, *(leg.asked_at for leg in turns if leg.task_id == task.pk)])
    return Stopping(asked_at, [*turns, *away])


def _of_turn(stop: Stop, now: datetime) -> Leg:
    is_silent = stop.stopped_at is None and stop.lease_until <= now
    ended = stop.lease_until if is_silent else stop.stopped_at
    how = WORKER_IS_SILENT if is_silent else WORKER_LET_GO if ended else AT_WORK
    return Leg(stop.task_id, str(stop.task), stop.worker, how, stop.asked_at, ended)


def _of_remote(leg: RemoteLeg) -> Leg:
    is_over = leg.phase == RemoteLeg.Phase.ENDED
    how = AT_REMOTE if not is_over else REMOTE_LOST if leg.error else REMOTE_ENDED
    ended = (leg.ended_at or leg.task.status_at) if is_over else None
    return Leg(leg.task_id, str(leg.task), leg.task.agent.name, how, leg.task.status_at, ended)
