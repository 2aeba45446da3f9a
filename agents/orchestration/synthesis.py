"""The one answer of a mission, from what its sub-plans came to and nothing else."""

from typing import Any

from django.conf import settings

from agents.brain import get_brain
from agents.conversation import Conversation
from agents.dialogue import answered, answers_about, is_refusal, is_yes
from agents.orchestration import evidence
from agents.orchestration.progress import SYNTHESISE, SynthesisAnswer, SynthesisCase
from agents.outcomes import Blocked, Error, Ok, Outcome, Rejected
from agents.turn import Turn
from tasks.content import text_of
from tasks.files import file_part, store_file
from tasks.models import SubPlan
from tasks.plans import read_artifacts
from tasks.results import ArtifactDraft

NAME = "answer"
# Longer than a page is for a file; the message says in two lines what was done and where it is.
LONGEST_INLINE = 4_000
PREVIEW = 600


def synthesise(turn: Turn, conversation: Conversation, plans: list[SubPlan]) -> Outcome:
    """The mission's outcome, or the question whether an answer that is not sure of itself will do."""
    reaction = answered(turn.messages)
    if reaction and reaction.about.get("kind") == "confidence" and is_refusal(reaction.text):
        return Error("not_confirmed", "The answer was not delivered, because you refused it.")
    done = [plan for plan in plans if not plan.is_dropped]
    left = [plan for plan in plans if plan.is_dropped and not plan.note.startswith("Planned anew")]
    if not done:
        reasons = "\n".join(f"- {plan.goal}: {plan.note}" for plan in left)
        return Error("nothing_done", f"Nothing of it could be done.\n{reasons}")
    read_artifacts(done)
    results = [(plan.key, plan.goal, "done", evidence.report_of(turn, plan)) for plan in done]
    results += [(plan.key, plan.goal, "not done", plan.note) for plan in left]
    wishes = tuple(text for text in answers_about(turn.messages, "confidence") if not is_yes(text))
    case = SynthesisCase(
        conversation, anchor="answer", goal=conversation.newest.text, results=tuple(results), wishes=wishes
    )
    answer = get_brain().decide(turn, SYNTHESISE, case).answer
    text = shown(answer, left)
    sure = 1.0 if answer.confidence is None else answer.confidence
    if sure < settings.BUREAU_CONFIDENCE and not _was_accepted(turn):
        why = f"I am not sure of this answer (confidence {sure:.2f}):\n\n{text[:4000]}"
        asked = "Shall I deliver it as it is? Answer yes or no, or say what is wrong with it."
        return Blocked(why, [asked], about={"kind": "confidence"})
    files = {part["file"]: part for plan in done for part in evidence.files_of(plan)}
    artifact = _artifact(turn, text, answer, list(files.values()))
    return Ok(_message(len(done), left, [part for part in artifact.parts if "file" in part]), [artifact])


def result_of(plan: SubPlan) -> Outcome | None:
    """What one agent made of the whole request, as it is. None where no agent could be given it."""
    task = plan.task
    if task is None:
        return None
    text = text_of((task.status_message or {}).get("parts", []))
    untrusted = task.agent.slug if task.agent.is_remote else ""
    if not plan.is_dropped:
        drafts = [ArtifactDraft(row.name, row.parts, row.description, row.metadata) for row in task.artifacts.all()]
        return Ok(text, drafts, untrusted=untrusted)
    if task.state == task.State.REJECTED:
        return Rejected(text or plan.note, untrusted=untrusted)
    error_class = (task.status_message or {}).get("metadata", {}).get("errorClass", "failed")
    return Error(error_class, plan.note or text, untrusted=untrusted)


def shown(answer: SynthesisAnswer, left: list[SubPlan]) -> str:
    """The text of the answer: conflicts first, and every part that is missing named, whoever wrote it."""
    pieces = []
    if answer.conflicts:
        pieces.append("\n".join(["The results contradict each other:", *(f"- {one}" for one in answer.conflicts)]))
    unnamed = [plan for plan in left if plan.goal not in answer.final_answer]
    if unnamed:
        pieces.append("\n".join(["Not done:", *(f"- {plan.goal}: {plan.note}" for plan in unnamed)]))
    return "\n\n".join([*pieces, answer.final_answer])


def _was_accepted(turn: Turn) -> bool:
    answer = answered(turn.messages)
    return answer is not None and answer.about.get("kind") == "confidence" and is_yes(answer.text)


def _message(done: int, left: list[SubPlan], files: list[dict[str, Any]]) -> str:
    said = f"{done} of {done + len(left)} parts done." if left else f"Done, in {done} part{'s' if done > 1 else ''}."
    names = ", ".join(str(part.get("filename", "file")) for part in files)
    return f"{said}\nFiles: {names}." if files else said


def _artifact(turn: Turn, text: str, answer: SynthesisAnswer, files: list[dict[str, Any]]) -> ArtifactDraft:
    metadata: dict[str, Any] = {"confidence": answer.confidence}
    if answer.notes:
        metadata["notes"] = answer.notes
    parts: list[dict[str, Any]] = [{"text": text}]
    if len(text) > LONGEST_INLINE:
        stored = store_file(turn.claim.owner, "answer.md", "text/markdown", text.encode())
        parts = [{"text": f"{text[:PREVIEW]}\n\n[The whole answer is in answer.md.]"}, file_part(stored)]
    return ArtifactDraft(NAME, [*parts, *files], metadata=metadata)
