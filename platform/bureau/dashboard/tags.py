"""Template tags and filters of the pages: times, sizes, states, Markdown, addresses of static files."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from django import template
from django.contrib.staticfiles import finders
from django.templatetags.static import static
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString

from bureau.dashboard import markdown as markdown_text
from bureau.dashboard.access import as_caller
from bureau.dashboard.graph import state_of
from directory.condition import Condition, condition_of, health_of
from directory.memory import excerpt
from directory.models import Agent, Health
from tasks.models import SubPlan, Subtask, Task

register = template.Library()

# Colour is never alone: each badge carries its word.
TONES = {
    Task.State.SUBMITTED: "idle",
    Task.State.WORKING: "busy",
    Task.State.INPUT_REQUIRED: "ask",
    Task.State.AUTH_REQUIRED: "ask",
    Task.State.COMPLETED: "good",
    Task.State.FAILED: "bad",
    Task.State.REJECTED: "bad",
    Task.State.CANCELED: "idle",
}
CONDITION_TONES = {
    Condition.READY: "good",
    Condition.DISABLED: "idle",
    Condition.QUARANTINE: "ask",
    Condition.OPEN: "bad",
    Condition.HALF_OPEN: "bad",
}
# Longer texts in a record are folded.
LONG_TEXT = 400
UNITS = (("year", 31_557_600), ("month", 2_629_800), ("day", 86_400), ("hour", 3_600), ("minute", 60))


@register.simple_tag
def asset(path: str) -> str:
    """The address of a static file, with a stamp of its content: browsers may keep it, and never too long."""
    return f"{static(path)}?v={_stamp(path)}"


@cache
def _stamp(path: str) -> str:
    found = finders.find(path)
    return hashlib.sha256(Path(found).read_bytes()).hexdigest()[:10] if isinstance(found, str) else ""


@register.filter
def badge(state: str) -> SafeString:
    """A task state as a word with a coloured mark."""
    tone = TONES.get(Task.State(state), "idle") if state in Task.State.values else "idle"
    return format_html('<span class="badge {}">{}</span>', tone, state.replace("-", " "))


@register.filter
def condition(agent: Agent) -> SafeString:
    """How an agent is, as a badge; for one that is left alone, with the time it is tried again."""
    found = condition_of(agent)
    return format_html('<span class="badge {}">{}</span>', CONDITION_TONES[found], found.label)


@register.filter
def tried_again(agent: Agent) -> SafeString | str:
    """When an agent that is left alone is tried again."""
    health = health_of(agent)
    return reopens(health) if health and condition_of(agent) == Condition.OPEN else ""


@register.filter
def reopens(health: Health | None) -> SafeString | str:
    """When an open circuit lets a probe through."""
    if health is None or health.retry_at is None or health.circuit != Health.Circuit.OPEN:
        return ""
    local = timezone.localtime(health.retry_at)
    text = f"{local:%H:%M:%S}" if local.date() == timezone.localdate() else exact(health.retry_at)
    return format_html('<time datetime="{}" title="{}">{}</time>', health.retry_at.isoformat(), exact(local), text)


@register.filter
def took(seconds: float | str | None) -> str:
    """A duration given in seconds; nothing for what a template did not find."""
    return duration(seconds * 1000) if isinstance(seconds, float | int) else ""


@register.filter
def unlocalized(value: float) -> str:
    """A number as HTML attributes take it."""
    return f"{value:.4f}"


@register.filter
def gist(parts: list[dict[str, Any]]) -> str:
    """The beginning of what these parts of a message say."""
    return excerpt(parts, 400)


@register.filter
def plan_state(plan: SubPlan) -> str:
    """A sub-plan's state in a word."""
    return state_of(plan)


@register.filter
def ago(moment: datetime | None) -> SafeString | str:
    """How long ago, with the exact time to hover over; the page's script keeps it true."""
    if moment is None:
        return ""
    return format_html(
        '<time datetime="{}" title="{}" data-ago>{}</time>', moment.isoformat(), exact(moment), _ago(moment)
    )


def _ago(moment: datetime) -> str:
    seconds = (timezone.now() - moment).total_seconds()
    for name, length in UNITS:
        if seconds >= length:
            number = math.floor(seconds / length)
            return f"{number} {name}{'s' if number > 1 else ''} ago"
    return "just now"


@register.filter
def exact(moment: datetime) -> str:
    """Date and time to the second, with the zone."""
    return f"{date_format(timezone.localtime(moment), 'j M Y, H:i:s')} {timezone.get_current_timezone_name()}"


@register.filter
def clock(moment: datetime) -> SafeString:
    """The time of day to the millisecond, with the whole moment to hover over."""
    local = timezone.localtime(moment)
    text = f"{local:%H:%M:%S}.{local.microsecond // 1000:03d}"
    return format_html('<time datetime="{}" title="{}">{}</time>', moment.isoformat(), exact(moment), text)


@register.filter
def duration(value: float | timedelta | None) -> str:
    """A duration given in milliseconds (or as a timedelta), in the unit that reads best."""
    if value is None:
        return ""
    ms = value.total_seconds() * 1000 if isinstance(value, timedelta) else value
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    return f"{minutes} min {seconds} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


@register.filter
def since(end: datetime | None, start: datetime) -> timedelta | None:
    """The time from `start` to `end`; None while there is no end."""
    return end - start if end else None


@register.filter
def usd(amount: Decimal | None) -> str:
    """An amount of money; small ones keep the digits that matter."""
    if amount is None:
        return ""
    return f"${amount:.2f}" if amount >= 1 else f"${amount.normalize():f}" if amount else "$0"


@register.filter
def percent(value: float | None) -> str:
    """0.83 as "83 %"."""
    return "" if value is None else f"{value:.0%}".replace("%", " %")


@register.filter
def as_json(value: Any) -> str:
    """JSON for people to read."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


@register.filter
def markdown(text: str) -> SafeString:
    """Markdown as safe HTML."""
    return markdown_text.render(text)


@register.filter
def pairs(value: Any) -> list[tuple[str, Any]]:
    """A JSON object as rows of name and value, without the empty ones; anything else has none."""
    return [row for row in value.items() if row[1] not in ("", None, {}, [])] if isinstance(value, dict) else []


@register.filter
def kind(value: Any) -> str:
    """How a JSON value is laid out: object, list, long (a text to unfold) or plain."""
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "list"
    return "long" if isinstance(value, str) and len(value) > LONG_TEXT else "plain"


@register.filter
def said(value: Any) -> str:
    """A plain JSON value in a word."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None or value == "" else str(value)


@register.filter
def words(name: str) -> str:
    """The name of a field as words: "depends_on" is "Depends on"."""
    return name.replace("_", " ").capitalize()


@register.filter
def count(number: int) -> str:
    """A number with its thousands apart."""
    return f"{number:,}"


@register.filter
def seconds(value: float | None) -> str:
    """A duration given in seconds."""
    return "" if value is None else duration(value * 1000)


@register.filter
def step_tone(state: str) -> str:
    """The tone of a step's badge."""
    return {Subtask.State.DONE: "good", Subtask.State.FAILED: "bad"}.get(Subtask.State(state), "idle")


@register.simple_tag(takes_context=True)
def open_questions(context: Mapping[str, Any]) -> str:
    """How many questions the signed-in person could answer, for the navigation; "" for none."""
    from bureau.dashboard.questions import count_questions

    return count_questions(as_caller(context["user"]))


@register.filter
def of(mapping: Mapping[str, Any], key: str) -> Any:
    """The value of that key, or nothing."""
    return mapping.get(key, "")
