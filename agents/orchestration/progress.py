"""The decision points of a mission under way: follow-up, recover, synthesise, confirm, and the text of a step.

Each has a schema, a prompt, rules, and what stands when no clear answer came; `agents.points` says how.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from django.conf import settings
from pydantic import BaseModel, Field, create_model

from agents.exceptions import ModelError
from agents.orchestration import flow
from agents.points import (
    ANSWER_CHARACTERS,
    RECORDED_CHARACTERS,
    Answer,
    ChoicePoint,
    TextPoint,
    Triage,
    call_schema,
    shorten,
)
from agents.prompts import Fenced
from agents.tools.base import Tool
from agents.turn import Turn


class FollowUpAnswer(Answer):
    """Can it go on with this message, or does a person still have to answer?"""

    decision: Literal["handle", "human"]


class RecoverAnswer(Answer):
    """What to do about a sub-plan that failed. `hint` is for the next attempt, `question` for the person, and `tool`
    with `params` for the step that failed, should it be done otherwise."""

    strategy: Literal["retry", "retry_modified", "alternative", "ask", "replan", "abandon"]
    hint: str = ""
    question: str = ""
    tool: str = ""
    params: dict[str, Any] = Field(default_factory=dict)


class SynthesisAnswer(Answer):
    """One answer from all results. `conflicts` come first when it is shown."""

    final_answer: str
    conflicts: list[str] = Field(default_factory=list)
    notes: str = ""


class ConfirmAnswer(Answer):
    """Is it safe to go ahead, or has a person to agree first?"""

    decision: Literal["proceed", "ask"]


@dataclass(frozen=True)
class FollowUpCase(Triage):
    """A question that a sub-plan has asked, and the message that came."""

    question: str = ""
    message: str = ""

    def as_record(self) -> dict[str, Any]:
        return {"question": self.question[:RECORDED_CHARACTERS], "message": self.message[:RECORDED_CHARACTERS]}


class FollowUpPoint(ChoicePoint[FollowUpAnswer]):
    """Does this message answer what was asked? When unclear: ask the person."""

    name = "follow-up"
    answer = FollowUpAnswer

    def schema(self, triage: Triage) -> type[BaseModel]:
        return FollowUpAnswer

    def read(self, triage: Triage, raw: BaseModel) -> FollowUpAnswer:
        assert isinstance(raw, FollowUpAnswer)
        return raw

    def fallback(self, triage: Triage, error: ModelError) -> FollowUpAnswer:
        return FollowUpAnswer(decision="human", rationale="Nobody could tell, so the person is asked.")

    def candidates(self, triage: Triage) -> list[dict[str, Any]]:
        return [{"decision": "handle"}, {"decision": "human"}]

    def values(self, triage: Triage) -> dict[str, Any]:
        assert isinstance(triage, FollowUpCase)
        return {"question": Fenced("question", triage.question), "message": Fenced("message", triage.message)}

    def by_rules(self, turn: Turn, triage: Triage) -> tuple[FollowUpAnswer, bool]:
        assert isinstance(triage, FollowUpCase)
        if not triage.message.strip():
            return FollowUpAnswer(decision="human", rationale="The message says nothing."), True
        return FollowUpAnswer(decision="handle", rationale="A message came, so it is passed on."), False


@dataclass(frozen=True)
class RecoverCase(Triage):
    """A sub-plan that failed in its attempt number `attempt` (from 0)."""

    part: str = ""
    goal: str = ""
    attempt: int = 0
    error_class: str = ""
    error: str = ""
    alternatives: tuple[str, ...] = ()
    was_asked: bool = False
    may_replan: bool = False
    step: str = ""
    """The step that failed, with its tool and parameters; "" where that is not known."""

    @property
    def kind(self) -> flow.ErrorKind:
        return flow.classify(self.error_class)

    @property
    def is_last(self) -> bool:
        """Whether it has been tried as often as it may be."""
        return self.attempt + 1 >= settings.BUREAU_SUB_PLAN_ATTEMPTS

    def as_record(self) -> dict[str, Any]:
        return {
            "sub_plan": self.part,
            "attempt": self.attempt + 1,
            "error_class": self.error_class,
            "kind": self.kind.value,
            "error": self.error[:RECORDED_CHARACTERS],
            **({"step": self.step[:RECORDED_CHARACTERS]} if self.step else {}),
        }


class RecoverPoint(ChoicePoint[RecoverAnswer]):
    """What to do about a failure: policy by class of error first, then a judgement. When unclear: by class."""

    name = "recover"
    answer = RecoverAnswer
    is_policy = True

    def schema(self, triage: Triage) -> type[BaseModel]:
        assert isinstance(triage, RecoverCase)
        return _recover_schema(tuple(triage.tools) if triage.step else ())

    def read(self, triage: Triage, raw: BaseModel) -> RecoverAnswer:
        assert isinstance(triage, RecoverCase)
        answer = RecoverAnswer(**raw.model_dump(exclude={"call"}))
        if answer.strategy == "ask" and not answer.question.strip():
            raise ModelError("invalid", "A person is to be asked, without a question.")
        call = getattr(raw, "call", None)
        if call is not None and answer.strategy in ("retry_modified", "alternative"):
            answer.tool, answer.params = call.tool, call.params.model_dump(exclude_defaults=True)
        if answer.strategy == "alternative" and not triage.alternatives and not answer.tool:
            raise ModelError("invalid", "There is no other agent to give it to, and no other tool is named.")
        if answer.strategy == "replan" and not triage.may_replan:
            raise ModelError("invalid", "The mission has been planned anew already.")
        if answer.strategy in ("retry", "retry_modified", "alternative") and triage.is_last:
            raise ModelError("invalid", f"It was tried {triage.attempt + 1} times, which is the most.")
        return answer

    def fallback(self, triage: Triage, error: ModelError) -> RecoverAnswer:
        return self._by_class(triage)[0]

    def candidates(self, triage: Triage) -> list[dict[str, Any]]:
        assert isinstance(triage, RecoverCase)
        return [{"strategy": name} for name in ("retry", "retry_modified", "alternative", "ask", "replan", "abandon")]

    def values(self, triage: Triage) -> dict[str, Any]:
        assert isinstance(triage, RecoverCase)
        return {
            "goal": Fenced("goal", triage.goal),
            "kind": triage.kind.value,
            "attempts": triage.attempt + 1,
            "most": settings.BUREAU_SUB_PLAN_ATTEMPTS,
            "error": Fenced("error", shorten(triage.error, RECORDED_CHARACTERS)),
            "alternatives": ", ".join(triage.alternatives) or "none",
            "may_replan": triage.may_replan,
            "is_last": triage.is_last,
            "step": Fenced("step", shorten(triage.step, RECORDED_CHARACTERS)) if triage.step else "",
        }

    def by_rules(self, turn: Turn, triage: Triage) -> tuple[RecoverAnswer, bool]:
        return self._by_class(triage)

    @staticmethod
    def _by_class(triage: Triage) -> tuple[RecoverAnswer, bool]:
        assert isinstance(triage, RecoverCase)
        kind = triage.kind
        if triage.is_last:
            why = f"It was tried {triage.attempt + 1} times, which is the most."
            return RecoverAnswer(strategy="abandon", rationale=why), not triage.may_replan
        if kind == flow.ErrorKind.TRANSIENT:
            return RecoverAnswer(strategy="retry", rationale="Such errors pass; it rests and is tried again."), True
        if kind == flow.ErrorKind.UNAVAILABLE:
            if triage.alternatives:
                return RecoverAnswer(strategy="alternative", rationale="Its agent cannot be reached."), True
            why = "Its agent cannot be reached, and there is no other."
            return RecoverAnswer(strategy="retry", rationale=why), True
        if kind == flow.ErrorKind.PERMISSION and not triage.was_asked and triage.error_class != "not_confirmed":
            asked = f"{triage.error} What should I do: try again, or leave this part out?"
            return RecoverAnswer(strategy="ask", question=asked, rationale="Only a person can permit it."), True
        why = "The same would fail again, and the rules know no other way."
        return RecoverAnswer(strategy="abandon", rationale=why), triage.error_class in ("not_confirmed", "no_model")


@lru_cache(maxsize=16)
def _recover_schema(tools: tuple[Tool[Any], ...]) -> type[BaseModel]:
    strategies: Any = RecoverAnswer.model_fields["strategy"].annotation
    fields: dict[str, Any] = {
        "strategy": (strategies, ...),
        "hint": (str, Field(default="", description="For retry_modified: what to do differently.")),
        "question": (str, Field(default="", description="For ask: the one question.")),
    }
    if tools:
        told = "What to try the failed step with instead; `answer` where the language model shall do it."
        fields["call"] = (call_schema(tools) | None, Field(default=None, description=told))
    return create_model("RecoverChoice", __base__=Answer, **fields)


@dataclass(frozen=True)
class SynthesisCase(Triage):
    """What the sub-plans came to: (key, goal, state, text). `wishes` are what the person said of an earlier answer."""

    goal: str = ""
    results: tuple[tuple[str, str, str, str], ...] = ()
    wishes: tuple[str, ...] = ()

    def as_record(self) -> dict[str, Any]:
        results = [{"sub_plan": key, "state": state, "characters": len(text)} for key, _, state, text in self.results]
        return {"results": results, "wishes": list(self.wishes)}


class SynthesisePoint(ChoicePoint[SynthesisAnswer]):
    """One answer from the results only. When unclear: the results, listed."""

    name = "synthesise"
    answer = SynthesisAnswer
    max_tokens = 16_000

    def schema(self, triage: Triage) -> type[BaseModel]:
        return SynthesisAnswer

    def read(self, triage: Triage, raw: BaseModel) -> SynthesisAnswer:
        assert isinstance(raw, SynthesisAnswer)
        if not raw.final_answer.strip():
            raise ModelError("invalid", "The answer is empty.")
        return raw

    def fallback(self, triage: Triage, error: ModelError) -> SynthesisAnswer:
        return listed(triage)

    def candidates(self, triage: Triage) -> list[dict[str, Any]]:
        assert isinstance(triage, SynthesisCase)
        return [{"sub_plan": key, "state": state} for key, _, state, _ in triage.results]

    def rows(self, triage: Triage, answer: SynthesisAnswer) -> list[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
        return [(self.name, answer.model_dump(exclude={"rationale", "confidence"}), self.candidates(triage))]

    def values(self, triage: Triage) -> dict[str, Any]:
        assert isinstance(triage, SynthesisCase)
        room = ANSWER_CHARACTERS // max(len(triage.results), 1)
        results = [
            Fenced("result", f"Goal: {goal}\nEnded: {state}\n\n{shorten(text, room)}", key)
            for key, goal, state, text in triage.results
        ]
        return {"results": results, "wishes": [Fenced("wish", wish) for wish in triage.wishes]}

    def by_rules(self, turn: Turn, triage: Triage) -> tuple[SynthesisAnswer, bool]:
        return listed(triage), False


def listed(triage: Triage) -> SynthesisAnswer:
    """The results as they are, one after the other, and what is missing first. Nothing is added to them."""
    assert isinstance(triage, SynthesisCase)
    done = [(goal, text) for _, goal, state, text in triage.results if state == "done"]
    missing = [f"- {goal}: {text}" for _, goal, state, text in triage.results if state != "done"]
    pieces = ["\n".join(["Not done:", *missing])] if missing else []
    pieces += [f"## {goal}\n\n{text}" for goal, text in done]
    share = len(done) / max(len(triage.results), 1)
    return SynthesisAnswer(
        final_answer="\n\n".join(pieces), confidence=round(share, 2), rationale="The results, listed as they are."
    )


@dataclass(frozen=True)
class ConfirmCase(Triage):
    """What is about to be done, and whether the policy already says that a person has to agree.

    `payload` is what the digest names. `cost` is set where the estimate alone is reason to ask.
    """

    act: str = ""
    digest: str = ""
    is_risky: bool = True
    cost: str = ""
    payload: dict[str, Any] = field(default_factory=dict)

    def as_record(self) -> dict[str, Any]:
        record = {"act": self.act[:RECORDED_CHARACTERS], "digest": self.digest, **self.payload}
        return record | ({"cost": self.cost} if self.cost else {})


class ConfirmPoint(ChoicePoint[ConfirmAnswer]):
    """May it be done without asking? What the policy calls risky is asked about; when unclear: ask first."""

    name = "confirm"
    answer = ConfirmAnswer
    is_policy = True

    def schema(self, triage: Triage) -> type[BaseModel]:
        return ConfirmAnswer

    def read(self, triage: Triage, raw: BaseModel) -> ConfirmAnswer:
        assert isinstance(raw, ConfirmAnswer)
        return raw

    def fallback(self, triage: Triage, error: ModelError) -> ConfirmAnswer:
        return ConfirmAnswer(decision="ask", rationale="Unclear, so a person is asked first.")

    def candidates(self, triage: Triage) -> list[dict[str, Any]]:
        return [{"decision": "proceed"}, {"decision": "ask"}]

    def values(self, triage: Triage) -> dict[str, Any]:
        assert isinstance(triage, ConfirmCase)
        return {"act": Fenced("act", triage.act)}

    def by_rules(self, turn: Turn, triage: Triage) -> tuple[ConfirmAnswer, bool]:
        assert isinstance(triage, ConfirmCase)
        if triage.is_risky:
            return ConfirmAnswer(decision="ask", rationale="The policy calls it risky."), True
        if triage.cost:
            return ConfirmAnswer(decision="ask", rationale=triage.cost), True
        return ConfirmAnswer(decision="proceed", rationale="It stays within the output folder."), False


class StepPoint(TextPoint):
    """One step of a sub-plan, done by the language model. `details`: {"goal", "instruction", "hint", "expected"}."""

    name = "step"

    def prompt(self, writing: Any) -> Any:
        fenced = {k: Fenced(k, str(v)) if v else "" for k, v in writing.details.items()}
        return super().prompt(type(writing)(writing.conversation, writing.documents, fenced, writing.anchor))


FOLLOW_UP = FollowUpPoint()
RECOVER = RecoverPoint()
SYNTHESISE = SynthesisePoint()
CONFIRM = ConfirmPoint()
STEP = StepPoint()
