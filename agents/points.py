"""Decision points: what is asked, which answers there are, and what stands when the answer is unclear.

A point that chooses is a `ChoicePoint`: its answer is one JSON object of a pydantic model. A point that
writes is a `TextPoint`: its answer is text, streamed, and nothing stands in for it.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Generic, Literal, TypeVar, Union

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator

from agents.conversation import Conversation
from agents.exceptions import ModelError
from agents.prompts import Fenced, Prompt, render
from agents.tools.base import Tool
from agents.turn import Turn
from tasks.content import clean, text_of
from tasks.models import Message

# What a decision needs to see of a long message; the text itself is for the tool or the answer.
DECISION_CHARACTERS = 8_000
ANSWER_CHARACTERS = 200_000
RECORDED_CHARACTERS = 2_000
OFFER_CHARACTERS = 800


class Answer(BaseModel):
    """What every choice comes with."""

    model_config = ConfigDict(extra="ignore")

    rationale: str = Field(default="", description="Why, in one sentence.")
    confidence: float | None = Field(default=None, description="How sure you are, from 0 to 1.")

    @field_validator("confidence")
    @classmethod
    def forget_nonsense(cls, value: float | None) -> float | None:
        """A choice is not worth less because its confidence makes no sense."""
        return value if value is not None and 0 <= value <= 1 else None


class RouteAnswer(Answer):
    """Do it here, pass it on to an agent, or do not do it at all."""

    agent: str = ""
    """For agent: its slug. First, because it says most."""
    decision: Literal["local", "agent", "reject"]
    reason: str = Field(default="", description="For reject: what to tell the user, in one or two sentences.")


class ToolAnswer(Answer):
    """Which tool, and with what. `params` are checked by the tool."""

    tool: str
    params: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Offer:
    """An agent that could take a whole request. What it says of itself may be a stranger's word."""

    slug: str
    name: str
    role: str = ""
    about: str = ""
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Triage:
    """What route and tool look at."""

    conversation: Conversation
    tools: Sequence[Tool[Any]] = ()
    anchor: str = ""
    """Names the choice within its task where there may be several at one point; then no message number does."""
    agents: Sequence[Offer] = field(default=(), kw_only=True)
    """The agents that the request may be passed on to."""
    named: str = field(default="", kw_only=True)
    """Slug of the one among them that the request itself names."""

    def key(self, point: str) -> str:
        """Names the choice at that point, the same when the turn is run again."""
        return f"{point}:{self.anchor}" if self.anchor else f"{self.conversation.number}:{point}"

    def as_record(self) -> dict[str, Any]:
        """The part of it that is kept with the decision, and must be the same for the choice to be reused."""
        newest = self.conversation.newest
        return {
            "request": newest.text[:RECORDED_CHARACTERS],
            "messages": self.conversation.number,
            "attachments": [attachment.name for attachment in newest.attachments],
            "references": [str(reference) for reference in newest.references],
        }

    def is_same(self, kept: dict[str, Any]) -> bool:
        """Whether a choice that was kept with this record still stands."""
        return bool(kept == clean(self.as_record()))


@dataclass(frozen=True)
class Writing:
    """What a text is written from: the conversation, and documents as (name, text)."""

    conversation: Conversation
    documents: Sequence[tuple[str, str]] = ()
    details: dict[str, Any] = field(default_factory=dict)
    anchor: str = ""

    def key(self, point: str) -> str:
        """Names the text on record."""
        return f"{point}:{self.anchor}" if self.anchor else f"{self.conversation.number}:{point}"

    def as_record(self) -> dict[str, Any]:
        return {
            "request": self.conversation.newest.text[:RECORDED_CHARACTERS],
            "messages": self.conversation.number,
            "documents": [{"name": name, "characters": len(text)} for name, text in self.documents],
            **self.details,
        }


A = TypeVar("A", bound=Answer)


class ChoicePoint(ABC, Generic[A]):
    """A point that chooses. Its template is templates/prompts/<name>.txt."""

    name: ClassVar[str]
    answer: type[A]
    max_tokens: ClassVar[int] = 4096
    repairs: ClassVar[int] = 0
    """How often the model is told what was wrong with its answer and asked again."""
    recorded_as: ClassVar[tuple[str, ...]] = ()
    """The points that it goes on record as, when those are others than itself."""
    is_policy: ClassVar[bool] = False
    """Whether rules that are sure of their answer come before the model."""
    needs_sure_rules: ClassVar[bool] = False
    """Whether the fallback stands where the point is switched off and the rules are not sure: they would say that
    nobody can do it, though a model can."""

    def by_rules(self, turn: Turn, triage: Triage) -> tuple[A, bool] | None:
        """The answer of the built-in rules, and whether they are sure of it. None: they read the request."""
        return None

    def rows(self, triage: Triage, answer: A) -> list[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
        """What goes on record: (point, choice, candidates), one row each."""
        return [(self.name, answer.model_dump(exclude={"rationale", "confidence"}), self.candidates(triage))]

    @abstractmethod
    def schema(self, triage: Triage) -> type[BaseModel]:
        """The pydantic model of the JSON that the model answers with."""

    @abstractmethod
    def read(self, triage: Triage, raw: BaseModel) -> A:
        """The answer that `raw` means. Raises ModelError("invalid") when it is unclear."""

    @abstractmethod
    def fallback(self, triage: Triage, error: ModelError) -> A:
        """What stands when no clear answer came."""

    def candidates(self, triage: Triage) -> list[dict[str, Any]]:
        """What can be chosen, for the record."""
        return [{"tool": tool.name} for tool in triage.tools]

    def prompt(self, triage: Triage) -> Prompt:
        values = conversation_values(triage.conversation, DECISION_CHARACTERS)
        stable = {"tools": tool_values(triage.tools), "has_agents": bool(triage.agents)}
        return render(self.name, stable, values | self.values(triage))

    def values(self, triage: Triage) -> dict[str, Any]:
        """What the template shows of this case besides the conversation."""
        return {}

    def parse(self, triage: Triage, text: str) -> A:
        """The answer in the model's text. Raises ModelError("invalid")."""
        try:
            return self.read(triage, self.schema(triage).model_validate(_json_in(text)))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(step) for step in first["loc"])
            raise ModelError("invalid", f"The answer does not fit the schema: {where}: {first['msg']}.") from None


class RoutePoint(ChoicePoint[RouteAnswer]):
    """Do it here, pass it on to an agent, or refuse it with a reason. When unclear: here."""

    name = "route"
    answer = RouteAnswer
    needs_sure_rules = True

    def schema(self, triage: Triage) -> type[BaseModel]:
        return _route_schema(tuple(offer.slug for offer in triage.agents))

    def read(self, triage: Triage, raw: BaseModel) -> RouteAnswer:
        return check_route(triage, RouteAnswer(**raw.model_dump()))

    def fallback(self, triage: Triage, error: ModelError) -> RouteAnswer:
        if error.kind == "declined":
            # The model would not even look at it; passing it on would ask the same model again.
            return RouteAnswer(decision="reject", reason=str(error), rationale="The model declined the request.")
        return RouteAnswer(decision="local", rationale="Unclear, so it is tried here.")

    def candidates(self, triage: Triage) -> list[dict[str, Any]]:
        return route_candidates(triage)

    def values(self, triage: Triage) -> dict[str, Any]:
        return {"agents": offer_values(triage.agents)}


def check_route(triage: Triage, found: A) -> A:
    """The answer, with the agent that the request names where it is not refused. `found` has the fields of
    `RouteAnswer`. Raises ModelError("invalid") when it says half of what it should."""
    answer: Any = found
    if answer.decision == "reject" and not answer.reason.strip():
        raise ModelError("invalid", "The request was refused without a reason.")
    if answer.decision != "reject" and triage.named:
        answer.decision, answer.agent = "agent", triage.named
    if answer.decision == "agent" and answer.agent not in {offer.slug for offer in triage.agents}:
        raise ModelError("invalid", "It is to be passed on, and the answer does not say to whom.")
    if answer.decision != "agent":
        answer.agent = ""
    return found


def route_candidates(triage: Triage) -> list[dict[str, Any]]:
    """The ways that a request may go, for the record."""
    agents = [{"agent": offer.slug} for offer in triage.agents]
    return [{"decision": "local"}, *agents, {"decision": "reject"}]


def route_fields(slugs: tuple[str, ...]) -> dict[str, Any]:
    """The part of a schema that says which way it goes; `agent` is there only where an agent is."""
    ways: Any = Literal["local", "agent", "reject"] if slugs else Literal["local", "reject"]
    fields: dict[str, Any] = {"decision": (ways, ...)}
    if slugs:
        one_of: Any = Literal[("", *slugs)]
        fields["agent"] = (one_of, Field(default="", description="For agent: which one."))
    return fields | {"reason": (str, Field(default="", description="For reject: what to tell the person."))}


@lru_cache(maxsize=16)
def _route_schema(slugs: tuple[str, ...]) -> type[BaseModel]:
    return create_model("RouteChoice", __base__=Answer, **route_fields(slugs))


class ToolPoint(ChoicePoint[ToolAnswer]):
    """Which tool, with which parameters. When unclear: the language model."""

    name = "tool"
    answer = ToolAnswer
    needs_sure_rules = True

    def schema(self, triage: Triage) -> type[BaseModel]:
        return _tool_schema(tuple((tool.name, tool.params) for tool in triage.tools))

    def read(self, triage: Triage, raw: BaseModel) -> ToolAnswer:
        call = raw.call  # type: ignore[attr-defined]
        params = call.params.model_dump(exclude_defaults=True)
        return ToolAnswer(tool=call.tool, params=params, **raw.model_dump(include={"rationale", "confidence"}))

    def fallback(self, triage: Triage, error: ModelError) -> ToolAnswer:
        return ToolAnswer(tool="answer", rationale="Unclear, so the language model answers.")


class TextPoint(ABC):
    """A point that writes. Its template is templates/prompts/<name>.txt."""

    name: ClassVar[str]
    max_tokens: ClassVar[int] = 16_000

    def prompt(self, writing: Writing) -> Prompt:
        values = conversation_values(writing.conversation, ANSWER_CHARACTERS)
        room = ANSWER_CHARACTERS
        documents = []
        for name, text in writing.documents:
            documents.append(Fenced("document", shorten(text, room), name))
            room = max(room - len(text), 0)
        return render(self.name, {}, values | {"documents": documents, **writing.details})


class FulfilPoint(TextPoint):
    """The answer itself."""

    name = "fulfil"


class SummarisePoint(TextPoint):
    """A summary of one text. `details`: {"sentences": how many at most}."""

    name = "summarise"
    max_tokens = 8_000


ROUTE = RoutePoint()
TOOL = ToolPoint()
FULFIL = FulfilPoint()
SUMMARISE = SummarisePoint()


def tool_values(tools: Sequence[Tool[Any]]) -> list[dict[str, str]]:
    """What templates show of tools."""
    return [{"name": tool.name, "description": tool.description, "hint": tool.hint} for tool in tools]


def offer_values(offers: Sequence[Offer]) -> list[Fenced]:
    """What templates show of agents: each one's words between tags, for a stranger may have written them."""
    shown = []
    for offer in offers:
        examples = "; ".join(offer.examples[:5])
        text = f"{offer.name}. {offer.about}{f' For example: {examples}' if examples else ''}"
        shown.append(Fenced("candidate", shorten(text, OFFER_CHARACTERS), offer.slug))
    return shown


def conversation_values(conversation: Conversation, limit: int) -> dict[str, Any]:
    """What templates show of a conversation: the newest message, what came before it, and what is attached."""
    newest = conversation.newest
    index = max(number for number, message in enumerate(conversation.messages) if message["role"] == Message.Role.USER)
    earlier: list[Fenced] = []
    room = limit
    # The newest first, so that what has to be left out is the oldest.
    for message in reversed(conversation.messages[:index]):
        if text := text_of(message["parts"]):
            if room <= 0:
                earlier.append(Fenced("note", "[earlier messages are left out here]"))
                break
            earlier.append(Fenced("agent" if message["role"] == Message.Role.AGENT else "user", shorten(text, room)))
            room -= len(text)
    earlier.reverse()
    return {
        "request": Fenced("request", shorten(newest.text, limit)),
        "earlier": earlier,
        "attachments": [Fenced("attachment", attachment.name) for attachment in newest.attachments],
        "references": len(newest.references),
    }


def shorten(text: str, limit: int) -> str:
    """The text, or its beginning with a note of how much is left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[… {len(text) - limit} more characters are left out here]"


@lru_cache(maxsize=32)
def _tool_schema(tools: tuple[tuple[str, type[BaseModel]], ...]) -> type[BaseModel]:
    return create_model("ToolChoice", __base__=Answer, call=(_union(tools), ...))


def call_schema(tools: Sequence[Tool[Any]]) -> Any:
    """The type of {"tool": …, "params": …}: one variant per tool, so that a server with structured outputs can only
    name a tool with its own parameters."""
    return _union(tuple((tool.name, tool.params) for tool in tools))


@lru_cache(maxsize=64)
def _union(tools: tuple[tuple[str, type[BaseModel]], ...]) -> Any:
    calls: list[Any] = []
    for name, params in tools:
        only: Any = Literal[name]
        calls.append(create_model(f"{name.title().replace('_', '')}Call", tool=(only, ...), params=(params, ...)))
    return Union[tuple(calls)]  # noqa: UP007 - put together from a list


def _json_in(text: str) -> Any:
    """The JSON object in the text; servers without structured outputs put words or a code fence around it."""
    start, end = text.find("{"), text.rfind("}")
    try:
        return json.loads(text[start : end + 1] if 0 <= start < end else text)
    except (ValueError, RecursionError):
        raise ModelError("invalid", "The answer is not JSON.") from None
