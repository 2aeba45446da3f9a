"""The decision points that begin a mission: triage and its parts, plan, allocate. The rest are in `progress`.

Each has a schema, a prompt, rules, and what stands when no clear answer came; `agents.points` says how.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from django.conf import settings
from pydantic import BaseModel, Field, create_model

from agents.exceptions import ModelError, ToolError
from agents.orchestration import flow
from agents.orchestration.composite import read_composite
from agents.points import (
    RECORDED_CHARACTERS,
    Answer,
    ChoicePoint,
    Triage,
    call_schema,
    check_route,
    offer_values,
    route_candidates,
    route_fields,
    shorten,
)
from agents.prompts import Fenced
from agents.rules import understand
from agents.tools.base import Tool
from agents.turn import Turn
from tasks.delegation import StepDraft, SubPlanDraft

# A candidate this far ahead of the next is taken without asking a model.
CLEAR_LEAD = 0.15
PLACEHOLDER = re.compile(r"\{\{\s*(?:step (?P<step>\d+)|(?P<key>[\w-]+))\s*\}\}")


class ClarifyAnswer(Answer):
    """Is the request clear? Else the one question that would make it so."""

    is_clear: bool
    question: str = ""


class DecomposeAnswer(Answer):
    """Does it take several skills or ordered steps?"""

    needs_plan: bool


class TriageAnswer(Answer):
    """Clarify, decompose, route and tool in one."""

    is_clear: bool = True
    question: str = ""
    needs_plan: bool = False
    agent: str = ""
    decision: Literal["local", "agent", "reject"] = "local"
    reason: str = ""
    tool: str = "answer"
    params: dict[str, Any] = Field(default_factory=dict)


class PlannedStep(BaseModel):
    instruction: str
    tool: str = ""
    params: dict[str, Any] = Field(default_factory=dict)


class PlannedPart(BaseModel):
    id: str
    goal: str
    role: str
    steps: list[PlannedStep]
    depends_on: list[str] = Field(default_factory=list)
    expected_output: str = ""


class PlanAnswer(Answer):
    """The plan. Without sub-plans it is none, and the request is dealt with as a whole."""

    sub_plans: list[PlannedPart] = Field(default_factory=list)

    def drafts(self) -> list[SubPlanDraft]:
        return [
            SubPlanDraft(
                part.id,
                part.goal,
                part.role,
                tuple(StepDraft(step.instruction, step.tool, step.params) for step in part.steps),
                tuple(part.depends_on),
                part.expected_output,
            )
            for part in self.sub_plans
        ]

    @classmethod
    def of(cls, drafts: Sequence[SubPlanDraft], **why: Any) -> "PlanAnswer":
        parts = [
            PlannedPart(
                id=draft.key,
                goal=draft.goal,
                role=draft.role,
                steps=[PlannedStep(instruction=s.instruction, tool=s.tool, params=s.params) for s in draft.steps],
                depends_on=list(draft.depends_on),
                expected_output=draft.expected_output,
            )
            for draft in drafts
        ]
        return cls(sub_plans=parts, **why)


class AllocateAnswer(Answer):
    """The slug of the agent that gets the sub-plan."""

    agent: str


class ClarifyPoint(ChoicePoint[ClarifyAnswer]):
    """Is the request clear? When unclear whether it is: go on."""

    name = "clarify"
    answer = ClarifyAnswer

    def schema(self, triage: Triage) -> type[BaseModel]:
        return ClarifyAnswer

    def read(self, triage: Triage, raw: BaseModel) -> ClarifyAnswer:
        assert isinstance(raw, ClarifyAnswer)
        if not raw.is_clear and not raw.question.strip():
            raise ModelError("invalid", "The request was called unclear without a question.")
        return raw

    def fallback(self, triage: Triage, error: ModelError) -> ClarifyAnswer:
        return ClarifyAnswer(is_clear=True, rationale="Unclear, so it goes on.")

    def candidates(self, triage: Triage) -> list[dict[str, Any]]:
        return []

    def by_rules(self, turn: Turn, triage: Triage) -> tuple[ClarifyAnswer, bool]:
        # The tools ask for what they miss; anything else would take understanding.
        return ClarifyAnswer(is_clear=True, rationale="The rules leave questions to the tools."), False


class DecomposePoint(ChoicePoint[DecomposeAnswer]):
    """One agent or tool, or a plan? When unclear: no plan."""

    name = "decompose"
    answer = DecomposeAnswer

    def schema(self, triage: Triage) -> type[BaseModel]:
        return DecomposeAnswer

    def read(self, triage: Triage, raw: BaseModel) -> DecomposeAnswer:
        assert isinstance(raw, DecomposeAnswer)
        return raw

    def fallback(self, triage: Triage, error: ModelError) -> DecomposeAnswer:
        return DecomposeAnswer(needs_plan=False, rationale="Unclear, so there is no plan.")

    def candidates(self, triage: Triage) -> list[dict[str, Any]]:
        return [{"needs_plan": True}, {"needs_plan": False}]

    def values(self, triage: Triage) -> dict[str, Any]:
        return {"agents": offer_values(triage.agents)}

    def by_rules(self, turn: Turn, triage: Triage) -> tuple[DecomposeAnswer, bool]:
        found = composite_of(triage)
        why = "Every clause is an act of its own." if found else "It is one act, or holds a clause of another kind."
        return DecomposeAnswer(needs_plan=bool(found), rationale=why), bool(found)


class TriagePoint(ChoicePoint[TriageAnswer]):
    """All four at once. When unclear: what the rules are sure of, else here and by the language model."""

    name = "triage"
    answer = TriageAnswer
    recorded_as = ("clarify", "decompose", "route", "tool")

    def schema(self, triage: Triage) -> type[BaseModel]:
        return _triage_schema(tuple(triage.tools), tuple(offer.slug for offer in triage.agents))

    def read(self, triage: Triage, raw: BaseModel) -> TriageAnswer:
        values = raw.model_dump(exclude={"call"})
        call = raw.call  # type: ignore[attr-defined]
        found = TriageAnswer(**values, tool=call.tool, params=call.params.model_dump(exclude_defaults=True))
        check_route(triage, found)
        if not found.is_clear and not found.question.strip():
            raise ModelError("invalid", "The request was called unclear without a question.")
        return found

    def fallback(self, triage: Triage, error: ModelError) -> TriageAnswer:
        if error.kind == "declined":
            # The model would not even look at it; passing it on would ask the same model again.
            return TriageAnswer(decision="reject", reason=str(error), rationale="The model declined the request.")
        return TriageAnswer(rationale="Unclear, so the language model answers.")

    def by_rules(self, turn: Turn, triage: Triage) -> tuple[TriageAnswer, bool]:
        if composite_of(triage):
            return TriageAnswer(needs_plan=True, rationale="Every clause is an act of its own."), True
        reading = understand(turn, triage)
        why: dict[str, Any] = {"rationale": reading.rationale, "confidence": reading.confidence}
        if reading.refusal:
            return TriageAnswer(decision="reject", reason=reading.refusal, **why), reading.is_definite
        if reading.agent:
            return TriageAnswer(decision="agent", agent=reading.agent, **why), True
        return TriageAnswer(tool=reading.tool or "answer", params=reading.params, **why), reading.is_definite

    def rows(self, triage: Triage, answer: TriageAnswer) -> list[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
        tools = [{"tool": tool.name} for tool in triage.tools]
        plans = [{"needs_plan": True}, {"needs_plan": False}]
        return [
            ("clarify", answer.model_dump(include={"is_clear", "question"}), []),
            ("decompose", answer.model_dump(include={"needs_plan"}), plans),
            ("route", answer.model_dump(include={"decision", "agent", "reason"}), route_candidates(triage)),
            ("tool", answer.model_dump(include={"tool", "params"}), tools),
        ]

    def values(self, triage: Triage) -> dict[str, Any]:
        return {"agents": offer_values(triage.agents)}


@lru_cache(maxsize=16)
def _triage_schema(tools: tuple[Tool[Any], ...], agents: tuple[str, ...]) -> type[BaseModel]:
    return create_model(
        "TriageChoice",
        __base__=Answer,
        is_clear=(bool, Field(description="Whether it can be done without asking anything.")),
        question=(str, Field(default="", description="If it is not clear: the one question to ask.")),
        needs_plan=(bool, Field(description="Whether it takes several skills or steps in order.")),
        **route_fields(agents),
        call=(call_schema(tools), ...),
    )


@dataclass(frozen=True)
class PlanCase(Triage):
    """What a plan is made for. When it is made anew, `done` and `failed` are what earlier sub-plans came to, and
    `begun` the goals of those that go on."""

    roles: tuple[str, ...] = ()
    done: tuple[tuple[str, str], ...] = ()
    begun: tuple[tuple[str, str], ...] = ()
    failed: tuple[tuple[str, str], ...] = ()

    def as_record(self) -> dict[str, Any]:
        before = {"done": [list(one) for one in self.done], "failed": [list(one) for one in self.failed]}
        return super().as_record() | ({k: v for k, v in before.items() if v})

    def is_same(self, kept: dict[str, Any]) -> bool:
        # What others deliver while a person thinks about a new plan makes it no other plan.
        return super().is_same(kept | {name: value for name, value in self.as_record().items() if name == "done"})


class PlanPoint(ChoicePoint[PlanAnswer]):
    """Sub-plans with roles and dependencies. When unclear, after one repair turn: no plan."""

    name = "plan"
    answer = PlanAnswer
    max_tokens = 8192
    repairs = 1

    def schema(self, triage: Triage) -> type[BaseModel]:
        return _plan_schema(tuple(triage.tools))

    def read(self, triage: Triage, raw: BaseModel) -> PlanAnswer:
        known = {tool.name: tool for tool in triage.tools}
        parts = [_part(part) for part in raw.sub_plans]  # type: ignore[attr-defined]
        earlier = [key for key, _ in (*triage.done, *triage.begun)] if isinstance(triage, PlanCase) else []
        try:
            _check_ids(parts)
            needed = {part.id: [key for key in part.depends_on if key not in earlier] for part in parts}
            flow.check_plan(needed, {part.id: len(part.steps) for part in parts}, settings.BUREAU_PLAN_SIZE)
            for part in parts:
                _check_steps(part, known)
        except (flow.PlanProblem, ToolError) as error:
            raise ModelError("invalid", str(error)) from None
        return PlanAnswer(sub_plans=parts, **raw.model_dump(include={"rationale", "confidence"}))

    def fallback(self, triage: Triage, error: ModelError) -> PlanAnswer:
        return PlanAnswer(rationale="No usable plan came, so there is none.")

    def candidates(self, triage: Triage) -> list[dict[str, Any]]:
        return [{"role": role} for role in triage.roles] if isinstance(triage, PlanCase) else []

    def values(self, triage: Triage) -> dict[str, Any]:
        assert isinstance(triage, PlanCase)
        return {
            "roles": ", ".join(triage.roles),
            "most": settings.BUREAU_PLAN_SIZE,
            "done": [Fenced("result", shorten(text, 2000), key) for key, text in triage.done],
            "begun": [Fenced("begun", goal, key) for key, goal in triage.begun],
            "agents": offer_values(triage.agents),
            "failed": [Fenced("failure", shorten(text, 1000), key) for key, text in triage.failed],
        }

    def by_rules(self, turn: Turn, triage: Triage) -> tuple[PlanAnswer, bool]:
        if isinstance(triage, PlanCase) and (triage.done or triage.failed):
            return PlanAnswer(rationale="The rules make no plan out of what is left of another."), False
        found = composite_of(triage)
        return PlanAnswer.of(found, rationale="Each clause of the request is one step."), bool(found)


@lru_cache(maxsize=16)
def _plan_schema(tools: tuple[Tool[Any], ...]) -> type[BaseModel]:
    step = create_model(
        "Step",
        instruction=(str, Field(description="What to do, in one sentence.")),
        call=(call_schema(tools), Field(description="`answer` where the language model does it.")),
    )
    part: Any = create_model(
        "SubPlan",
        id=(str, Field(description="Short, kebab-case.")),
        goal=(str, Field(description="The deliverable, in one sentence.")),
        role=(str, Field(description="Who makes it, one lower-case word.")),
        steps=(list[step], ...),  # type: ignore[valid-type]
        depends_on=(list[str], Field(default_factory=list, description="Ids of sub-plans whose results it needs.")),
        expected_output=(str, Field(default="", description="What it delivers.")),
    )
    return create_model("Plan", __base__=Answer, sub_plans=(list[part], ...))


def _part(raw: Any) -> PlannedPart:
    steps = [
        PlannedStep(
            instruction=step.instruction,
            tool="" if step.call.tool == "answer" else step.call.tool,
            params={} if step.call.tool == "answer" else step.call.params.model_dump(exclude_defaults=True),
        )
        for step in raw.steps
    ]
    return PlannedPart(
        id=slug(raw.id),
        goal=raw.goal,
        role=slug(raw.role) or "worker",
        steps=steps,
        depends_on=[slug(key) for key in raw.depends_on],
        expected_output=raw.expected_output,
    )


def _check_ids(parts: list[PlannedPart]) -> None:
    if len({part.id for part in parts}) < len(parts):
        raise flow.PlanProblem("Two sub-plans have the same id.")


def _check_steps(part: PlannedPart, known: dict[str, Tool[Any]]) -> None:
    """Raises PlanProblem for a step that names a result it cannot have, ToolError for one that cannot run."""
    if not part.id:
        raise flow.PlanProblem("A sub-plan has no id.")
    for number, step in enumerate(part.steps, 1):
        if step.tool:
            known[step.tool].check(step.params)
        texts = [value for value in step.params.values() if isinstance(value, str)]
        for found in (match for text in texts for match in PLACEHOLDER.finditer(text)):
            if found["step"] and not 1 <= int(found["step"]) < number:
                raise flow.PlanProblem(f"Step {number} of {part.id!r} uses {found[0]}, which does not come before it.")
            if found["key"] and slug(found["key"]) not in part.depends_on:
                raise flow.PlanProblem(f"{part.id!r} uses {found[0]} and does not depend on it.")


def slug(text: str) -> str:
    """A key or role: lower case, hyphens, 64 characters at most."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[: flow.MAX_KEY]


@dataclass(frozen=True)
class AllocateCase(Triage):
    """A sub-plan and who could do it: (slug, score from 0 up, why), best first. Nobody, where all were refused."""

    key_of_part: str = ""
    goal: str = ""
    role: str = ""
    ranked: tuple[tuple[str, float, str], ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    """Those it was meant for who may not have it now, with the reason."""

    def as_record(self) -> dict[str, Any]:
        record: dict[str, Any] = {"sub_plan": self.key_of_part, "goal": self.goal[:RECORDED_CHARACTERS]}
        record["role"] = self.role
        return record | ({"refused": [list(one) for one in self.refused]} if self.refused else {})


class AllocatePoint(ChoicePoint[AllocateAnswer]):
    """Who does it. Asked only where the ranking is close; when unclear: the best by role, then skills."""

    name = "allocate"
    answer = AllocateAnswer
    is_policy = True

    def schema(self, triage: Triage) -> type[BaseModel]:
        assert isinstance(triage, AllocateCase)
        slugs: Any = Literal[tuple(one for one, _, _ in triage.ranked)]
        return create_model("AllocateChoice", __base__=Answer, agent=(slugs, ...))

    def read(self, triage: Triage, raw: BaseModel) -> AllocateAnswer:
        return AllocateAnswer(**raw.model_dump())

    def fallback(self, triage: Triage, error: ModelError) -> AllocateAnswer:
        assert isinstance(triage, AllocateCase)
        return AllocateAnswer(agent=triage.ranked[0][0], rationale="The best match by role, then skills.")

    def candidates(self, triage: Triage) -> list[dict[str, Any]]:
        assert isinstance(triage, AllocateCase)
        ranked = [{"agent": one, "score": round(score, 3), "why": why} for one, score, why in triage.ranked]
        return ranked + [{"agent": one, "refused": why} for one, why in triage.refused]

    def values(self, triage: Triage) -> dict[str, Any]:
        assert isinstance(triage, AllocateCase)
        agents = [Fenced("agent", why, f"{one} ({score:.2f})") for one, score, why in triage.ranked]
        return {"goal": Fenced("goal", triage.goal), "role": triage.role, "agents": agents}

    def by_rules(self, turn: Turn, triage: Triage) -> tuple[AllocateAnswer, bool]:
        assert isinstance(triage, AllocateCase)
        if not triage.ranked:
            return AllocateAnswer(agent="", rationale="None of the agents that it is meant for may have it."), True
        (best, score, why), *others = triage.ranked
        is_sure = not others or score - others[0][1] >= CLEAR_LEAD
        return AllocateAnswer(agent=best, confidence=min(score, 1.0), rationale=f"Best match: {why}."), is_sure


def composite_of(triage: Triage) -> list[SubPlanDraft]:
    """The plan that the newest message says by itself."""
    newest = triage.conversation.newest
    if triage.conversation.number > 1 or newest.attachments or newest.data is not None:
        return []
    found = read_composite(newest.text, {tool.name: tool for tool in triage.tools})
    return found if len(found) <= settings.BUREAU_PLAN_SIZE else []


CLARIFY = ClarifyPoint()
DECOMPOSE = DecomposePoint()
TRIAGE = TriagePoint()
PLAN = PlanPoint()
ALLOCATE = AllocatePoint()
