"""Runs tools so that an act happens once: its row is written before it, its result after it.

What a crash leaves behind: no row, it was not begun; `started`, it may have happened; `succeeded` or
`failed`, it happened, and the same turn taken again gets the recorded result without acting.
"""

import logging
from typing import Any

from django.db import Error as DatabaseError
from django.db import transaction
from django.utils import timezone

from agents.exceptions import AgentError, BudgetExhausted, Stopped, ToolError
from agents.models import ToolCall
from agents.tools.base import P, Tool, ToolResult
from agents.turn import Turn
from tasks.content import clean
from tasks.exceptions import Superseded
from tasks.models import Event
from tasks.results import note

logger = logging.getLogger(__name__)

UNEXPECTED = "The tool broke down. The operator finds the reason in the logs of the worker."


class MayHaveHappened(AgentError):
    """The act was begun before, its end is unknown, and repeating it could do harm."""

    def __init__(self, call: ToolCall) -> None:
        super().__init__()
        self.call = call


def call_tool(turn: Turn, tool: Tool[P], params: P, key: str) -> ToolResult:
    """Run a tool under a key that is the same whenever this turn is run again.

    Raises ToolError, also a recorded one; MayHaveHappened; Stopped.
    """
    turn.check()
    call = ToolCall.objects.filter(task_id=turn.claim.task_id, key=key).first()
    if call is None:
        call = _begin(turn, tool, params, key)
    elif call.state == ToolCall.State.SUCCEEDED:
        return ToolResult.from_json(call.result or {})
    elif call.state == ToolCall.State.FAILED:
        raise ToolError(call.error_class, call.error)
    elif not tool.is_repeatable:
        raise MayHaveHappened(call)
    else:
        _take_over(turn, call)
    return _act(turn, tool, params, call)


def _begin(turn: Turn, tool: Tool[Any], params: P, key: str) -> ToolCall:
    try:
        with transaction.atomic():
            call = ToolCall.objects.create(
                task_id=turn.claim.task_id,
                key=key,
                tool=tool.name,
                params=clean(params.model_dump(mode="json")),
                epoch=turn.claim.epoch,
            )
            note(turn.claim, Event.Kind.TOOL, call.pk)
    except Superseded:
        raise Stopped from None
    return call


def _take_over(turn: Turn, call: ToolCall) -> None:
    """The same act under this turn's epoch, so that its earlier worker, should it still live, cannot end it."""
    taken = ToolCall.objects.filter(pk=call.pk, state=ToolCall.State.STARTED, epoch__lt=turn.claim.epoch)
    if not taken.update(epoch=turn.claim.epoch, started_at=timezone.now()):
        raise Stopped


def _act(turn: Turn, tool: Tool[P], params: P, call: ToolCall) -> ToolResult:
    try:
        result = tool.run(turn, params)
    except ToolError as error:
        _end(turn, call, ToolCall.State.FAILED, error=clean(str(error)), error_class=error.error_class)
        raise
    except (Stopped, Superseded, BudgetExhausted, DatabaseError):
        # Neither done nor failed: the turn that is taken again will see to it.
        raise
    except Exception as error:
        logger.exception("Tool %s broke down", tool.name, extra={"action": "tool.crashed"})
        _end(turn, call, ToolCall.State.FAILED, error=UNEXPECTED, error_class="internal")
        raise ToolError("internal", UNEXPECTED) from error
    _end(turn, call, ToolCall.State.SUCCEEDED, result=clean(result.as_json()))
    return result


def _end(turn: Turn, call: ToolCall, state: str, **fields: Any) -> None:
    """Record the end of an act. It is recorded even when the claim is over meanwhile: it did happen."""
    is_over = False
    with transaction.atomic():
        mine = ToolCall.objects.filter(pk=call.pk, state=ToolCall.State.STARTED, epoch=turn.claim.epoch)
        if not mine.update(state=state, ended_at=timezone.now(), **fields):
            raise Stopped
        try:
            note(turn.claim, Event.Kind.TOOL, call.pk)
        except Superseded:
            is_over = True
    if is_over:
        raise Stopped


def unsettled_call(turn: Turn) -> ToolCall | None:
    """The act of this task whose end is unknown and that was asked about, if there is one."""
    return ToolCall.objects.filter(task_id=turn.claim.task_id, state=ToolCall.State.STARTED).order_by("pk").first()


def settle_call(turn: Turn, call: ToolCall, message: str) -> None:
    """Close an act of unknown end, after the user has said what to make of it."""
    ToolCall.objects.filter(pk=call.pk, state=ToolCall.State.STARTED).update(
        state=ToolCall.State.FAILED, ended_at=timezone.now(), error=message, error_class="unknown_end"
    )
