"""What steps and sub-plans came to, as kept on their rows and as text for those who go on with it."""

import re
from collections.abc import Sequence
from typing import Any

from agents.conversation import stored_text
from agents.orchestration.points import PLACEHOLDER, slug
from agents.tools.base import ToolResult
from agents.turn import Turn
from tasks.content import text_of
from tasks.models import SubPlan, Subtask, Task
from tasks.results import ArtifactDraft
from tasks.snapshots import artifact_dict


def of_tool(turn: Turn, result: ToolResult, key: str) -> dict[str, Any]:
    """The evidence of a tool call; `key` finds its row."""
    return {"task": str(turn.claim.task_id), "tool_call": key, **result.as_json()}


def of_text(turn: Turn, text: str, key: str) -> dict[str, Any]:
    """The evidence of what a model wrote; `key` finds its decision."""
    return {"task": str(turn.claim.task_id), "decision": key, "text": text, "artifacts": [], "data": {}}


def of_failure(turn: Turn, error_class: str, message: str) -> dict[str, Any]:
    return {"task": str(turn.claim.task_id), "error_class": error_class, "error": message}


def step_text(turn: Turn, step: Subtask) -> str:
    """The whole of what a step made: the texts of its artifacts, files included; its remark where there are none."""
    return artifacts_text(turn, step.evidence.get("artifacts", [])) or step.evidence.get("text", "")


def artifacts_text(turn: Turn, artifacts: Sequence[dict[str, Any]], *, with_files: bool = True) -> str:
    texts = []
    for artifact in artifacts:
        texts.append(text_of(artifact["parts"]))
        if with_files:
            texts += [stored_text(turn, part) for part in artifact["parts"] if "file" in part]
    return "\n\n".join(text for text in texts if text.strip())


def sub_plan_text(turn: Turn, plan: SubPlan) -> str:
    """The result of a sub-plan, for the ones that depend on it."""
    return _text_of_plan(turn, plan, with_files=True)


def report_of(turn: Turn, plan: SubPlan) -> str:
    """The result of a sub-plan for people: what was said about it, and its text where that is not in a file."""
    remarks = [step.evidence.get("text", "") for step in plan.subtasks.all() if step.state == Subtask.State.DONE]
    found = _text_of_plan(turn, plan, with_files=False)
    said = "\n".join(dict.fromkeys(remark for remark in remarks if remark and remark.strip() != found.strip()))
    return "\n\n".join(text for text in (said, found) if text.strip()) or "Done."


def _text_of_plan(turn: Turn, plan: SubPlan, *, with_files: bool) -> str:
    if plan.task is not None:
        found = artifacts_text(turn, _artifacts_of(plan.task), with_files=with_files)
        if found or not with_files:
            return found
        message = plan.task.status_message
        return text_of(message["parts"]) if message else ""
    steps = [step for step in plan.subtasks.all() if step.state == Subtask.State.DONE]
    return step_text(turn, steps[-1]) if steps else ""


def _artifacts_of(task: Task) -> list[dict[str, Any]]:
    return [
        artifact_dict(row.pk, row.name, row.description, row.version, row.parts, row.metadata)
        for row in task.artifacts.all()
    ]


def files_of(plan: SubPlan) -> list[dict[str, Any]]:
    """The file parts that a sub-plan delivered."""
    if plan.task is not None:
        parts = [part for artifact in _artifacts_of(plan.task) for part in artifact["parts"]]
    else:
        parts = [
            part
            for step in plan.subtasks.all()
            for artifact in step.evidence.get("artifacts", [])
            for part in artifact["parts"]
        ]
    return [part for part in parts if "file" in part]


def deliverables(turn: Turn, plan: SubPlan, steps: Sequence[Subtask]) -> list[ArtifactDraft]:
    """What a sub-plan delivers: what its last step made, and every file. What was streamed is closed with it."""
    drafts: dict[str, ArtifactDraft] = {}
    for step in steps:
        is_last = step.pk == steps[-1].pk
        is_here = step.evidence.get("task") == str(turn.claim.task_id)
        for value in step.evidence.get("artifacts", []):
            draft = ArtifactDraft(**value)
            was_streamed = draft.is_streamed
            # What an earlier attempt sent went to another task; here it is sent whole.
            draft.is_streamed = was_streamed and is_here
            if is_last or draft.is_streamed or any("file" in part for part in draft.parts):
                drafts[draft.name] = draft
        if is_last and not step.evidence.get("artifacts") and step.evidence.get("text"):
            drafts[plan.key] = ArtifactDraft(plan.key, [{"text": step.evidence["text"]}])
    return list(drafts.values())


def fill(params: dict[str, Any], steps: dict[int, str], parts: dict[str, str]) -> dict[str, Any]:
    """The parameters with `{{step 2}}` and `{{some-id}}` replaced by what these made. Others stay as they are."""

    def instead(found: re.Match[str]) -> str:
        if found["step"]:
            return steps.get(int(found["step"]), found[0])
        return parts.get(slug(found["key"]), found[0])

    return {
        name: PLACEHOLDER.sub(instead, value) if isinstance(value, str) else value for name, value in params.items()
    }
