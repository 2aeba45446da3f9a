"""How work was done, in the admin: decisions and tool calls, to read."""

from django.contrib import admin
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.headlines import headline
from agents.models import Budget, Decision, RemoteLeg, Reservation, ToolCall
from agents.orchestration import points as mission
from agents.orchestration import progress
from agents.points import FULFIL, ROUTE, SUMMARISE, TOOL
from directory.admin_base import RecordAdmin, one_of

OF_MISSIONS = (
    mission.PLAN,
    mission.ALLOCATE,
    progress.FOLLOW_UP,
    progress.STEP,
    progress.RECOVER,
    progress.SYNTHESISE,
    progress.CONFIRM,
)
POINTS = [point.name for point in (mission.CLARIFY, mission.DECOMPOSE, ROUTE, TOOL, FULFIL, SUMMARISE, *OF_MISSIONS)]


@admin.register(Decision)
class DecisionAdmin(RecordAdmin[Decision]):
    list_display = ("id", "point", "chosen", "brain", "confidence", "is_fallback", "cost_usd", "latency_ms", "page")
    list_filter = (one_of("point", *POINTS), one_of("brain", "claude", "rules"), "is_fallback")
    list_select_related = ("task",)
    search_fields = ("model__exact",)
    search_help_text = "The name of a model or the id of a task, as a whole."
    ordering = ("-id",)

    @admin.display(description="choice")
    def chosen(self, obj: Decision) -> str:
        return headline(obj)

    @admin.display(description="mission page")
    def page(self, obj: Decision) -> SafeString:
        return _mission_link(obj)


@admin.register(ToolCall)
class ToolCallAdmin(RecordAdmin[ToolCall]):
    list_display = ("tool", "state", "error_class", "page", "started_at", "ended_at")
    list_filter = ("state",)
    list_select_related = ("task",)
    search_fields = ("tool__exact", "error_class__exact")
    search_help_text = "A tool or an error class by name, or the id of a call or task."
    ordering = ("-started_at", "-id")

    @admin.display(description="mission page")
    def page(self, obj: ToolCall) -> SafeString:
        return _mission_link(obj)


@admin.register(Budget)
class BudgetAdmin(RecordAdmin[Budget]):
    list_display = ("mission", "calls", "calls_limit", "tokens", "tokens_limit", "usd", "usd_limit", "is_closed")
    list_filter = ("is_closed",)
    list_select_related = ("mission",)
    search_fields = ("answered__exact",)
    search_help_text = "The id of the message that raised it last, as a whole."
    ordering = ("-mission_id",)


@admin.register(Reservation)
class ReservationAdmin(RecordAdmin[Reservation]):
    list_display = ("id", "task", "epoch", "tokens", "usd")
    list_select_related = ("task",)
    search_fields = ("task__id__exact",)
    search_help_text = "The id of a reservation or task, as a whole."
    ordering = ("-id",)


@admin.register(RemoteLeg)
class RemoteLegAdmin(RecordAdmin[RemoteLeg]):
    list_display = ("remote_task_id", "phase", "error_class", "page", "progress_at", "due_at", "canceled_at")
    list_filter = ("phase",)
    list_select_related = ("task",)
    search_fields = ("remote_task_id__exact",)
    search_help_text = "The remote agent's id of its task, or the id of ours."
    ordering = ("-created_at", "-id")
    hidden = ("callback_hash",)

    @admin.display(description="mission page")
    def page(self, obj: RemoteLeg) -> SafeString:
        return _mission_link(obj)


def _mission_link(row: Decision | ToolCall | RemoteLeg) -> SafeString:
    return format_html('<a href="{}">{}</a>', reverse("mission", args=[row.task_id]), row.task)
