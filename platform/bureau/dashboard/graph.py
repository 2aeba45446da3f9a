"""A mission's plan as a drawing: from left to right where there is room, else from top to bottom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agents.orchestration.flow import Part, PartState, depths
from tasks.models import SubPlan, Subtask, Task

# Of a box, and of the room between two, in the units of the drawing, which are pixels where it is not scaled.
WIDTH, HEIGHT, ACROSS, DOWN = 196, 64, 52, 16
# Where the boxes stand one below the other, lines run beside them, a lane for each sub-plan that others need.
LANE, NARROW_WIDTH = 14, 260
# Of the line with state and role: where it begins, and how wide a letter is on the average.
INDENT, LETTER = 16, 7

TONES = {
    "completed": "good",
    "failed": "bad",
    "rejected": "bad",
    "dropped": "bad",
    "input-required": "ask",
    "auth-required": "ask",
    "working": "busy",
}


@dataclass(frozen=True, slots=True)
class Box:
    """One sub-plan. `x` and `y` are its upper left corner, `width` its width; the height is HEIGHT."""

    pk: int
    key: str
    role: str
    state: str
    tone: str
    needs: tuple[str, ...]
    x: int
    y: int
    width: int

    @property
    def middle(self) -> int:
        return self.y + HEIGHT // 2

    @property
    def shown_role(self) -> str:
        """The role, as much of it as there is room for beside the state."""
        room = (self.width - INDENT) // LETTER - len(f"{self.state} · ")
        return self.role if len(self.role) <= room else f"{self.role[: max(room - 1, 1)]}…"

    @property
    def label(self) -> str:
        """What is read out."""
        after = f", after {', '.join(self.needs)}" if self.needs else ""
        return f"{self.key} ({self.role}): {self.state}{after}"


@dataclass(frozen=True, slots=True)
class Graph:
    """What the template draws. `paths` are lines from what is needed to who needs it, as SVG path data."""

    boxes: list[Box]
    paths: list[str]
    width: int
    height: int


def state_of(plan: SubPlan) -> str:
    """A sub-plan's state in a word: that of its task, or of its steps where the coordinator does them itself."""
    if plan.is_dropped:
        return "dropped"
    if plan.task is not None:
        return str(plan.task.state)
    states = {step.state for step in plan.subtasks.all()}
    if states == {Subtask.State.DONE}:
        return str(Task.State.COMPLETED)
    return "tried again" if plan.attempt else "not started"


def draw(plans: Sequence[SubPlan]) -> Graph | None:
    """Each sub-plan to the right of all that it depends on; None where there is nothing to draw.

    `plans` come with tasks, steps and dependencies.
    """
    if not plans:
        return None
    needs = _needs(plans)
    columns = _depths(needs)
    filled: dict[int, int] = defaultdict(int)
    boxes: dict[str, Box] = {}
    for plan in plans:
        column = columns[plan.key]
        boxes[plan.key] = _box(plan, needs, column * (WIDTH + ACROSS), filled[column] * (HEIGHT + DOWN), WIDTH)
        filled[column] += 1
    paths = [_across(boxes[other], boxes[key]) for key, others in needs.items() for other in others]
    width = max(box.x for box in boxes.values()) + WIDTH
    height = max(box.y for box in boxes.values()) + HEIGHT
    return Graph(list(boxes.values()), paths, width, height)


def draw_narrow(plans: Sequence[SubPlan]) -> Graph | None:
    """One below the other, each after all that it depends on."""
    if not plans:
        return None
    needs = _needs(plans)
    rows = _depths(needs)
    needed = {other for others in needs.values() for other in others}
    ordered = sorted(plans, key=lambda plan: rows[plan.key])
    lanes = {plan.key: number for number, plan in enumerate(plan for plan in ordered if plan.key in needed)}
    left = (len(lanes) + 1) * LANE if lanes else 0
    boxes = {
        plan.key: _box(plan, needs, left, number * (HEIGHT + DOWN), NARROW_WIDTH) for number, plan in enumerate(ordered)
    }
    paths = [
        _beside(boxes[other], boxes[key], left - (lanes[other] + 1) * LANE)
        for key, others in needs.items()
        for other in others
    ]
    return Graph(list(boxes.values()), paths, left + NARROW_WIDTH, len(ordered) * (HEIGHT + DOWN) - DOWN)


def _needs(plans: Sequence[SubPlan]) -> dict[str, tuple[str, ...]]:
    known = {plan.key for plan in plans}
    return {plan.key: tuple(one.key for one in plan.depends_on.all() if one.key in known) for plan in plans}


def _depths(needs: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    return depths([Part(key, PartState.PENDING, others) for key, others in needs.items()])


def _box(plan: SubPlan, needs: Mapping[str, tuple[str, ...]], x: int, y: int, width: int) -> Box:
    state = state_of(plan)
    words = state.replace("-", " ")
    return Box(plan.pk, plan.key, plan.role, words, TONES.get(state, "idle"), needs[plan.key], x, y, width)


def _across(one: Box, other: Box) -> str:
    """From the right side of one box to the left side of another."""
    start, end = one.x + one.width, other.x
    bend = (start + end) // 2 if other.x - start <= ACROSS else end - ACROSS // 2
    return f"M{start} {one.middle} C{bend} {one.middle} {bend} {other.middle} {end} {other.middle}"


def _beside(one: Box, other: Box, lane: int) -> str:
    """From the left side of one box along a lane to the left side of one below."""
    low, high = one.middle + 8, other.middle - 8
    down = f"Q{lane} {low} {lane} {low + 6} V{high - 6} Q{lane} {high} {lane + 6} {high}"
    return f"M{one.x} {low} H{lane + 6} {down} H{other.x}"
