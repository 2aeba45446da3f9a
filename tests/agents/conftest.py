"""Turns of seeded agents, and a model that says what the test scripts. (Models can be imported only in fixtures.)"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.messages_api import MessagesApi, running
from tests.support.waiting import PATIENCE


@pytest.fixture
def seeded(db: None) -> None:
    from agents.seeding import seed
    from directory.services import forget_agents

    seed()
    forget_agents()


@pytest.fixture
def begin(seeded: None) -> Callable[..., Any]:
    """A claimed turn: begin("echo", "hello", part, ..., task=earlier turn's id, references=[ids]).

    What comes in is from `begin.caller`, who is Alice.
    """
    from agents.turn import Turn
    from directory.models import Agent
    from tasks.claims import claim_next
    from tasks.content import Incoming
    from tasks.services import send_message
    from tests.support.cast import ALICE

    def start(slug: str, text: str, *parts: dict[str, Any], task: Any = None, references: Any = None) -> Turn:
        agent = Agent.objects.get(slug=slug)
        send_message(start.caller, agent, Incoming.from_text(text, *parts, references=references), task_id=task)
        claim = claim_next("default", "test-worker")
        assert claim is not None
        return Turn(claim, agent)

    start.caller = ALICE  # type: ignore[attr-defined]
    return start


@pytest.fixture
def run(begin: Callable[..., Any]) -> Callable[..., Any]:
    """The outcome of one turn: run("assistant", "list files"). `run.turn` is the turn it took."""
    from agents.registry import get_handler

    def outcome(slug: str, text: str, *parts: dict[str, Any], **more: Any) -> Any:
        outcome.turn = begin(slug, text, *parts, **more)  # type: ignore[attr-defined]
        return get_handler(outcome.turn.agent.handler).run(outcome.turn)  # type: ignore[attr-defined]

    return outcome


@pytest.fixture
def follow_up(run: Callable[..., Any]) -> Callable[..., Any]:
    """Writes the outcome of `run`, which must be a question, and takes the turn of the answer to it."""
    from agents.runtime import as_state
    from tasks.results import finish

    def outcome(blocked: Any, text: str, *parts: dict[str, Any]) -> Any:
        turn = run.turn  # type: ignore[attr-defined]
        state, message, artifacts = as_state(blocked)
        assert state == "input-required"
        finish(turn.claim, state, message=message, artifacts=artifacts)
        return run(turn.agent.slug, text, *parts, task=turn.claim.task_id)

    return outcome


@pytest.fixture
def staged(settings: Any) -> None:
    """Route and tool each asked by themselves, and nothing else."""
    settings.BUREAU_TRIAGE = "staged"
    settings.BUREAU_POINTS_OFF = ("clarify", "decompose")


@pytest.fixture
def project(tmp_path: Path, settings: Any) -> Path:
    """A project folder with a few files in it."""
    root = tmp_path / "project"
    (root / "docs" / "deep").mkdir(parents=True)
    (root / "README.md").write_text("# Title\n\nBureau runs agents for people. It keeps a record of all they do.\n")
    (root / "docs" / "guide.txt").write_text("Guide\n")
    (root / "docs" / "deep" / "notes.md").write_text("Notes\n")
    (root / "main.py").write_text("print('hello')\n")
    settings.BUREAU_PROJECT_ROOT = root
    settings.BUREAU_OUTPUT_ROOT = root / "output"
    return root


@pytest.fixture(scope="session")
def messages_api() -> Iterator[MessagesApi]:
    with running() as api:
        yield api


@pytest.fixture
def model(messages_api: MessagesApi, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[MessagesApi]:
    """Claude's client, talking to the scripted server."""
    from agents import model_api

    settings.ANTHROPIC_BASE_URL = messages_api.url
    settings.BUREAU_MODEL_TIMEOUT = 60.0
    monkeypatch.setattr(model_api, "FIRST_PAUSE", 0.01)
    messages_api.reset()
    yield messages_api
    messages_api.reset()
    # A call that was given up may still go out: not with the settings of the next test, and for its replies.
    for thread in threading.enumerate():
        if thread.name == model_api.THREAD:
            thread.join(PATIENCE)
