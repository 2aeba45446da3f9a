"""The directory in the admin: agents with their skills, and API clients with their keys."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html

from directory import admin_remote  # noqa: F401 - registers the pages of remote agents
from directory.admin_base import LinesField, QuickAdmin
from directory.exceptions import ClientNameTaken
from directory.identity import ADD_AGENT, GRANTABLE, SCOPES
from directory.models import Agent, ApiClient, Skill
from directory.services import create_api_client, forget_agents, revoke_api_client, set_agents_enabled

FROM_CARD = ("name", "description", "version", "handler", "input_modes", "output_modes")


class SkillForm(forms.ModelForm[Skill]):
    tags = LinesField()
    examples = LinesField(help_text="Requests in people's own words, one to a line. They decide routing: give several.")

    class Meta:
        model = Skill
        fields = ("skill_id", "name", "description", "tags", "examples")
        widgets: ClassVar = {"description": forms.Textarea(attrs={"rows": 2, "cols": 80})}


class SkillInline(admin.StackedInline[Skill, Agent]):
    model = Skill
    form = SkillForm
    extra = 0


class AgentForm(forms.ModelForm[Agent]):
    """An agent of this Bureau. Remote ones are added by URL: of those, only what is ours to say is on this form."""

    input_modes = LinesField(help_text="Media types it takes, one to a line.")
    output_modes = LinesField(help_text="Media types it gives, one to a line.")

    class Meta:
        model = Agent
        fields = (
            *("name", "slug", "description", "version", "is_enabled", "is_published"),
            *("role", "handler", "options", "needs_task", "input_modes", "output_modes"),
        )

    def clean(self) -> dict[str, Any]:
        """A local agent cannot do without a handler."""
        cleaned = super().clean() or self.cleaned_data
        if "handler" in self.fields and not cleaned.get("handler") and "handler" not in self.errors:
            self.add_error("handler", "A local agent needs this.")
        return cleaned


@admin.register(Agent)
class AgentAdmin(QuickAdmin[Agent]):
    form = AgentForm
    inlines: ClassVar = [SkillInline]
    list_display = ("name", "slug", "kind", "role", "is_enabled", "is_published", "updated_at")
    list_filter = ("is_enabled", "kind", "role")
    search_fields = ("slug", "name", "description")
    actions = ("enable", "disable")
    fieldsets = (
        (None, {"fields": ("name", "slug", "description", "version", ("is_enabled", "is_published"))}),
        ("How it runs", {"fields": ("kind", "role", "handler", "options", "needs_task")}),
        ("What it takes and gives", {"fields": ("input_modes", "output_modes")}),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Agent | None = None) -> tuple[str, ...]:
        # A remote agent comes by its URL, and what its card says is written by the directory alone.
        return ("kind", *FROM_CARD) if obj and obj.is_remote else ("kind",)

    def get_inlines(self, request: HttpRequest, obj: Agent | None) -> Any:
        return [] if obj and obj.is_remote else super().get_inlines(request, obj)

    def get_prepopulated_fields(self, request: HttpRequest, obj: Agent | None = None) -> dict[str, Sequence[str]]:
        # The slug is in addresses that others keep.
        return {} if obj else {"slug": ("name",)}

    def has_delete_permission(self, request: HttpRequest, obj: Agent | None = None) -> bool:
        """An agent with tasks stays, disabled if need be: its tasks refer to it."""
        return super().has_delete_permission(request, obj) and (obj is None or not obj.tasks.exists())

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        # The action would list every task that stands in the way, however many there are.
        actions = super().get_actions(request)
        actions.pop("delete_selected", None)
        return actions

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        forget_agents()

    def view_on_site(self, obj: Agent) -> str:
        return reverse("agent", args=[obj.slug])

    @admin.action(description="Enable the selected agents", permissions=["change"])
    def enable(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        changed = set_agents_enabled(queryset, True)
        self.message_user(request, _counted(changed, "agent was", "agents were", "enabled"))

    @admin.action(description="Disable the selected agents", permissions=["change"])
    def disable(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        changed = set_agents_enabled(queryset, False)
        self.message_user(request, _counted(changed, "agent was", "agents were", "disabled"))


class ApiClientForm(forms.ModelForm[ApiClient]):
    scopes = forms.MultipleChoiceField(
        choices=[(scope, scope) for scope in GRANTABLE],
        initial=SCOPES,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="What it may do: send messages, read tasks and files, cancel tasks; manage: have agents remembered.",
    )
    agents = LinesField(help_text="Slugs of the agents it may call, one to a line; empty for all.")

    class Meta:
        model = ApiClient
        fields = ("name", "user", "scopes", "agents", "expires_at")

    def clean_agents(self) -> list[str]:
        slugs: list[str] = self.cleaned_data["agents"]
        known = set(Agent.objects.filter(slug__in=slugs).values_list("slug", flat=True))
        missing = [slug for slug in slugs if slug not in known]
        if missing:
            raise forms.ValidationError(f"There is no agent {', '.join(missing)}.")
        return slugs


@admin.register(ApiClient)
class ApiClientAdmin(QuickAdmin[ApiClient]):
    """A client is made with its key, which is shown once; it is revoked, never deleted: its tasks name it."""

    form = ApiClientForm
    list_display = ("name", "shown_prefix", "user", "status", "last_used_at", "expires_at", "created_at")
    list_filter = (("revoked_at", admin.EmptyFieldListFilter),)
    list_select_related = ("user",)
    search_fields = ("name", "prefix")
    raw_id_fields = ("user",)
    actions = ("revoke",)

    def get_form(self, request: HttpRequest, obj: ApiClient | None = None, change: bool = False, **more: Any) -> Any:
        """Nobody gives a program what they may not do themselves."""
        form = super().get_form(request, obj, change, **more)
        if "scopes" in form.base_fields and not request.user.has_perm(ADD_AGENT):
            scopes = form.base_fields["scopes"] = deepcopy(form.base_fields["scopes"])
            assert isinstance(scopes, forms.MultipleChoiceField)
            scopes.choices = [(scope, scope) for scope in SCOPES]
        return form

    def get_fields(self, request: HttpRequest, obj: ApiClient | None = None) -> tuple[str, ...]:
        fields = ("name", "user", "scopes", "agents", "expires_at")
        return (*fields, "shown_prefix", "status", "created_at", "last_used_at", "revoked_at") if obj else fields

    def get_readonly_fields(self, request: HttpRequest, obj: ApiClient | None = None) -> tuple[str, ...]:
        return ("shown_prefix", "status", "created_at", "last_used_at", "revoked_at") if obj else ()

    def has_delete_permission(self, request: HttpRequest, obj: ApiClient | None = None) -> bool:
        return False

    @admin.display(description="key")
    def shown_prefix(self, obj: ApiClient) -> str:
        return f"{obj.prefix}…"

    @admin.display(description="status")
    def status(self, obj: ApiClient) -> str:
        if obj.revoked_at:
            return "revoked"
        return "expired" if obj.expires_at and obj.expires_at <= timezone.now() else "active"

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        try:
            return super().add_view(request, form_url, extra_context)
        except ClientNameTaken as error:
            # The form had seen the name free; somebody was quicker.
            self.message_user(request, str(error), messages.ERROR)
            return HttpResponseRedirect(reverse("admin:directory_apiclient_changelist"))

    def save_model(self, request: HttpRequest, obj: ApiClient, form: Any, change: bool) -> None:
        if change:
            obj.save(update_fields=["name", "user", "scopes", "agents", "expires_at"])
            return
        made, key = create_api_client(obj.name, obj.user, obj.expires_at, scopes=obj.scopes, agents=obj.agents)
        # The admin goes on with the object it was given.
        obj.__dict__.update(made.__dict__)
        text = "The key of {} is <code>{}</code>. Copy it now: it is not kept, and cannot be shown again."
        self.message_user(request, format_html(text, obj.name, key), messages.WARNING)

    @admin.action(description="Revoke the keys of the selected clients", permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiClient]) -> None:
        revoked = sum(revoke_api_client(client) for client in queryset)
        before = queryset.count() - revoked
        if revoked:
            self.message_user(request, _counted(revoked, "key was", "keys were", "revoked"))
        if before:
            text = _counted(before, "key had", "keys had", "been revoked before")
            self.message_user(request, text, messages.WARNING)


def _counted(number: int, one: str, many: str, done: str) -> str:
    return f"{number} {one if number == 1 else many} {done}."
