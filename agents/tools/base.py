"""What a tool is: a name, parameters, a grammar that reads them from words, and one act."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from agents.conversation import Request
from agents.exceptions import ToolError
from agents.turn import Turn
from tasks.results import ArtifactDraft


class Risk(StrEnum):
    """The most that a tool can do."""

    NONE = "none"
    READS = "reads"
    WRITES = "writes"
    EXECUTES = "executes"


class Params(BaseModel):
    """Base of all parameters. Everything has a default: what is missing is asked for, not refused."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=False)


@dataclass(frozen=True, slots=True)
class Question:
    """The one thing that is missing before the tool can run."""

    missing: str
    text: str


@dataclass(slots=True)
class ToolResult:
    """What a tool call came to: a short text for people, the deliverables, and data for machines."""

    text: str
    artifacts: list[ArtifactDraft] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """As kept in `ToolCall.result`."""
        artifacts = [
            {
                "name": draft.name,
                "parts": draft.parts,
                "description": draft.description,
                "metadata": draft.metadata,
                "is_streamed": draft.is_streamed,
            }
            for draft in self.artifacts
        ]
        return {"text": self.text, "artifacts": artifacts, "data": self.data}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "ToolResult":
        return cls(value["text"], [ArtifactDraft(**draft) for draft in value["artifacts"]], value["data"])


P = TypeVar("P", bound=Params)


class Tool(ABC, Generic[P]):
    """One act. An instance serves all turns of a process, so it keeps no state."""

    name: ClassVar[str]
    description: ClassVar[str]
    hint: ClassVar[str] = ""
    """For the model: when to take it, and how to fill in its parameters."""
    params: type[P]
    examples: ClassVar[tuple[str, ...]] = ()
    """Requests that mean this tool; the rules match by them."""
    cues: ClassVar[tuple[str, ...]] = ()
    """Words that hardly occur in requests for anything else."""
    risk: ClassVar[Risk] = Risk.NONE
    is_repeatable: ClassVar[bool] = True
    """Whether doing it twice does no harm. If not, an act that may have happened is asked about."""
    needs_model: ClassVar[bool] = False
    uses_model: ClassVar[bool] = False
    """Whether it asks a model where there is one."""

    def parse(self, request: Request) -> dict[str, Any] | None:
        """The parameters when the words are exactly this tool's form, else None. They may be incomplete."""
        return None

    def extract(self, request: Request) -> dict[str, Any]:
        """What parameters can be found in a request that means this tool in words of its own."""
        return {}

    def complete(self, request: Request) -> dict[str, Any]:
        """The parameters in the answer to this tool's question."""
        return self.extract(request)

    def question(self, params: P) -> Question | None:
        """What is missing, or None when it can run."""
        return None

    def permit(self, turn: Turn, params: P) -> None:
        """Raises ToolError("declined") when whoever this is done for may not have it done. Asked before the act is
        agreed to; `run` has to ask again, because rights may be lost meanwhile."""

    def act(self, params: P) -> str:
        """What exactly would be done, in a sentence, when a person has to agree to it first; else ""."""
        return ""

    @abstractmethod
    def run(self, turn: Turn, params: P) -> ToolResult:
        """Do it. Raises ToolError with the reason, or Stopped."""

    def check(self, params: dict[str, Any]) -> P:
        """The parameters as this tool's model. Raises ToolError("invalid_params") saying what is wrong."""
        try:
            return self.params.model_validate(params)
        except ValidationError as error:
            reasons = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'parameters'}: {e['msg']}" for e in error.errors())
            known = ", ".join(self.params.model_fields) or "none"
            raise ToolError("invalid_params", f"{self.name}: {reasons}. Its parameters are: {known}.") from None
