"""The inbox: every open question in one place, with a form to answer it. Operators see everybody's."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from agents.resent import read_resent
from bureau.dashboard import record, submit
from bureau.dashboard.access import caller_of, find_task, may_change, require_change, signed_in
from bureau.dashboard.forms import AnswerForm
from bureau.dashboard.listing import Mark, Row, list_missions, missions_of
from bureau.dashboard.question import Question, closed_because, question_of
from directory.identity import Caller
from directory.names import names_of
from tasks.exceptions import InvalidMessage, QuestionIsClosed, TaskError, TaskIsTerminal
from tasks.models import Task

# The number beside "Questions" goes no further.
COUNT_CAP = 99


@dataclass(frozen=True, slots=True)
class Item:
    """One open question with its form."""

    row: Row
    question: Question
    parts: list[record.Part]
    form: AnswerForm
    is_own: bool
    may_answer: bool


@never_cache
@signed_in
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """The open questions, newest first. HTMX asks for the list alone, and hears 204 when nothing is new."""
    return _page(request)


@signed_in
@require_POST
def answer(request: HttpRequest, task_id: uuid.UUID) -> HttpResponse:
    """An answer given in the inbox. One that comes too late is shown again, with the reason, and changes nothing."""
    caller = caller_of(request)
    task = find_task(caller, task_id)
    require_change(caller, task)
    form = AnswerForm(request.POST, request.FILES)
    if form.is_valid():
        sent = form.cleaned_data
        # What names no question answers none.
        question = sent["question"] or "none"
        try:
            submit.follow_up(caller, task, sent["text"], sent["attachments"], sent["token"], question)
        except QuestionIsClosed:
            task.refresh_from_db()
            form.add_error("text", closed_because(task))
        except TaskIsTerminal:
            task.refresh_from_db()
            form.add_error(
                "text", f"The mission has ended ({task.get_state_display()}), so your answer changed nothing."
            )
        except TaskError as error:
            form.add_error("text", str(error))
        else:
            messages.success(request, f"Answered: {task}")
            return redirect("questions")
    return _page(request, task, form)


@never_cache
@signed_in
@require_GET
def count(request: HttpRequest) -> HttpResponse:
    """For HTMX: the number in the navigation, or 204 while it is the same."""
    waiting = count_questions(caller_of(request))
    if request.GET.get("seen") == waiting:
        return HttpResponse(status=204)
    return render(request, "dashboard/regions/waiting.html", {"waiting": waiting})


def count_questions(caller: Caller) -> str:
    """How many questions this caller could answer, as it is shown; "" for none."""
    missions = missions_of(caller, everyone=True)
    found = sum(missions.filter(state=state)[: COUNT_CAP + 1].count() for state in Task.INTERRUPTED)
    return f"{COUNT_CAP}+" if found > COUNT_CAP else str(found or "")


def _page(request: HttpRequest, failed: Task | None = None, form: AnswerForm | None = None) -> HttpResponse:
    caller = caller_of(request)
    is_mine = not caller.is_operator or request.GET.get("whose") == "mine"
    after = request.GET.get("after", "")
    try:
        mark = Mark.parse(after) if after else None
    except InvalidMessage as error:
        messages.error(request, str(error))
        return redirect("questions")
    listing = list_missions(missions_of(caller, everyone=not is_mine), Task.INTERRUPTED, after=mark)
    if request.GET.get("seen") == listing.signature:
        return HttpResponse(status=204)
    items = [_item(caller, row, failed, form) for row in listing.rows if row.status_message]
    is_open = failed is not None and any(item.form is form for item in items)
    context: dict[str, Any] = {
        "listing": listing,
        "items": items,
        "closed": failed if not is_open else None,
        "form": form,
        "is_mine": is_mine,
        "is_operator": caller.is_operator,
        "after": after,
        "owners": names_of(item.row.owner for item in items) if caller.is_operator else {},
        "resent": read_resent() if caller.is_operator and not request.headers.get("HX-Request") else None,
    }
    part = "#region" if request.headers.get("HX-Request") else ""
    return render(request, f"dashboard/questions.html{part}", context, status=400 if failed else 200)


def _item(caller: Caller, row: Row, failed: Task | None, form: AnswerForm | None) -> Item:
    question = question_of(row.state, row.status_message)
    assert question is not None, "the listing holds missions that wait, with what they ask"
    # What was written for an earlier question of the mission is not put under the next one.
    is_its = (
        failed is not None and failed.pk == row.id and form is not None and form.data.get("question") == question.id
    )
    shown = form if form is not None and is_its else AnswerForm()
    parts = record.read_message(question.parts)
    return Item(row, question, parts, shown, row.owner == caller.principal, may_change(caller, row.owner))
