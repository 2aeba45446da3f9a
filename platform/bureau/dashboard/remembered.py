"""The rolling memory: what was asked of remote agents, and what they answered."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from bureau.dashboard.access import caller_of, require, signed_in
from bureau.dashboard.agents import find_agent
from directory import memory
from directory.identity import CLEAR_MEMORY
from directory.names import names_of

SHOWN = 100


@never_cache
@signed_in
@require_GET
def show(request: HttpRequest) -> HttpResponse:
    """The newest requests: people see what was asked on their behalf, operators everything."""
    caller = caller_of(request)
    slug = request.GET.get("agent", "")
    agent = find_agent(caller, slug) if slug else None
    whose = None if caller.is_operator else caller.principal
    rows = list(memory.recent(whose, agent=agent, limit=SHOWN))
    context = {
        "rows": rows,
        "agent": agent,
        "is_operator": caller.is_operator,
        "may_clear": not caller.is_operator or caller.may(CLEAR_MEMORY),
        "owners": names_of(row.principal for row in rows if row.principal) if caller.is_operator else {},
        "days": memory.MAX_AGE.days,
        "most": memory.MAX_REQUESTS,
    }
    return render(request, "dashboard/memory.html", context)


@signed_in
@require_POST
def clear(request: HttpRequest) -> HttpResponse:
    """Forget what the caller sees there: everything, or what was asked on their behalf."""
    caller = caller_of(request)
    if caller.is_operator:
        require(caller, CLEAR_MEMORY)
    count = memory.clear(None if caller.is_operator else caller.principal)
    messages.success(request, f"{count} {'request was' if count == 1 else 'requests were'} forgotten.")
    return redirect("memory")
