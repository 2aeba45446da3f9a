"""The tasks in the admin: a record to read, with one act, to cancel."""

from collections import Counter
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.views.main import SEARCH_VAR
from django.db.models import Min, Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from directory.admin_base import RecordAdmin, as_uuid
from directory.identity import Caller
from directory.models import Agent
from tasks import outbox
from tasks.exceptions import TaskError, TaskNotInState
from tasks.models import (
    Artifact,
    Context,
    Event,
    Message,
    PushAttempt,
    PushConfig,
    PushEndpoint,
    Stop,
    StoredFile,
    SubPlan,
    Subtask,
    Task,
)
from tasks.services import cancel_task

# One request cancels no more than this; the rest is for the next one.
CANCEL_BATCH = 500


# A title is looked for among this many of the newest tasks.
SEARCH_STRETCH = 10_000


class LevelFilter(admin.SimpleListFilter):
    """Missions, or the tasks below them; there is an index for each, and none for both together."""

    title = "level"
    parameter_name = "level"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("below", "Below a mission")]

    def choices(self, changelist: Any) -> Any:
        first, *rest = super().choices(changelist)
        yield {**first, "display": "Missions"}
        yield from rest

    def queryset(self, request: HttpRequest, queryset: QuerySet[Task]) -> QuerySet[Task]:
        if self.value() == "below":
            return queryset.exclude(parent=None)
        # An id names one task, wherever it is.
        return queryset if as_uuid(request.GET.get(SEARCH_VAR, "")) else queryset.filter(parent=None)


class AgentFilter(admin.RelatedFieldListFilter):
    """The agents to choose from, without those that were made for one mission: they would soon fill the page."""

    def field_choices(self, field: Any, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        lasting = Agent.objects.exclude(options__has_key="mission").order_by("slug")
        return [(str(agent.pk), agent.slug) for agent in lasting]


@admin.register(Task)
class TaskAdmin(RecordAdmin[Task]):
    list_display = ("title_or_id", "state", "agent", "owner", "attempts", "lease_owner", "status_at")
    list_filter = (LevelFilter, "state", ("agent", AgentFilter))
    list_select_related = ("agent",)
    search_fields = ("title", "owner__exact")
    search_help_text = (
        f"Part of a title (among the {SEARCH_STRETCH:,} newest), an owner such as user:1, or a task or context id."
    )
    ordering = ("-status_at", "-id")
    readonly_fields = ("related",)
    actions = ("cancel",)

    def narrow_search(self, queryset: QuerySet[Task]) -> QuerySet[Task]:
        stretch = queryset.order_by("-status_at", "-id").values_list("status_at", flat=True)
        end = stretch[SEARCH_STRETCH - 1 : SEARCH_STRETCH].first()
        return queryset.filter(status_at__gte=end) if end else queryset

    @admin.display(description="task")
    def title_or_id(self, obj: Task) -> str:
        return str(obj)

    @admin.display(description="its record")
    def related(self, obj: Task) -> SafeString:
        """Links to the rows that belong to this task."""
        lists = (
            ("tasks_message", "messages"),
            ("tasks_artifact", "artifacts"),
            ("tasks_event", "events"),
            ("agents_decision", "decisions"),
            ("agents_toolcall", "tool calls"),
        )
        links = ((reverse(f"admin:{name}_changelist"), obj.pk, label) for name, label in lists)
        return format_html_join(" · ", '<a href="{}?task__id__exact={}">{}</a>', links)

    def view_on_site(self, obj: Task) -> str:
        return reverse("mission", args=[obj.pk])

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("tasks.change_task")

    @admin.action(description="Cancel the selected tasks", permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Task]) -> None:
        """Cancel what is live, and say how many were not, and why."""
        caller = Caller.from_user(request.user)  # type: ignore[arg-type]
        canceled, refused = 0, Counter[str]()
        for task in queryset.order_by("pk")[:CANCEL_BATCH]:
            try:
                cancel_task(caller, task.pk, f"Canceled by {caller.name}.")
                canceled += 1
            except TaskNotInState:
                refused[f"ended before ({task.get_state_display()})"] += 1
            except TaskError as error:
                refused[str(error)] += 1
        self._report(request, canceled, refused)
        if queryset[CANCEL_BATCH:].exists():
            text = f"Only {CANCEL_BATCH} tasks are looked at in one go; run the action again for the others."
            self.message_user(request, text, messages.WARNING)

    def _report(self, request: HttpRequest, canceled: int, refused: Counter[str]) -> None:
        text = f"{canceled} {'task was' if canceled == 1 else 'tasks were'} canceled."
        self.message_user(request, text, messages.SUCCESS if canceled else messages.WARNING)
        if refused:
            reasons = "; ".join(f"{number} {reason}" for reason, number in refused.most_common())
            self.message_user(request, f"Not canceled: {reasons}.", messages.WARNING)


class OfTaskAdmin(RecordAdmin[Any]):
    """Rows that belong to a task: newest first, with a way to the mission's page."""

    list_select_related = ("task",)
    ordering: ClassVar[Any] = ("-id",)

    @admin.display(description="mission page")
    def page(self, obj: Any) -> SafeString:
        return mission_link(obj.task)


def mission_link(task: Task) -> SafeString:
    return format_html('<a href="{}">{}</a>', reverse("mission", args=[task.pk]), task)


@admin.register(Message)
class MessageAdmin(OfTaskAdmin):
    list_display = ("id", "role", "author", "excerpt", "page", "created_at")
    list_filter = ("role",)
    search_fields = ("message_id__exact",)
    search_help_text = "A message id or a task id, as a whole."

    @admin.display(description="text")
    def excerpt(self, obj: Message) -> str:
        return excerpt_of(obj.parts)


@admin.register(Stop)
class StopAdmin(OfTaskAdmin):
    list_display = ("task_id", "page", "worker", "asked_at", "stopped_at", "lease_until")
    search_fields = ("worker__exact",)
    search_help_text = "A worker, such as host:123, or a task id, as a whole."
    ordering = ("-asked_at", "-task_id")


@admin.register(Artifact)
class ArtifactAdmin(OfTaskAdmin):
    list_display = ("name", "version", "is_complete", "page", "created_at")
    list_filter = ("is_complete",)
    search_fields = ("name",)
    search_help_text = "Part of a name, or the id of an artifact or task."
    ordering = ("-created_at", "-id")


@admin.register(Event)
class EventAdmin(OfTaskAdmin):
    list_display = ("id", "seq", "kind", "excerpt", "page", "created_at")
    list_filter = ("kind",)
    search_fields = ("kind__exact",)
    search_help_text = "The id of a task, or a kind of event."

    @admin.display(description="payload")
    def excerpt(self, obj: Event) -> str:
        message = obj.payload.get("message")
        text = obj.payload.get("state") or obj.payload.get("name") or ""
        return f"{text} {excerpt_of(message['parts']) if message else ''}".strip()


@admin.register(Context)
class ContextAdmin(RecordAdmin[Context]):
    list_display = ("key", "owner", "created_at")
    search_fields = ("key__exact", "owner__exact")
    search_help_text = "A context's key, its id, or its owner, as a whole."
    ordering = ("-created_at", "-id")
    readonly_fields = ("missions",)

    @admin.display(description="tasks")
    def missions(self, obj: Context) -> SafeString:
        tasks = obj.tasks.order_by("-status_at")[:20]
        return format_html_join(
            "",
            '<p><a href="{}">{}</a> ({})</p>',
            ((reverse("admin:tasks_task_change", args=[task.pk]), task, task.get_state_display()) for task in tasks),
        )


@admin.register(StoredFile)
class StoredFileAdmin(RecordAdmin[StoredFile]):
    list_display = ("name", "media_type", "size", "owner", "created_at")
    search_fields = ("name", "owner__exact", "sha256__exact")
    search_help_text = "Part of a name, or an owner, a SHA-256 or an id as a whole."
    ordering = ("-created_at", "-id")
    hidden = ("content",)
    readonly_fields = ("download",)

    @admin.display(description="content")
    def download(self, obj: StoredFile) -> SafeString:
        return format_html('<a href="{}">Download</a>', reverse("file", args=[obj.pk]))


class SubtaskInline(admin.TabularInline[Subtask, SubPlan]):
    model = Subtask
    fields = ("position", "instruction", "state")
    readonly_fields = fields
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


@admin.register(SubPlan)
class SubPlanAdmin(RecordAdmin[SubPlan]):
    list_display = ("key", "role", "goal", "page", "task")
    list_select_related = ("mission", "task")
    search_fields = ("key__exact", "role__exact")
    search_help_text = "A key or a role, as a whole."
    ordering = ("-id",)
    inlines: ClassVar = [SubtaskInline]

    @admin.display(description="mission page")
    def page(self, obj: SubPlan) -> SafeString:
        return mission_link(obj.mission)


@admin.register(Subtask)
class SubtaskAdmin(RecordAdmin[Subtask]):
    list_display = ("id", "position", "instruction", "state", "sub_plan")
    list_filter = ("state",)
    list_select_related = ("sub_plan",)
    ordering = ("-id",)


@admin.register(PushConfig)
class PushConfigAdmin(OfTaskAdmin):
    list_display = ("config_id", "url", "page", "cursor", "due_at", "failures", "disabled_at")
    search_fields = ("config_id__exact", "url__exact")
    search_help_text = "An id or an address, as a whole, or the id of a task."
    hidden = ("token", "credentials")
    actions = ("redeliver",)

    def has_redeliver_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("tasks.change_pushconfig")

    @admin.action(description="Redeliver: try at once what is outstanding", permissions=["redeliver"])
    def redeliver(self, request: HttpRequest, queryset: QuerySet[PushConfig]) -> None:
        """Also where it was given up."""
        count = outbox.redeliver(PushConfig.objects.filter(pk__in=queryset.values_list("pk", flat=True)))
        self.message_user(request, f"{count} will be tried at once.", messages.SUCCESS)


@admin.register(PushAttempt)
class PushAttemptAdmin(RecordAdmin[PushAttempt]):
    list_display = ("id", "seq", "status", "error", "seconds", "config", "created_at")
    list_select_related = ("config",)
    search_fields = ("config__config_id__exact",)
    search_help_text = "The id of a push configuration, as a whole."
    ordering = ("-id",)
    actions = ("redeliver",)

    def has_redeliver_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("tasks.change_pushconfig")

    @admin.action(description="Redeliver this event, and those after it", permissions=["redeliver"])
    def redeliver(self, request: HttpRequest, queryset: QuerySet[PushAttempt]) -> None:
        """Of several attempts of one configuration, the oldest event counts."""
        oldest = queryset.order_by().values_list("config").annotate(first=Min("seq"))
        for config, first in oldest:
            outbox.redeliver(PushConfig.objects.filter(pk=config), after=first - 1)
        self.message_user(request, f"{len(oldest)} configurations begin again there.", messages.SUCCESS)


@admin.register(PushEndpoint)
class PushEndpointAdmin(RecordAdmin[PushEndpoint]):
    list_display = ("origin", "owner", "failures", "failing_since", "retry_at")
    search_fields = ("origin__exact",)
    ordering = ("-failing_since",)


def excerpt_of(parts: list[dict[str, Any]]) -> str:
    """The beginning of what the parts say, on one line."""
    text = " ".join(" ".join(part.get("text") or part.get("filename") or "" for part in parts).split())
    return text if len(text) <= 100 else text[:99] + "…"
