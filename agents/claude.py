"""Claude as the brain, or any model behind a server that speaks the Messages API."""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from django.conf import settings
from pydantic import BaseModel

from agents.brain import A, Brain, Verdict, Written, record, recording_failure, spent
from agents.budget import within_budget
from agents.exceptions import BudgetExhausted, ModelError
from agents.model_api import Ask, Reply, Write
from agents.points import ChoicePoint, TextPoint, Triage, Writing
from agents.pricing import Usage, takes_effort
from agents.prompts import Prompt
from agents.rules import RulesBrain
from agents.tools.grammar import explicit_form
from agents.turn import TextStream, Turn

# A decision is short and a person waits for it; an answer may take some thought.
DECISION_EFFORT = "low"
WRITING_EFFORT = "medium"
OFF = "Answers by a language model are switched off here (BUREAU_POINTS_OFF)."


class ClaudeBrain(Brain):
    """A small model decides, a large one writes. When it fails, rules or the point's fallback decide instead."""

    name = "claude"
    can_write = True

    def judge(self, turn: Turn, point: ChoicePoint[A], triage: Triage) -> Verdict[A]:
        rules = RulesBrain()
        if explicit_form(triage.conversation.newest.text) and not triage.anchor:
            # `:tool NAME` says all there is to decide.
            return rules.judge(turn, point, triage)
        if point.name in settings.BUREAU_POINTS_OFF:
            verdict, is_definite = rules.weigh(turn, point, triage)
            if is_definite or not point.needs_sure_rules:
                return verdict
            return Verdict(point.fallback(triage, ModelError("off", "No model is asked at this point.")), rules.name)
        if point.is_policy:
            verdict, is_definite = rules.weigh(turn, point, triage)
            if is_definite:
                return verdict
        usage, calls, problem = Usage(), 0, ""
        for remaining in range(point.repairs, -1, -1):
            try:
                reply = self._ask(turn, point, triage, problem)
            except BudgetExhausted as error:
                if not error.is_closed:
                    raise
                return self._instead(rules, turn, point, triage, ModelError("budget", str(error)))
            except ModelError as error:
                error.usage, error.calls = usage + error.usage, calls + error.calls
                return self._instead(rules, turn, point, triage, error)
            usage, calls = usage + reply.usage, calls + reply.calls
            try:
                answer = point.parse(triage, _complete(reply))
            except ModelError as error:
                problem = str(error)
                if remaining and error.kind == "invalid":
                    continue
                error.usage, error.calls, error.model = usage, calls, reply.model
                return self._instead(rules, turn, point, triage, error)
            return Verdict(answer, self.name, model=reply.model, usage=usage, calls=calls)
        raise AssertionError("unreachable")

    def _ask(self, turn: Turn, point: ChoicePoint[Any], triage: Triage, problem: str) -> Reply:
        model = settings.BUREAU_MODEL_SMALL
        schema = _json_schema(point.schema(triage))
        prompt = point.prompt(triage)
        if settings.ANTHROPIC_BASE_URL:
            # A server that does not know structured outputs still learns what is wanted.
            wanted = f"{prompt.stable}\n\nThe JSON schema of your answer:\n{json.dumps(schema)}"
            prompt = Prompt(wanted, prompt.request)
        if problem:
            again = f"Your last answer could not be used: {problem} Answer again, with that put right."
            prompt = Prompt(prompt.stable, f"{prompt.request}\n\n{again}")
        effort = DECISION_EFFORT if takes_effort(model) else ""
        return within_budget(turn, Ask(model, prompt, point.max_tokens, schema, effort))

    def _instead(
        self, rules: RulesBrain, turn: Turn, point: ChoicePoint[A], triage: Triage, error: ModelError
    ) -> Verdict[A]:
        """What stands when the model gave no usable answer: the rules where they are sure, else the fallback."""
        verdict, is_definite = rules.weigh(turn, point, triage)
        if not is_definite:
            verdict = Verdict(point.fallback(triage, error), self.name)
        verdict.is_fallback = True
        verdict.error = f"{error.kind}: {error}"
        verdict.model, verdict.usage, verdict.calls = error.model, error.usage, error.calls
        return verdict

    def write(self, turn: Turn, point: TextPoint, writing: Writing, name: str) -> Written:
        if point.name in settings.BUREAU_POINTS_OFF:
            with recording_failure(turn, self.name, point, writing):
                raise ModelError("no_model", OFF, is_final=True)
        model = settings.BUREAU_MODEL_LARGE
        effort = WRITING_EFFORT if takes_effort(model) else ""
        streams: list[TextStream] = []

        def begin() -> Write:
            # A new attempt starts a new stream, which replaces what the broken one had sent.
            streams.append(turn.stream(name))
            return streams[-1].write

        with recording_failure(turn, self.name, point, writing) as started:
            ask = Ask(model, point.prompt(writing), point.max_tokens, effort=effort, sink=begin)
            reply = within_budget(turn, ask)
            if not reply.text.strip():
                raise _empty(reply)
        is_cut = reply.stop_reason in ("max_tokens", "model_context_window_exceeded")
        remark = f"The text is cut off: it reached the model's limit of {point.max_tokens} tokens." if is_cut else ""
        details: dict[str, Any] = {"metadata": {"truncated": True}} if is_cut else {}
        artifact = streams[-1].artifact(description=remark, **details)
        record(turn, started, self._columns(point, writing, reply, artifact=name))
        return Written(artifact, remark)

    def compose(self, turn: Turn, point: TextPoint, writing: Writing, keep: Callable[[str], None]) -> None:
        model = settings.BUREAU_MODEL_LARGE
        effort = WRITING_EFFORT if takes_effort(model) else ""
        with recording_failure(turn, self.name, point, writing) as started:
            ask = Ask(model, point.prompt(writing), point.max_tokens, effort=effort, sink=lambda: _drop)
            reply = within_budget(turn, ask)
            if not reply.text.strip():
                raise _empty(reply)
        columns = self._columns(point, writing, reply)
        record(turn, started, columns, keep=lambda: keep(reply.text))

    def _columns(self, point: TextPoint, writing: Writing, reply: Reply, **more: str) -> dict[str, Any]:
        return {
            "point": point.name,
            "key": writing.key(point.name),
            "brain": self.name,
            "inputs": writing.as_record(),
            "choice": {**more, "characters": len(reply.text), "stop_reason": reply.stop_reason},
            **spent(reply.model, reply.usage, reply.calls),
        }


def _drop(text: str) -> None:
    """Streamed only so that a long text counts as a sign of life."""


def _complete(reply: Reply) -> str:
    if reply.stop_reason == "max_tokens":
        raise ModelError("truncated", "The model's answer was cut off at its limit of tokens.")
    return reply.text


def _empty(reply: Reply) -> ModelError:
    error = ModelError("invalid", "The model answered with nothing.", reply.usage)
    error.calls, error.model = reply.calls, reply.model
    return error


@lru_cache(maxsize=32)
def _json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The schema as the API takes it: what it does not know becomes part of the descriptions."""
    import anthropic

    return anthropic.transform_schema(model)
