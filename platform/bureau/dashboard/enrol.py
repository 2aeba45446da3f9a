"""Add a remote agent by URL: first its card is shown, then that very card is taken into the directory."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from bureau.dashboard.access import caller_of, operators_only, require
from bureau.dashboard.agent_record import CLAIMS
from directory import cards
from directory.credentials import Secret
from directory.discovery import Found
from directory.enrolment import add_remote_agent, look_up
from directory.exceptions import CardChanged, CredentialInvalid, DirectoryError
from directory.forms import AddForm, SecretForm
from directory.identity import ADD_AGENT
from directory.models import Agent, Credential

CHANGED = "The card has changed since you looked at it. This is what it says now."


class EnrolForm(AddForm):
    """The page's form; `digest` names the card that was shown, and is empty before one was."""

    digest = forms.RegexField(r"^[0-9a-f]{64}$", required=False, widget=forms.HiddenInput)


@never_cache
@operators_only
@require_http_methods(["GET", "HEAD", "POST"])
def add(request: HttpRequest) -> HttpResponse:
    """The form; sent with `look` it shows the card, sent with `add` it adds the agent. Each failure is on the form."""
    require(caller_of(request), ADD_AGENT)
    if request.method != "POST":
        return _page(request, EnrolForm(initial={"url": request.GET.get("url", "").replace("\x00", "")}))
    form = EnrolForm(request.POST)
    is_valid = form.is_valid()
    digest = form.cleaned_data.get("digest")
    if not is_valid or "add" not in request.POST or not digest:
        return _preview(request, form)
    try:
        sent = form.cleaned_data
        by = caller_of(request).principal
        agent = add_remote_agent(sent["url"], sent["slug"] or None, form.given(), digest=digest, by=by)
    except CardChanged:
        form.add_error(None, CHANGED)
    except DirectoryError as error:
        form.add_error(None, str(error))
    else:
        messages.success(request, f"{agent.name} is in the directory now, as {agent.slug}.")
        return redirect("agent", slug=agent.slug)
    return _preview(request, form)


def _preview(request: HttpRequest, form: EnrolForm) -> HttpResponse:
    """The form with what is at the address, or with the reason why nothing can be shown."""
    url = form.cleaned_data.get("url")
    if not url:
        return _page(request, form)
    try:
        found = look_up(url, _secret_in(form))
    except DirectoryError as error:
        _say_once(form, None if isinstance(error, CredentialInvalid) else "url", error)
        return _page(request, form)
    # A form that is well so far is shown anew, with what the card asks for filled in.
    return _page(request, form if form.errors else EnrolForm(initial=_filled_in(form, found)), found)


def _secret_in(form: EnrolForm) -> Secret | None:
    """The credential that was typed, where it can be used; if not, the form says why."""
    is_whole = form.cleaned_data.keys() >= SecretForm.base_fields.keys()
    secret = form.given() if is_whole else None
    try:
        if secret:
            secret.check()
    except CredentialInvalid as error:
        _say_once(form, None, error)
        return None
    return secret


def _say_once(form: EnrolForm, field: str | None, error: DirectoryError) -> None:
    if str(error) not in form.non_field_errors():
        form.add_error(field, str(error))


def _filled_in(form: EnrolForm, found: Found) -> dict[str, Any]:
    """What was typed, but for the secret; and of the credential what the card says of it, where nothing was typed."""
    given = {name: value for name, value in form.cleaned_data.items() if value and name not in {"secret", "digest"}}
    needs = [need for need in cards.auth_needs(found.card) if need.kind in Credential.Kind.values]
    if "auth" in given or not needs:
        return given
    need = needs[0]
    return given | {
        "auth": need.kind,
        "header": need.header,
        "token_url": need.token_url,
        "scope": " ".join(need.scopes),
    }


def _page(request: HttpRequest, form: EnrolForm, found: Found | None = None) -> HttpResponse:
    context: dict[str, Any] = {"form": form, "found": found}
    if found:
        context |= {
            "card": found.card,
            "digest": cards.digest(found.card),
            "skills": cards.skills(found.card),
            "needs": cards.auth_needs(found.card),
            "claims": [word for name, word in CLAIMS if cards.capability(found.card, name)],
            "signature": Agent.Signature(found.signature.state).label,
            "others": [one for one in cards.interfaces(found.card) if one != found.interface],
        }
    status = 400 if form.is_bound and form.errors else 200
    return render(request, "dashboard/enrol.html", context, status=status)
