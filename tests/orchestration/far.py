"""Missions that reach remote agents: real servers, our turns and the follower's rounds, in one process."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from tests.support.remote_agents import Executor, skill
from tests.support.waiting import wait_until


def go_on(mission: Any) -> Any:
    """One round of the follower, whatever is due when, and the turns it causes."""
    from agents import runtime
    from agents.following import follow_due
    from agents.models import RemoteLeg
    from tasks.models import Task

    RemoteLeg.objects.filter(due_at__isnull=False).exclude(phase="sending").update(due_at=timezone.now())
    follow_due()
    runtime.drain("default")
    return Task.objects.get(pk=mission.pk)


def settled(mission: Any) -> Any:
    """The mission, where it has come to."""
    from tasks.models import Task

    wait_until(lambda: go_on(mission).state not in Task.RUNNING, what="the mission")
    return Task.objects.get(pk=mission.pk)


def translates(*examples: str, number: int = 1) -> dict[str, Any]:
    """A skill of translating, as a card has it."""
    return skill(number, description="Translates texts.", tags=["translate"], examples=list(examples or TRANSLATING))


TRANSLATING = ("Translate the report into French", "Translate this letter into Ukrainian")


class Translator(Executor):
    """Says what it was told in something like French, and remembers it."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def run(self, text: str, updater: Any, *, is_first: bool) -> None:
        from a2a.helpers.proto_helpers import new_text_part

        self.told.append(text)
        await updater.add_artifact([new_text_part(f"Le {text}")], name="translation")
        await updater.complete(updater.new_agent_message([new_text_part("Voilà.")]))


class Failing(Executor):
    """Fails, and says why."""

    async def run(self, text: str, updater: Any, *, is_first: bool) -> None:
        from a2a.helpers.proto_helpers import new_text_part

        await updater.failed(updater.new_agent_message([new_text_part("No ink.")]))
