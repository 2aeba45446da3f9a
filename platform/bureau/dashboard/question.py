"""The question that a mission waits for an answer to, and what answers it with one click."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.utils import timezone
from django.utils.timesince import timesince

from directory.names import names_of
from tasks.models import Message, Task

# What may be answered by a button, by the kind of question: the word that is sent, and what the button says.
CHOICES: dict[str, tuple[tuple[str, str], ...]] = {
    "confirm": (("yes", "Agree"), ("no", "Refuse")),
    "repeat": (("yes", "Run it again"), ("no", "Leave it")),
    "confidence": (("yes", "Deliver it as it is"), ("no", "Refuse it")),
    "budget": (("raise", "Raise the budget"), ("finish", "Finish with what there is"), ("stop", "Stop")),
    "recover": (("yes", "Try again"), ("leave it out", "Leave it out")),
}
WORDS = sorted({word for choices in CHOICES.values() for word, _ in choices})


@dataclass(frozen=True, slots=True)
class Question:
    """One open question. `id` is that of the message that asks it; `service` where somebody has to sign in.

    `source` is the remote agent that asks, if it is one.
    """

    id: str
    parts: list[dict[str, Any]]
    choices: Sequence[tuple[str, str]]
    service: str = ""
    source: str = ""


def question_of(state: str, message: dict[str, Any] | None) -> Question | None:
    """The question in a task's status message; None where the task does not wait."""
    if state not in Task.INTERRUPTED or not message:
        return None
    details = message.get("metadata", {})
    asks = details.get("asks", {})
    if asks.get("kind") == "child":
        # A part of the mission asks; what it asks is what counts.
        asks = asks.get("asks", {})
    choices = CHOICES.get(asks.get("kind", ""), ())
    service, source = str(details.get("service", "")), str(details.get("untrusted", ""))
    return Question(str(message.get("messageId", "")), message["parts"], choices, service, source)


def closed_because(task: Task) -> str:
    """Why an answer to a question of this task came too late, for whoever gave it."""
    said = Message.objects.filter(task=task, role=Message.Role.USER).order_by("-id").first()
    if said is None:
        return "This question is no longer open. Nothing was changed."
    author = said.author or task.owner
    when = timesince(said.created_at, timezone.now())
    more = " Something else is asked now." if task.state in Task.INTERRUPTED else ""
    return f"{names_of([author])[author]} answered this {when} ago, so your answer changed nothing.{more}"
