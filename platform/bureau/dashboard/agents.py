"""The agents that are known here: how they are, what they can do, and a way to try them."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from bureau.dashboard import agent_record
from bureau.dashboard.access import caller_of, operators_only, signed_in
from directory import listing
from directory.condition import Condition, condition_of
from directory.forms import SecretForm
from directory.health import Rate, rates
from directory.identity import CHANGE_AGENT, CHANGE_REMOTE, Caller
from directory.models import Agent

PAGE_SIZE = 50
SEARCH_LENGTH = 100
# The tabs above the list; the last two are for operators.
TABS = (("", "All"), ("local", "Here"), ("remote", "Elsewhere"), ("look", "Need a look"), ("disabled", "Disabled"))
NEED_A_LOOK = (Condition.QUARANTINE, Condition.OPEN, Condition.HALF_OPEN)


@never_cache
@signed_in
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """The agents that the caller is told of; operators see all. HTMX asks for the list alone."""
    caller = caller_of(request)
    chosen = request.GET.get("show", "")
    search = request.GET.get("q", "").replace("\x00", "").strip()[:SEARCH_LENGTH]
    tabs = TABS if caller.is_operator else TABS[:3]
    if chosen not in dict(tabs):
        raise Http404("There is no such filter.")
    page = Paginator(_chosen(_searched(_visible(caller), search), chosen), PAGE_SIZE).get_page(request.GET.get("page"))
    found = rates(page.object_list)
    query = {"show": chosen, "q": search}
    context = {
        "page": page,
        "rows": [(agent, found.get((agent.pk, ""), Rate())) for agent in page.object_list],
        "search": search,
        "chosen": chosen,
        "tabs": [(label, _query(query | {"show": key}), key == chosen) for key, label in tabs],
        "here": _query(query | {"page": str(page.number)}),
        "newer": _query(query | {"page": str(page.number - 1)}),
        "older": _query(query | {"page": str(page.number + 1)}),
        "is_operator": caller.is_operator,
    }
    part = "#region" if request.headers.get("HX-Request") else ""
    return render(request, f"dashboard/agents.html{part}", context)


def _query(parameters: dict[str, str]) -> str:
    return "?" + urlencode({name: value for name, value in parameters.items() if value})


def _visible(caller: Caller) -> QuerySet[Agent]:
    agents = Agent.objects.select_related("health").prefetch_related("skills")
    if caller.is_operator:
        return agents
    return agents.filter(pk__in=[agent.pk for agent in listing.known_to(caller)])


def _searched(agents: QuerySet[Agent], search: str) -> QuerySet[Agent]:
    if not search:
        return agents
    words = Q(name__icontains=search) | Q(slug__icontains=search) | Q(description__icontains=search)
    return agents.filter(words | Q(skills__name__icontains=search) | Q(role__icontains=search)).distinct()


def _chosen(agents: QuerySet[Agent], chosen: str) -> list[Agent]:
    match chosen:
        case "look":
            return [agent for agent in agents if condition_of(agent) in NEED_A_LOOK]
        case "disabled":
            return list(agents.filter(is_enabled=False))
        case "":
            # Agents made for one mission are disabled with it, and would soon hide all others.
            return list(agents.order_by("-is_enabled", "slug"))
        case kind:
            return list(agents.filter(kind=kind))


def find_agent(caller: Caller, slug: str) -> Agent:
    """Raises Http404, also for one that the caller is not told of."""
    agent = _visible(caller).filter(slug=slug).first()
    if agent is None:
        raise Http404("There is no such agent.")
    return agent


@never_cache
@signed_in
@require_GET
def show(request: HttpRequest, slug: str) -> HttpResponse:
    """One agent: what it can do, how it is, what it did; for operators also what can be done about it."""
    caller = caller_of(request)
    return page_of(request, caller, find_agent(caller, slug))


def page_of(request: HttpRequest, caller: Caller, agent: Agent, secret_form: SecretForm | None = None) -> HttpResponse:
    """The agent's page; with the form of its credential where that could not be used."""
    context: dict[str, Any] = agent_record.read(caller, agent)
    context |= {"secret_form": secret_form or SecretForm(), "is_operator": caller.is_operator}
    context["may_change"] = caller.may(CHANGE_REMOTE if agent.is_remote else CHANGE_AGENT)
    return render(request, "dashboard/agent.html", context, status=400 if secret_form else 200)


@never_cache
@operators_only
@require_GET
def probe(request: HttpRequest, slug: str) -> HttpResponse:
    """How the newest conformance probe does: HTMX asks until it has ended, and hears 204 when nothing is new."""
    agent = find_agent(caller_of(request), slug)
    newest = agent_record.newest_probe(agent)
    if newest and newest.is_open and request.GET.get("seen") == newest.state:
        return HttpResponse(status=204)
    context = {"agent": agent, "probe": newest}
    return render(request, "dashboard/agent/probe.html", context)
