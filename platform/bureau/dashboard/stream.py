"""What is new on a mission's page, sent as it happens (Server-Sent Events).

Each message holds the regions of the page that changed, rendered, as out-of-band swaps for HTMX, and the
lines that its log grew by; its id is the number of the last event in it. So a page asks "anything after
event 41?", and whoever lost the connection goes on where it was, on any web process. It is one message
per batch of events: with a request of the page's for every change, a streamed answer would be a hundred
requests. An idle stream holds no thread and no database connection.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

from asgiref.sync import SyncToAsync
from django.db import connections
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.middleware.csrf import get_token
from django.template.loader import render_to_string
from django.views.decorators.http import require_GET

from agents.stopping import read_stopping
from bureau.dashboard import record
from bureau.dashboard.access import as_caller, find_task
from bureau.dashboard.mission import regions
from bureau.dashboard.plan import read_bill, read_parts
from directory.identity import Caller
from tasks.aio import in_db
from tasks.follow import follow
from tasks.models import Event, Task
from tasks.queries import EventRow

# A stream ends after this time and the page opens another: so a session that has ended is noticed.
MAX_SECONDS = 600.0
HEARTBEAT = ": still here\n\n"
END = "event: end\ndata: \n\n"

# Which regions an event of each kind changes.
CHANGES: Mapping[str, frozenset[str]] = {
    Event.Kind.STATUS: frozenset({"state", "talk", "compose", "parts", "stopping"}),
    Event.Kind.MESSAGE: frozenset({"talk"}),
    Event.Kind.ARTIFACT: frozenset({"deliverables"}),
    Event.Kind.DECISION: frozenset({"decisions", "bill", "parts"}),
    Event.Kind.TOOL: frozenset({"tool_calls", "parts"}),
}


@require_GET
async def stream(request: HttpRequest, task_id: uuid.UUID) -> HttpResponseBase:
    """The news of a mission behind `?after=` or Last-Event-ID, until it ends.

    A mission that waits for an answer is followed on: the answer may come by another way than this page.
    """
    user = await request.auser()
    if not user.is_authenticated:
        return HttpResponse("Sign in first.", status=401, content_type="text/plain")
    caller = await in_db(as_caller, user)
    after = _resume_after(request)
    if after is None:
        return HttpResponse("`after` is the number of an event.", status=400, content_type="text/plain")
    try:
        task = await in_db(find_task, caller, task_id)
    except Http404:
        return HttpResponse("There is no such mission.", status=404, content_type="text/plain")
    response = StreamingHttpResponse(
        _news(caller, task, after, get_token(request)), content_type="text/event-stream; charset=utf-8"
    )
    response["Cache-Control"] = "no-store"
    # Some proxies collect a response before they pass it on; this one is never complete.
    response["X-Accel-Buffering"] = "no"
    return response


def _resume_after(request: HttpRequest) -> int | None:
    text = request.headers.get("Last-Event-ID") or request.GET.get("after", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


async def _news(caller: Caller, task: Task, after: int, csrf_token: str) -> AsyncIterator[str]:
    _let_go_of_thread()
    if task.is_terminal and after >= task.last_seq:
        yield END
        return
    until = time.monotonic() + MAX_SECONDS
    async for batch in follow(task.pk, after):
        if not batch:
            yield HEARTBEAT
        else:
            html, has_ended = await in_db(_render, caller, task.pk, batch, csrf_token)
            yield _message(batch[-1].seq, html)
            if has_ended:
                yield END
                return
        if time.monotonic() > until:
            return


def _let_go_of_thread() -> None:
    """End the thread that Django's middleware worked in, and its database connection.

    asgiref keeps one per request until the response is complete, which here takes minutes. What needs
    a thread after this (closing the response) gets a new one.
    """
    context = SyncToAsync.thread_sensitive_context.get(None)
    executor = SyncToAsync.context_to_thread_executor.pop(context, None) if context else None
    if executor is not None:
        executor.submit(connections.close_all)
        executor.shutdown(wait=False)


def _render(caller: Caller, task_id: uuid.UUID, batch: list[EventRow], csrf_token: str) -> tuple[str, bool]:
    """The regions that these events change, and whether the mission has ended with them."""
    task = find_task(caller, task_id)
    changed = frozenset[str]().union(*(CHANGES[event.kind] for event in batch))
    context = regions(caller, task, csrf_token) | {"changed": changed, "lines": record.to_lines(batch)}
    context |= {name: read(task) for name, read in _READERS.items() if name in changed}
    has_ended = task.is_terminal and batch[-1].seq >= task.last_seq
    return render_to_string("dashboard/news.html", context), has_ended


_READERS: Mapping[str, Any] = {
    "talk": record.read_talk,
    "deliverables": record.read_deliverables,
    "decisions": record.read_decisions,
    "tool_calls": record.read_tool_calls,
    "parts": read_parts,
    "bill": read_bill,
    "stopping": read_stopping,
}


def _message(number: int, html: str) -> str:
    lines = html.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return f"id: {number}\nevent: news\n" + "".join(f"data: {line}\n" for line in lines) + "\n"
