"""What operators do about an agent: one form, one verb. GET changes nothing."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from bureau.dashboard.access import caller_of, operators_only, require
from bureau.dashboard.agents import find_agent, page_of
from directory.credentials import remove_credential, set_credential
from directory.enrolment import refresh_agent, remove_agent
from directory.exceptions import DirectoryError, NotRemote, RevisionNotPending
from directory.forms import SecretForm
from directory.identity import (
    CHANGE_AGENT,
    CHANGE_REMOTE,
    DECIDE_ON_CARDS,
    GIVE_CREDENTIALS,
    REMOVE_AGENT,
    TAKE_CREDENTIALS,
    Caller,
)
from directory.models import Agent, CardRevision
from directory.probing import request_probe
from directory.revisions import accept_revision, quarantine, reject_revision, release_agent
from directory.services import set_agents_enabled

NOTHING_CHOSEN = "Choose what kind of credential it is."


@operators_only
@require_POST
def act(request: HttpRequest, slug: str, verb: str) -> HttpResponse:
    """Do it, say how it went, and lead back to the agent's page."""
    if verb not in ACTS:
        raise Http404("There is no such act.")
    caller = caller_of(request)
    agent = find_agent(caller, slug)
    require(caller, NEEDED.get(verb, CHANGE_REMOTE if agent.is_remote else CHANGE_AGENT))
    try:
        messages.success(request, ACTS[verb](request, caller, agent))
    except DirectoryError as error:
        messages.error(request, str(error))
    return redirect("agents") if verb == "remove" and agent.pk is None else redirect("agent", slug=slug)


def _refresh(request: HttpRequest, caller: Caller, agent: Agent) -> str:
    revision = refresh_agent(agent)
    if revision is None:
        return "Its card was read, and says nothing new."
    if revision.state == CardRevision.State.PENDING:
        return "Its card has changed in a way that needs your decision. Until then it is in quarantine."
    return "Its card has changed harmlessly, and was taken over."


def _probe(request: HttpRequest, caller: Caller, agent: Agent) -> str:
    request_probe(agent)
    return "The probe is on its way. It takes up to a minute, and the agent gets a handful of short messages."


def _enable(request: HttpRequest, caller: Caller, agent: Agent) -> str:
    set_agents_enabled(Agent.objects.filter(pk=agent.pk), True)
    return f"{agent.name} is enabled."


def _disable(request: HttpRequest, caller: Caller, agent: Agent) -> str:
    set_agents_enabled(Agent.objects.filter(pk=agent.pk), False)
    return f"{agent.name} is disabled: it takes no new task. Running ones go on."


def _quarantine(request: HttpRequest, caller: Caller, agent: Agent) -> str:
    if not agent.is_remote:
        raise NotRemote
    quarantine(agent.pk, f"By {caller.name}.")
    return f"{agent.name} is in quarantine."


def _release(request: HttpRequest, caller: Caller, agent: Agent) -> str:
    if not release_agent(agent):
        raise DirectoryError(f"{agent.name} was not in quarantine.")
    return f"{agent.name} is out of quarantine, with the card that was accepted before."


def _accept(request: HttpRequest, caller: Caller, agent: Agent) -> str:
    revision = _revision(request, agent)
    accept_revision(revision, caller.principal)
    return f"Revision {revision.number} is accepted, and {agent.name} is out of quarantine."


def _reject(request: HttpRequest, caller: Caller, agent: Agent) -> str:
    revision = _revision(request, agent)
    reject_revision(revision, caller.principal)
    return f"Revision {revision.number} is rejected. {agent.name} stays in quarantine: it does not say that any more."


def _revision(request: HttpRequest, agent: Agent) -> CardRevision:
    """The one that was on the page: a newer one may have come meanwhile. Raises RevisionNotPending."""
    number = request.POST.get("revision", "")
    revision = agent.revisions.filter(number=number).first() if number.isdecimal() and len(number) < 10 else None
    if revision is None:
        raise RevisionNotPending
    return revision


def _forget_credential(request: HttpRequest, caller: Caller, agent: Agent) -> str:
    if not remove_credential(agent):
        raise DirectoryError(f"{agent.name} had no credential.")
    return f"The credential of {agent.name} is forgotten."


def _remove(request: HttpRequest, caller: Caller, agent: Agent) -> str:
    name = agent.name
    remove_agent(agent)
    return f"{name} is removed, with all that was known of it."


ACTS: dict[str, Callable[[HttpRequest, Caller, Agent], str]] = {
    "refresh": _refresh,
    "probe": _probe,
    "enable": _enable,
    "disable": _disable,
    "quarantine": _quarantine,
    "release": _release,
    "accept": _accept,
    "reject": _reject,
    "forget-credential": _forget_credential,
    "remove": _remove,
}
# What the admin asks for the same; for all others, that the agent may be changed.
NEEDED = {
    "accept": DECIDE_ON_CARDS,
    "reject": DECIDE_ON_CARDS,
    "forget-credential": TAKE_CREDENTIALS,
    "remove": REMOVE_AGENT,
}


@operators_only
@require_POST
def credential(request: HttpRequest, slug: str) -> HttpResponse:
    """Give a remote agent a credential, in place of the one it had. What was typed is never sent back."""
    caller = caller_of(request)
    agent = find_agent(caller, slug)
    require(caller, GIVE_CREDENTIALS)
    form = SecretForm(request.POST)
    if form.is_valid():
        try:
            _give(agent, form)
        except DirectoryError as error:
            form.add_error(None, str(error))
        else:
            messages.success(request, f"{agent.name} has a new credential.")
            return redirect("agent", slug=slug)
    return page_of(request, caller, agent, form)


def _give(agent: Agent, form: SecretForm) -> None:
    if not agent.is_remote:
        raise NotRemote(f"{agent.name} is an agent of this Bureau and needs no credential.")
    secret = form.given()
    if secret is None:
        raise DirectoryError(NOTHING_CHOSEN)
    set_credential(agent, secret)
