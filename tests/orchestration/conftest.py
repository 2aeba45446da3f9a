"""Missions of seeded agents, run to where they settle, by rules or by a scripted model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.agents.conftest import begin, messages_api, model, project, seeded

__all__ = ["begin", "messages_api", "model", "project", "seeded"]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to be tried again rests no longer than it takes to look."""
    from agents.orchestration import flow

    monkeypatch.setattr(flow, "backoff", lambda attempt: 0.0)


@pytest.fixture
def settle(seeded: None, project: Any, quick: None) -> Callable[..., Any]:
    """Sends to the assistant, runs what is due until nothing is, and returns the mission."""
    from agents import runtime
    from directory.models import Agent
    from tasks.content import Incoming
    from tasks.models import Task
    from tasks.services import send_message
    from tests.support.cast import ALICE

    def send(text: str, *parts: dict[str, Any], task: Any = None, references: Any = None) -> Task:
        agent = Agent.objects.get(slug="assistant")
        sent = send_message(ALICE, agent, Incoming.from_text(text, *parts, references=references), task_id=task)
        runtime.drain("default")
        return Task.objects.get(pk=sent.task_id)

    return send
