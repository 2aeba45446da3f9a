"""For agents of your own: a function, or a class with `run`, that yields what it does.

    from agents.authoring import Question, Skill, agent

    @agent("greeter", role="greeter", skills=[Skill("greet", "Greets people.", ["Greet Ada", "Say hello to Bob"])])
    def greet(turn):
        if not turn.text.strip():
            yield Question("Whom should I greet?")
        yield "Looking for a nice word …"
        yield Deliverable("greeting", f"Hello, {turn.text}!")

A module of such agents is found by BUREAU_AGENTS, or by an entry point in the group `bureau.agents`.
`manage.py seed` makes their rows in the directory.
"""

import importlib
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, TypeVar

from django.conf import settings

from agents.outcomes import MAX_QUESTIONS, Auth, Blocked, Error, Ok, Outcome, Rejected
from agents.registry import Handler, add_handler
from agents.turn import Turn
from tasks.results import ArtifactDraft

logger = logging.getLogger(__name__)

GROUP = "bureau.agents"

__all__ = ["Auth", "Blocked", "Deliverable", "Error", "Ok", "Question", "Rejected", "Skill", "agent", "discover"]


@dataclass(frozen=True, slots=True)
class Skill:
    """One thing the agent can do. Examples decide who gets what: give several, in people's words."""

    skill_id: str
    description: str
    examples: Sequence[str]
    tags: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """Ends the turn: the task waits for the answer, which is the next turn's `turn.text`."""

    text: str


def Deliverable(name: str, content: str | dict[str, Any], description: str = "") -> ArtifactDraft:
    """An artifact of one text, or of one piece of data."""
    return ArtifactDraft(name, [{"text": content} if isinstance(content, str) else {"data": content}], description)


@dataclass(frozen=True, slots=True)
class Authored:
    """What is known of an agent that was written outside of Bureau."""

    name: str
    title: str
    description: str
    role: str
    skills: tuple[Skill, ...] = field(default_factory=tuple)
    needs_task: bool = True


AUTHORED: dict[str, Authored] = {}
Run = Callable[[Turn], Any]
T = TypeVar("T")


def agent(
    name: str,
    *,
    role: str = "",
    skills: Iterable[Skill] = (),
    title: str = "",
    description: str = "",
    needs_task: bool = True,
) -> Callable[[T], T]:
    """Decorator for a function of a turn, or for a class whose instances have `run(turn)`.

    With a `role`, a coordinator may give it parts of missions: the message then says goal, steps and inputs in words.
    Without `needs_task`, other agents get what it completes at once as a bare message, and no task to follow.
    What it may yield or return: a text (progress when yielded, the outcome's message when returned), a deliverable,
    a `Question`, an outcome, or the structured answer {"state", "prompt", "auth_type"?, "service"?}.
    """

    def register(target: T) -> T:
        made: Any = target() if isinstance(target, type) else target
        run: Run = made.run if hasattr(made, "run") else made
        about = description or (getattr(target, "__doc__", "") or "").strip()
        AUTHORED[name] = Authored(
            name, title or name.replace("-", " ").capitalize(), about, role, tuple(skills), needs_task
        )
        add_handler(AuthoredHandler(name, run, takes_sub_plans=bool(role)))
        return target

    return register


class AuthoredHandler(Handler):
    """Runs what an author wrote, and makes one outcome of it."""

    takes_requests = True

    def __init__(self, name: str, run: Run, *, takes_sub_plans: bool) -> None:
        self.name = name  # type: ignore[misc]
        self.takes_sub_plans = takes_sub_plans  # type: ignore[misc]
        self._run = run

    def run(self, turn: Turn) -> Outcome:
        found = self._run(turn)
        if found is None:
            return Ok()
        if isinstance(found, str) and steered(found) is None:
            return Ok(found)
        artifacts: list[ArtifactDraft] = []
        if isinstance(found, str | dict | ArtifactDraft | Question | Outcome):
            found = [found]
        for item in found:
            turn.check()
            if outcome := self._take(turn, item, artifacts):
                return outcome
        return Ok("", artifacts)

    def _take(self, turn: Turn, item: Any, artifacts: list[ArtifactDraft]) -> Outcome | None:
        """Do what a yielded value means; the outcome when the turn ends with it."""
        match item:
            case ArtifactDraft():
                artifacts.append(item)
            case Question():
                return Blocked("", [item.text])
            case Ok():
                return Ok(item.message, [*artifacts, *item.artifacts], item.next_questions)
            case Blocked() | Auth() | Rejected() | Error():
                return item
            case str() | dict() if (outcome := steered(item)) is not None:
                return outcome
            case str():
                turn.say(item)
            case _:
                raise TypeError(f"Agent {self.name} yielded a {type(item).__name__} that means nothing here.")
        return None


def steered(answer: str | dict[str, Any]) -> Outcome | None:
    """The outcome that a structured answer means: {"state": "input-required", "prompt": …} and so on. Else None."""
    if isinstance(answer, str):
        if not answer.lstrip().startswith("{"):
            return None
        try:
            answer = json.loads(answer)
        except (ValueError, RecursionError):
            return None
    if not isinstance(answer, dict) or not isinstance(answer.get("prompt"), str):
        return None
    prompt = answer["prompt"]
    match answer.get("state"):
        case "input-required":
            return Blocked("", [prompt][:MAX_QUESTIONS])
        case "auth-required":
            return Auth(prompt, str(answer.get("auth_type", "")), str(answer.get("service", "")))
        case "rejected":
            return Rejected(prompt)
        case "failed":
            return Error("failed", prompt)
        case "completed":
            return Ok(prompt)
    return None


def discover() -> list[str]:
    """Import every module that holds agents; one that cannot be imported is logged and left out. Returns the names."""
    modules = [*settings.BUREAU_AGENTS, *(point.value for point in entry_points(group=GROUP))]
    found = []
    for name in dict.fromkeys(modules):
        try:
            importlib.import_module(name.partition(":")[0])
        except Exception:
            logger.exception("Agents of %s cannot be imported", name, extra={"action": "agents.not_imported"})
            continue
        found.append(name)
    return found
