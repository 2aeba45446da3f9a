"""The list of missions, and the form that starts one."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods

from bureau.dashboard import submit
from bureau.dashboard.access import caller_of, signed_in
from bureau.dashboard.forms import MissionForm
from bureau.dashboard.listing import (
    COUNT_CAP,
    FILTERS,
    Filter,
    Listing,
    Mark,
    count_missions,
    list_missions,
    missions_of,
)
from directory.models import Skill
from directory.names import names_of
from tasks.exceptions import InvalidMessage, TaskError

SEARCH_LENGTH = 200
EXAMPLES = 4


@never_cache
@signed_in
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """The missions, newest news first. HTMX asks for the list alone, and hears 204 when nothing is new."""
    caller = caller_of(request)
    chosen = _filter(request.GET.get("state", ""))
    search = request.GET.get("q", "").replace("\x00", "").strip()[:SEARCH_LENGTH]
    is_mine = not caller.is_operator or request.GET.get("whose") == "mine"
    after = request.GET.get("after", "")
    missions = missions_of(caller, everyone=not is_mine)
    try:
        listing = list_missions(missions, chosen.states, search, Mark.parse(after) if after else None)
    except InvalidMessage as error:
        messages.error(request, str(error))
        return redirect("missions")
    if request.GET.get("seen") == listing.signature:
        return HttpResponse(status=204)
    query = {"state": chosen.key, "q": search, "whose": "mine" if is_mine and caller.is_operator else ""}
    context = {
        "listing": listing,
        "chosen": chosen,
        "search": search,
        "is_mine": is_mine,
        "after": after,
        "here": _query(query),
        "older": _query(query | {"after": str(listing.older or "")}),
        "tabs": _tabs(query, {} if search else count_missions(missions)),
        "everyone": _query(query | {"whose": ""}),
        "mine": _query(query | {"whose": "mine"}),
        "owners": names_of(row.owner for row in listing.rows) if caller.is_operator else {},
        "examples": _examples() if _is_first_visit(listing, chosen, search, after) else [],
    }
    part = "#region" if request.headers.get("HX-Request") else ""
    return render(request, f"dashboard/missions.html{part}", context)


def _filter(key: str) -> Filter:
    for one in FILTERS:
        if one.key == key:
            return one
    raise Http404("There is no such filter.")


def _is_first_visit(listing: Listing, chosen: Filter, search: str, after: str) -> bool:
    return not (listing.rows or chosen.key or search or after)


def _query(parameters: dict[str, str]) -> str:
    """An address of this page that keeps what is chosen."""
    return "?" + urlencode({name: value for name, value in parameters.items() if value})


def _tabs(query: dict[str, str], counts: dict[str, int]) -> list[dict[str, Any]]:
    return [
        {
            "label": one.label,
            "url": _query(query | {"state": one.key}),
            "is_chosen": one.key == query["state"],
            "count": _shown(counts.get(one.key)),
        }
        for one in FILTERS
    ]


def _shown(count: int | None) -> str:
    if count is None:
        return ""
    return f"{COUNT_CAP}+" if count > COUNT_CAP else str(count)


def _examples() -> list[tuple[str, str]]:
    """Things to try, as (agent slug, text): the first that each agent's own skills name."""
    skills = Skill.objects.filter(agent__is_enabled=True).select_related("agent")[:50]
    found: dict[str, str] = {}
    for skill in skills:
        if skill.examples:
            found.setdefault(skill.agent.slug, skill.examples[0])
    return list(found.items())[:EXAMPLES]


@never_cache
@signed_in
@require_http_methods(["GET", "HEAD", "POST"])
def start(request: HttpRequest) -> HttpResponse:
    """The form for a new mission; sending it leads to the mission's page."""
    if request.method != "POST":
        given = {"text": request.GET.get("text", "").replace("\x00", ""), "agent": request.GET.get("agent", "")}
        form = MissionForm(initial={name: value for name, value in given.items() if value})
        return render(request, "dashboard/start.html", {"form": form})
    form = MissionForm(request.POST, request.FILES)
    if form.is_valid():
        sent = form.cleaned_data
        try:
            task_id = submit.start(caller_of(request), sent["agent"], sent["text"], sent["attachments"], sent["token"])
        except TaskError as error:
            form.add_error(None, str(error))
        else:
            return redirect("mission", task_id=task_id)
    return render(request, "dashboard/start.html", {"form": form})
