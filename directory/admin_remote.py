"""Remote agents in the admin: add by URL, give a credential, decide on changed cards, write rules."""

from collections.abc import Callable
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import AdminForm
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from directory import cards, health, memory, probing
from directory.admin_base import QuickAdmin, RecordAdmin
from directory.condition import in_words
from directory.credentials import set_credential
from directory.enrolment import add_remote_agent, refresh_agent
from directory.exceptions import DirectoryError
from directory.forms import AddForm, SecretForm
from directory.identity import Caller
from directory.models import (
    Agent,
    CardRevision,
    Credential,
    DelegationCount,
    DelegationRule,
    Health,
    OutgoingRequest,
    ProbeResult,
    RemoteAgent,
)
from directory.revisions import accept_revision, quarantine, reject_revision, release_agent
from directory.services import set_agents_enabled


class CredentialForm(SecretForm):
    agent = forms.ModelChoiceField(Agent.objects.filter(kind=Agent.Kind.REMOTE))
    field_order = ("agent",)


class AskingAdmin(QuickAdmin[Any]):
    """Adding asks the network, so it may not happen in the transaction that the admin's own form works in."""

    form_class: type[SecretForm]
    form_layout: Any = ()

    def act(self, form: Any, by: str) -> str:
        """Do it for the operator of this principal, and say what was done. Raises DirectoryError."""
        raise NotImplementedError

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = self.form_class(request.POST or None)
        if request.method == "POST" and form.is_valid():
            try:
                self.message_user(request, self.act(form, _principal(request)), messages.SUCCESS)
            except DirectoryError as error:
                form.add_error(None, str(error))
            else:
                name = f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist"
                return HttpResponseRedirect(reverse(name))
        page = AdminForm(form, self.form_layout, {})  # type: ignore[arg-type]  # any form will do
        context = {
            **self.admin_site.each_context(request),
            "title": f"Add {self.opts.verbose_name}",
            "subtitle": None,
            "adminform": page,
            "errors": form.errors,
            "media": self.media + form.media,
            "inline_admin_formsets": [],
            "is_popup": False,
            "to_field": None,
            "object_id": None,
            "original": None,
            "preserved_filters": self.get_preserved_filters(request),
            "show_save_and_add_another": False,
            "show_save_and_continue": False,
            **(extra_context or {}),
        }
        return self.render_change_form(request, context, add=True, form_url=form_url)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_act_permission(self, request: HttpRequest) -> bool:
        """Whether the actions of this page may be used; its rows themselves are changed nowhere."""
        return request.user.has_perm(f"directory.change_{self.opts.model_name}")


CREDENTIAL_FIELDS = ("auth", "secret", "header", "username", "token_url", "scope")


@admin.register(RemoteAgent)
class RemoteAgentAdmin(AskingAdmin):
    form_class = AddForm
    form_layout = ((None, {"fields": ("url", "slug")}), ("Credential", {"fields": CREDENTIAL_FIELDS}))
    list_display = ("name", "slug", "state", "speaks", "signature", "last_seen", "success")
    list_filter = ("is_enabled", ("quarantined_at", admin.EmptyFieldListFilter), "signature")
    list_select_related = ("health",)
    search_fields = ("slug", "name", "url")
    actions = ("refresh", "probe", "quarantine", "release", "enable", "disable")
    readonly_fields = ("state", "speaks", "card_address", "wants", "success", "described")
    fieldsets = (
        (None, {"fields": ("name", "slug", "description", "version", "state", "quarantine_reason")}),
        ("Where", {"fields": ("card_address", "url", "speaks", "tenant", "signature", "signature_note", "wants")}),
        ("How it does", {"fields": ("success",)}),
        ("Card", {"fields": ("described",)}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).filter(kind=Agent.Kind.REMOTE).prefetch_related("skills")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """An agent with tasks stays, disabled if need be: its tasks refer to it."""
        return super().has_delete_permission(request, obj) and (obj is None or not obj.tasks.exists())

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        # The action would list every task that stands in the way, however many there are.
        actions = super().get_actions(request)
        actions.pop("delete_selected", None)
        return actions

    def act(self, form: Any, by: str) -> str:
        agent = add_remote_agent(form.cleaned_data["url"], form.cleaned_data["slug"] or None, form.given(), by=by)
        return f"{agent.name} is in the directory now, as {agent.slug}."

    @admin.display(description="state")
    def state(self, obj: Agent) -> str:
        return in_words(obj)

    @admin.display(description="speaks")
    def speaks(self, obj: Agent) -> str:
        return f"{obj.binding} {obj.protocol_version}"

    @admin.display(description="last seen")
    def last_seen(self, obj: Agent) -> Any:
        row = getattr(obj, "health", None)
        return row.last_seen_at if row else None

    @admin.display(description="success")
    def success(self, obj: Agent) -> str:
        rate = health.success_rate(obj)
        return "-" if rate.share is None else f"{rate.share:.0%} of {rate.count}"

    @admin.display(description="card")
    def card_address(self, obj: Agent) -> str:
        # Not a link: nobody should go where a stranger points by one click.
        return obj.card_url

    @admin.display(description="wants")
    def wants(self, obj: Agent) -> str:
        return " or ".join(map(str, cards.auth_needs(obj.card))) or "no credential"

    @admin.display(description="skills")
    def described(self, obj: Agent) -> SafeString:
        lines = [f"{skill.skill_id}: {skill.name}\n    {skill.description}" for skill in obj.skills.all()]
        return format_html("<pre>{}</pre>", "\n".join(lines))

    @admin.action(description="Read the cards of the selected agents again", permissions=["act"])
    def refresh(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        for agent in queryset:
            self._try(request, agent, lambda agent: _news(refresh_agent(agent)))

    @admin.action(description="Probe the selected agents (they get a few messages)", permissions=["act"])
    def probe(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        for agent in queryset:
            self._try(request, agent, _ask_for_probe)

    @admin.action(description="Put the selected agents into quarantine", permissions=["act"])
    def quarantine(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        for agent in queryset:
            quarantine(agent.pk, f"By {request.user.get_username()}.")

    @admin.action(description="Let the selected agents out of quarantine", permissions=["act"])
    def release(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        for agent in queryset:
            self._try(request, agent, lambda agent: "is out." if release_agent(agent) else "was not in quarantine.")

    @admin.action(description="Enable the selected agents", permissions=["act"])
    def enable(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        set_agents_enabled(queryset, True)

    @admin.action(description="Disable the selected agents", permissions=["act"])
    def disable(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        set_agents_enabled(queryset, False)

    def _try(self, request: HttpRequest, agent: Agent, act: Callable[[Agent], str]) -> None:
        try:
            self.message_user(request, f"{agent.slug} {act(agent)}", messages.SUCCESS)
        except DirectoryError as error:
            self.message_user(request, f"{agent.slug}: {error}", messages.ERROR)


def _principal(request: HttpRequest) -> str:
    return Caller.from_user(request.user).principal  # type: ignore[arg-type]  # who is anonymous never gets here


def _ask_for_probe(agent: Agent) -> str:
    probing.request_probe(agent)
    return "is going to be probed; its page under Agents shows how it does."


def _news(revision: CardRevision | None) -> str:
    return "says nothing new." if revision is None else f"says something new: {' '.join(revision.changes)}"


@admin.register(Credential)
class CredentialAdmin(AskingAdmin):
    """Entered and taken away, never shown or changed: the new one takes the old one's place."""

    form_class = CredentialForm
    form_layout = ((None, {"fields": ("agent", *CREDENTIAL_FIELDS)}),)
    list_display = ("agent", "kind", "header", "username", "token_url", "updated_at")
    list_select_related = ("agent",)
    fields = ("agent", "kind", "header", "username", "token_url", "scope", "created_at", "updated_at")
    search_fields = ("agent__slug",)

    def act(self, form: Any, by: str) -> str:
        agent, secret = form.cleaned_data["agent"], form.given()
        if secret is None:
            raise DirectoryError("Choose what kind of credential it is.")
        set_credential(agent, secret)
        return f"{agent.slug} has a new credential."


@admin.register(CardRevision)
class CardRevisionAdmin(RecordAdmin[CardRevision]):
    list_display = ("agent", "number", "state", "why", "what", "found_at", "decided_at", "decided_by")
    list_filter = ("state",)
    list_select_related = ("agent",)
    search_fields = ("agent__slug",)
    ordering = ("-id",)
    actions = ("accept", "reject")

    def has_decide_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("directory.change_cardrevision")

    @admin.display(description="because of")
    def why(self, obj: CardRevision) -> str:
        return ", ".join(obj.grounds)

    @admin.display(description="what changed")
    def what(self, obj: CardRevision) -> str:
        return " ".join(obj.changes)

    @admin.action(description="Accept the selected cards", permissions=["decide"])
    def accept(self, request: HttpRequest, queryset: QuerySet[CardRevision]) -> None:
        self._decide(request, queryset, accept_revision)

    @admin.action(description="Reject the selected cards (the agents stay in quarantine)", permissions=["decide"])
    def reject(self, request: HttpRequest, queryset: QuerySet[CardRevision]) -> None:
        self._decide(request, queryset, reject_revision)

    def _decide(
        self, request: HttpRequest, queryset: QuerySet[CardRevision], decide: Callable[[CardRevision, str], object]
    ) -> None:
        by = _principal(request)
        for revision in queryset.select_related("agent"):
            try:
                decide(revision, by)
            except DirectoryError as error:
                self.message_user(request, f"{revision}: {error}", messages.ERROR)
            else:
                self.message_user(request, f"{revision}: decided.", messages.SUCCESS)


@admin.register(Health)
class HealthAdmin(RecordAdmin[Health]):
    list_display = ("agent", "circuit", "failures", "retry_at", "last_seen_at", "latency", "last_error")
    list_select_related = ("agent",)
    search_fields = ("agent__slug",)


@admin.register(DelegationCount)
class DelegationCountAdmin(RecordAdmin[DelegationCount]):
    list_display = ("agent", "skill_id", "day", "succeeded", "failed", "seconds")
    list_select_related = ("agent",)
    search_fields = ("agent__slug", "skill_id")
    ordering = ("-day", "agent")


@admin.register(ProbeResult)
class ProbeResultAdmin(RecordAdmin[ProbeResult]):
    list_display = ("agent", "state", "score", "failed", "seconds", "created_at")
    list_select_related = ("agent",)
    search_fields = ("agent__slug",)

    @admin.display(description="failed")
    def failed(self, obj: ProbeResult) -> str:
        return ", ".join(check["name"] for check in obj.checks if check["outcome"] == "failed")


@admin.register(DelegationRule)
class DelegationRuleAdmin(QuickAdmin[DelegationRule]):
    list_display = ("__str__", "priority", "is_enabled", "note")
    list_filter: ClassVar = ("effect", "is_enabled")
    list_select_related = ("source_agent", "target_agent")
    fieldsets = (
        (None, {"fields": ("effect", "priority", "is_enabled", "note")}),
        ("From (nothing: anybody)", {"fields": ("source_agent", "source_role")}),
        ("To (nothing: anybody)", {"fields": ("target_agent", "target_role", "target_tag")}),
    )


@admin.register(OutgoingRequest)
class OutgoingRequestAdmin(RecordAdmin[OutgoingRequest]):
    list_display = ("agent_name", "principal", "sender", "state", "error", "created_at", "answered_at")
    search_fields = ("agent_name", "task_id__exact", "principal__exact")
    actions = ("clear",)

    def has_clear_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("directory.delete_outgoingrequest")

    @admin.action(description="Forget all requests, selected or not", permissions=["clear"])
    def clear(self, request: HttpRequest, queryset: QuerySet[OutgoingRequest]) -> None:
        self.message_user(request, f"{memory.clear()} forgotten.", messages.SUCCESS)
