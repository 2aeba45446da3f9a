"""What a turn comes to. Every agent answers with exactly one of these; the runtime alone turns it into a state."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tasks.results import ArtifactDraft

MAX_QUESTIONS = 5


@dataclass(frozen=True, slots=True)
class Ok:
    """Done: a short message for people, the deliverables, and what might be asked next."""

    message: str = ""
    artifacts: list[ArtifactDraft] = field(default_factory=list)
    next_questions: list[str] = field(default_factory=list)
    untrusted: str = ""
    """Slug of the remote agent whose words these are; they are marked as such. So in the other outcomes."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """Something is missing: why, what exactly, and one to five questions for the person."""

    why: str
    questions: list[str]
    missing_inputs: list[str] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    """What the questions are about, for whoever reads the answer: {"kind": "confirm", "digest": …} and so on."""
    untrusted: str = ""
    until: datetime | None = None
    """When to look at what goes on below meanwhile, should no answer have come by then."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.questions) <= MAX_QUESTIONS:
            raise ValueError(f"A blocked turn asks one to {MAX_QUESTIONS} questions, not {len(self.questions)}.")


@dataclass(frozen=True, slots=True)
class Auth:
    """The person has to authenticate somewhere before this can go on."""

    prompt: str
    scheme: str
    service: str
    about: dict[str, Any] = field(default_factory=dict)
    untrusted: str = ""
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """This will not be done here, for this reason."""

    reason: str
    untrusted: str = ""


@dataclass(frozen=True, slots=True)
class Error:
    """It was tried and failed. `error_class` is a short stable word, such as `file_not_found`."""

    error_class: str
    message: str
    untrusted: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Others are at work for this task. It stays `working`; what happens below it wakes it, or the time `until`."""

    until: datetime | None = None


Outcome = Ok | Blocked | Auth | Rejected | Error | Waiting
