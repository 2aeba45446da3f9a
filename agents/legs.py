"""The rows of remote legs: what was heard of a task at a remote agent, and what that means here.

A turn sends (`agents.handlers.remote`), the follower asks (`agents.following`); both write what they hear by
`heard`. What strangers say is data in `answer`, and marked wherever it is passed on.
"""

import hashlib
import json
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from agents.models import RemoteLeg
from directory.exceptions import (
    AccessDenied,
    AgentDisabled,
    AgentQuarantined,
    AgentUnavailable,
    CircuitOpen,
    ConnectionLost,
    DirectoryError,
    RemoteTaskNotFound,
    ServerFailed,
    Throttled,
    TimedOut,
    Unreachable,
)
from directory.models import Agent
from directory.untrusted import clean_text
from directory.wire import INTERRUPTED, TERMINAL, Answer, RemoteTask

Phase = RemoteLeg.Phase

FIRST_PAUSE = 0.5
# Between two looks, at first and in the end. A question there is mostly answered here, so it is seldom looked at.
PAUSES = {Phase.FOLLOWING: (FIRST_PAUSE, 15.0), Phase.ASKING: (5.0, 60.0)}
# Longer than any send takes: whoever began it is gone.
SEND_SECONDS = 60.0
# The word for errors that `orchestration.flow` classifies.
CLASSES: tuple[tuple[type[DirectoryError], str], ...] = (
    (TimedOut, "timed_out"),
    (ConnectionLost, "connection_lost"),
    (Unreachable, "unreachable"),
    (Throttled, "rate_limited"),
    (ServerFailed, "server"),
    (AccessDenied, "auth"),
    (CircuitOpen, "circuit_open"),
    (AgentDisabled, "disabled"),
    (AgentQuarantined, "agent_unavailable"),
    (AgentUnavailable, "agent_unavailable"),
    (RemoteTaskNotFound, "remote_task_lost"),
)


def class_of(error: DirectoryError) -> str:
    """The short stable word for an error."""
    return next((word for kind, word in CLASSES if isinstance(error, kind)), "remote_error")


def deadline_seconds(agent: Agent) -> float:
    """How long this agent may go without progress: `options["deadline_seconds"]`, or the setting."""
    given = agent.options.get("deadline_seconds")
    usable = isinstance(given, int | float) and not isinstance(given, bool) and given > 0
    return float(given) if usable else settings.BUREAU_REMOTE_DEADLINE_SECONDS


def is_overdue(leg: RemoteLeg, agent: Agent) -> bool:
    """Whether it is at work for too long without a sign of progress."""
    limit = timedelta(seconds=deadline_seconds(agent))
    return leg.phase == Phase.FOLLOWING and timezone.now() - leg.progress_at > limit


def heard(leg: RemoteLeg, answer: Answer) -> dict[str, Any]:
    """The fields of a leg after this answer."""
    now = timezone.now()
    fields: dict[str, Any] = {"failures": 0, "tries": 0}
    if not isinstance(answer, RemoteTask):
        said = {"state": "completed", "message": answer.message, "history": [], "artifacts": []}
        fields |= {"phase": Phase.ENDED, "answer": said, "progress_at": now, "due_at": None}
        return fields | ({"remote_context_id": answer.context_id} if answer.context_id else {})
    known = {key: value for key, value in asdict(answer).items() if key != "metadata"}
    known["status_at"] = answer.status_at.isoformat() if answer.status_at else None
    is_new = known != leg.answer
    phase = phase_of(leg, known)
    fields |= {"phase": phase, "due_at": None}
    if phase in PAUSES:
        first, longest = PAUSES[phase]
        pause = first if is_new or leg.pause < first else min(leg.pause * 1.5, longest)
        fields |= {"pause": pause, "due_at": now + timedelta(seconds=pause)}
    fields |= {"remote_task_id": answer.id, "remote_context_id": answer.context_id}
    return fields | ({"answer": known, "progress_at": now} if is_new else {})


def task_of(leg: RemoteLeg) -> RemoteTask:
    """The remote task as it was last heard of."""
    known = dict(leg.answer)
    status_at = datetime.fromisoformat(known["status_at"]) if known["status_at"] else None
    return RemoteTask(**known | {"id": leg.remote_task_id, "status_at": status_at})


def phase_of(leg: RemoteLeg, answer: dict[str, Any]) -> Phase:
    """What a remote task's state means. After an answer went out, the question before it is old."""
    if answer["state"] in TERMINAL:
        return Phase.ENDED
    if answer["state"] in INTERRUPTED and (leg.phase == Phase.ASKING or question_digest(answer) != leg.asked):
        return Phase.ASKING
    return Phase.FOLLOWING


def asks_the_same(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether a person who was asked by the one would be asked nothing else by the other."""
    return _asked_by(before) == _asked_by(after)


def _asked_by(answer: dict[str, Any]) -> tuple[str, Any]:
    message = answer.get("message")
    return answer["state"], message and message["parts"]


def question_digest(answer: dict[str, Any]) -> str:
    """Names the question that a remote task asks now."""
    return digest([answer["state"], answer.get("status_at"), answer.get("message")])


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def lost(leg: RemoteLeg, error_class: str, text: str) -> dict[str, Any]:
    """The fields of a leg that can be followed no longer."""
    return {
        "phase": Phase.ENDED,
        "error": clean_text(text, 300),
        "error_class": error_class,
        "due_at": None,
        "cancel_due": False,
    }


def write(leg: RemoteLeg, fields: dict[str, Any], *, phase: str | None = None, heard_by: str = "") -> bool:
    """Write these fields, if the leg is still as we know it, and with `heard_by` its stream still that one's.

    Returns whether it was.
    """
    same = RemoteLeg.objects.filter(pk=leg.pk, sent=leg.sent, phase=leg.phase if phase is None else phase)
    if heard_by:
        same = same.filter(stream_by=heard_by)
    if fields.get("phase") == Phase.ENDED:
        fields = fields | {"ended_at": timezone.now()}
    if not same.update(**fields):
        return False
    for name, value in fields.items():
        setattr(leg, name, value)
    return True
