"""Rolling memory: what we asked of remote agents, and what they answered. What came in is never here.

Newest first, bounded by number and age.
"""

from datetime import timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from directory.exceptions import RemoteError
from directory.models import Agent, OutgoingRequest
from directory.untrusted import clean_line, shorten, storable
from directory.wire import Answer, Outgoing, RemoteTask

MAX_REQUESTS = 1000
MAX_AGE = timedelta(days=30)
# Of a request, and of an answer: enough to know it again.
MAX_TEXT = 8000


def remember(
    message: Outgoing, *, url: str, name: str, agent: Agent | None = None, principal: str = "", sender: str = ""
) -> int:
    """Note a request that is about to be sent, and forget what is too old or too much; returns its id."""
    row = OutgoingRequest.objects.create(
        agent=agent,
        agent_name=name[:120],
        url=url[:500],
        principal=principal,
        sender=sender[:64],
        message_id=message.message_id,
        context_id=message.context_id,
        task_id=message.task_id,
        request=_short(message.parts),
    )
    forget_old()
    return row.pk


def note_answer(request_id: int, answer: Answer) -> None:
    """Note what came back; again when more comes. Nothing happens if the request is forgotten by now."""
    fields: dict[str, Any] = {"answer": _short(answer.parts), "answered_at": timezone.now(), "error": ""}
    if answer.context_id:
        fields["context_id"] = answer.context_id
    if isinstance(answer, RemoteTask):
        fields |= {"task_id": answer.id, "state": answer.state[:20]}
    OutgoingRequest.objects.filter(pk=request_id).update(**fields)


def note_task(agent: Agent, task: RemoteTask) -> None:
    """Note how the task is that a remembered request began or went on with."""
    rows = OutgoingRequest.objects.filter(agent=agent, task_id=task.id)
    latest = rows.order_by("-id").values_list("pk", flat=True).first()
    if latest is not None:
        note_answer(latest, task)


def note_error(request_id: int, error: RemoteError) -> None:
    """Note that it failed."""
    OutgoingRequest.objects.filter(pk=request_id).update(error=str(error)[:300], answered_at=timezone.now())


def recent(principal: str | None = None, *, agent: Agent | None = None, limit: int = 50) -> QuerySet[OutgoingRequest]:
    """The newest requests first: all of them, or those on one principal's behalf, or to one agent."""
    rows = OutgoingRequest.objects.filter(created_at__gt=timezone.now() - MAX_AGE).select_related("agent")
    rows = rows.order_by("-id")
    rows = rows if principal is None else rows.filter(principal=principal)
    return (rows if agent is None else rows.filter(agent=agent))[:limit]


def clear(principal: str | None = None) -> int:
    """Forget everything, or what was on one principal's behalf; returns how much that was."""
    rows = OutgoingRequest.objects.all() if principal is None else OutgoingRequest.objects.filter(principal=principal)
    return rows.delete()[0]


def excerpt(parts: list[dict[str, Any]], length: int = 120) -> str:
    """The beginning of what these parts say, on one line."""
    words = (part.get("text") or part.get("filename") or part.get("url") or "data" for part in parts)
    return clean_line(" ".join(map(str, words)), length)


def forget_old() -> int:
    """Forget what is too old or too much; returns how much that was."""
    last = OutgoingRequest.objects.order_by("-id").values_list("pk", flat=True)[MAX_REQUESTS : MAX_REQUESTS + 1].first()
    old = Q(pk__lte=last or 0) | Q(created_at__lt=timezone.now() - MAX_AGE)
    return OutgoingRequest.objects.filter(old).delete()[0]


def _short(parts: list[dict[str, Any]]) -> Any:
    """Parts without bytes, and with text cut."""
    named = [{key: "…" if key == "raw" else value for key, value in part.items()} for part in parts]
    return shorten(storable(named), MAX_TEXT)
