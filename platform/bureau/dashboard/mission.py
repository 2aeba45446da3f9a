"""One mission's page, and what can be done there: answer, refine, cancel, download, read the whole log."""

from __future__ import annotations

import json
import mimetypes
import uuid
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.middleware.csrf import get_token
from django.shortcuts import redirect, render
from django.utils.http import content_disposition_header
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from agents.stopping import read_stopping
from bureau.dashboard import record, submit
from bureau.dashboard.access import caller_of, find_task, may_change, require_change, signed_in
from bureau.dashboard.forms import AnswerForm
from bureau.dashboard.plan import read_bill, read_parts, signature_of
from bureau.dashboard.question import closed_because, question_of
from directory.identity import Caller
from directory.names import names_of
from tasks.exceptions import QuestionIsClosed, TaskError, TaskIsTerminal, TaskNotInState
from tasks.models import Task
from tasks.queries import EVENT_BATCH, fetch_task
from tasks.services import cancel_task


@never_cache
@signed_in
@require_GET
def show(request: HttpRequest, task_id: uuid.UUID) -> HttpResponse:
    """The mission's page. What changes later comes in through `stream`."""
    caller = caller_of(request)
    suggested = request.GET.get("text", "").replace("\x00", "")
    return _page(request, caller, find_task(caller, task_id), AnswerForm(initial={"text": suggested}))


def _page(request: HttpRequest, caller: Caller, task: Task, form: AnswerForm) -> HttpResponse:
    everything = record.read_record(task)
    context = regions(caller, task, get_token(request), form) | {
        "record": everything,
        "talk": everything.talk,
        "deliverables": everything.deliverables,
        "decisions": everything.decisions,
        "tool_calls": everything.tool_calls,
        "lines": everything.lines,
        "bill": read_bill(task),
        "owner": names_of([task.owner])[task.owner],
        "parts": read_parts(task),
        "stopping": read_stopping(task),
        "references": task.references.only("id", "title", "state"),
        "referenced_by": task.referenced_by.only("id", "title", "state"),
    }
    return render(request, "dashboard/mission.html", context, status=400 if form.errors else 200)


def regions(caller: Caller, task: Task, csrf_token: str, form: AnswerForm | None = None) -> dict[str, Any]:
    """What every region of the page needs, whether the page or the stream renders it."""
    return {
        "task": task,
        "csrf_token": csrf_token,
        "form": form or AnswerForm(),
        "is_owner": task.owner == caller.principal,
        "is_operator": caller.is_operator,
        "is_waiting": task.state in Task.INTERRUPTED,
        "question": question_of(task.state, task.status_message),
        "may_change": may_change(caller, task.owner),
        "can_cancel": not task.is_terminal and may_change(caller, task.owner),
    }


@signed_in
@require_POST
def say(request: HttpRequest, task_id: uuid.UUID) -> HttpResponse:
    """A message to a mission: a follow-up while it is open, a new mission that refers to it once it has ended.

    Which of the two was meant is in the form, and so is the question that it answers: nobody who is late starts a
    mission, or answers what was asked next. An operator may answer a question, and nothing else, for the owner.
    """
    caller = caller_of(request)
    task = find_task(caller, task_id)
    is_refinement = request.POST.get("as") == "refinement"
    if task.owner != caller.principal and (is_refinement or not request.POST.get("question")):
        raise Http404("Only its owner can say something where nothing was asked.")
    require_change(caller, task)
    form = AnswerForm(request.POST, request.FILES)
    if form.is_valid():
        sent = form.cleaned_data
        try:
            if is_refinement:
                led_to = submit.refine(caller, task, sent["text"], sent["attachments"], sent["token"])
            else:
                led_to = submit.follow_up(
                    caller, task, sent["text"], sent["attachments"], sent["token"], sent["question"]
                )
        except QuestionIsClosed:
            task.refresh_from_db()
            form.add_error("text", closed_because(task))
        except TaskIsTerminal:
            form.add_error("text", "The mission ended before this arrived. Send it again to ask for a change.")
            task.refresh_from_db()
        except TaskError as error:
            form.add_error("text", str(error))
        else:
            return redirect("mission", task_id=led_to)
    return _page(request, caller, task, form)


@signed_in
@require_POST
def cancel(request: HttpRequest, task_id: uuid.UUID) -> HttpResponse:
    """Cancel the mission and all below it."""
    caller = caller_of(request)
    task = find_task(caller, task_id)
    require_change(caller, task)
    try:
        cancel_task(caller, task.pk, f"Canceled by {caller.name}.")
    except TaskNotInState:
        task.refresh_from_db(fields=["state"])
        messages.warning(request, f"Nothing to cancel: the mission has ended already ({task.get_state_display()}).")
    else:
        messages.success(request, "The mission was canceled.")
    return redirect("mission", task_id=task.pk)


@never_cache
@signed_in
@require_GET
def parts(request: HttpRequest, task_id: uuid.UUID) -> HttpResponse:
    """For HTMX: the plan and the cost as they stand, or 204 while nothing has happened below the mission.

    What happens in the mission itself comes in through `stream`; what happens below it is no event of its own.
    """
    task = find_task(caller_of(request), task_id)
    if request.GET.get("seen") == signature_of(task):
        return HttpResponse(status=204)
    return render(request, "dashboard/parts.html", {"task": task, "parts": read_parts(task), "bill": read_bill(task)})


@never_cache
@signed_in
@require_GET
def stop(request: HttpRequest, task_id: uuid.UUID) -> HttpResponse:
    """For HTMX: how far the stopping of a canceled mission has come."""
    task = find_task(caller_of(request), task_id)
    return render(request, "dashboard/regions/stop.html", {"task": task, "stopping": read_stopping(task)})


@never_cache
@signed_in
@require_GET
def log(request: HttpRequest, task_id: uuid.UUID) -> HttpResponse:
    """All events of a mission, in pages."""
    task = find_task(caller_of(request), task_id)
    try:
        after = max(0, int(request.GET.get("after", "0")))
    except ValueError:
        raise Http404("There is no such page.") from None
    until = after + EVENT_BATCH
    context = {
        "task": task,
        "lines": record.read_log(task.pk, after, until),
        "earlier": max(0, after - EVENT_BATCH) if after else None,
        "later": until if until < task.last_seq else None,
    }
    return render(request, "dashboard/log.html", context)


@never_cache
@signed_in
@require_GET
def download(request: HttpRequest, task_id: uuid.UUID, artifact_id: uuid.UUID, number: int) -> HttpResponse:
    """Part `number` (from 1) of an artifact as a file; parts that are stored files have an address of their own."""
    task = find_task(caller_of(request), task_id)
    view = fetch_task(Caller(task.owner, task.owner), task.pk, history=0, with_artifacts=True)
    artifact = next((one for one in view.artifacts if one["artifactId"] == str(artifact_id)), None)
    if artifact is None or not 1 <= number <= len(artifact["parts"]):
        raise Http404("There is no such artifact.")
    part = artifact["parts"][number - 1]
    if "file" in part:
        return redirect("file", part["file"])
    if "text" in part:
        content, suffix = part["text"], ".md"
    elif "data" in part:
        content, suffix = json.dumps(part["data"], indent=2, ensure_ascii=False), ".json"
    else:
        raise Http404("There is nothing to download.")
    name = part.get("filename") or artifact["name"]
    if not mimetypes.guess_type(name)[0]:
        name += suffix
    # Whatever it is: a browser that was told "text/html" from here would run it as ours.
    response = HttpResponse(content, content_type="text/plain; charset=utf-8")
    disposition = content_disposition_header(as_attachment=True, filename=name)
    response["Content-Disposition"] = disposition or "attachment"
    return response
