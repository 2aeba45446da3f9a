"""What a worker writes under its claim: progress, artifacts, the outcome. A late write is refused."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction
from django.utils import timezone

from tasks import doorbell, wakeups
from tasks.claims import Claim, claim_next, claimed_by, claiming, give_up, is_hopeless
from tasks.content import Incoming, clean
from tasks.delegation import wake
from tasks.exceptions import Superseded, TaskNotInState, Unread
from tasks.messages import message_insert, wire_message
from tasks.models import Artifact, Event, Message, Task
from tasks.services import cancel_below
from tasks.sql import After, Insert, Sql, this_database
from tasks.state import Beside, Draft, move, status

# Names the artifact of a task by its name alone, so that a turn which is run again replaces it.
ARTIFACT_NAMESPACE = uuid.UUID("8a1d3b0e-6a39-5c0c-9d5e-0d2b1c1f7f60")

NAME_LENGTH = 200
FAILURES = (Task.State.FAILED, Task.State.REJECTED)


@dataclass(slots=True)
class ArtifactDraft:
    """A deliverable on its way out; parts as `Incoming.parts`."""

    name: str
    parts: list[dict[str, Any]]
    description: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    is_streamed: bool = False
    """Its chunks went out already; only the closing chunk is to be logged."""
    tail: str = ""
    """Of an artifact that went out before and has grown: the text that is new. Only that is logged."""
    is_growing: bool = False
    """There may be more of it: this is not its last chunk."""


def artifact_id(task_id: uuid.UUID, name: str) -> uuid.UUID:
    return uuid.uuid5(ARTIFACT_NAMESPACE, f"{task_id}/{name}")


def plain(text: str) -> dict[str, Any]:
    """An agent's message of one text part."""
    return wire_message(Message.Role.AGENT, Incoming.from_text(clean(text)))


def say(claim: Claim, message: dict[str, Any]) -> int:
    """Progress: a message while the task stays as it is. Returns its event's number. Raises Superseded."""
    draft = status(claim.state, clean(message))
    seq = _log(claim, [draft], [message_insert(claim.task_id, message)])
    wakeups.announce([claim.task_id])
    return seq


def stream_chunk(claim: Claim, name: str, text: str, *, is_first: bool) -> int:
    """A piece of a text artifact as it grows; the first one replaces what an earlier turn left.

    Returns the event's number. Raises Superseded.
    """
    key = artifact_id(claim.task_id, name)
    payload = {"artifactId": str(key), "name": name, "parts": [{"text": clean(text)}], "append": not is_first}
    opened = [_artifact_insert(claim, ArtifactDraft(name, []), is_complete=False)] if is_first else []
    seq = _log(claim, [Draft(Event.Kind.ARTIFACT, payload)], opened)
    wakeups.announce([claim.task_id])
    return seq


def deliver(claim: Claim, artifacts: Sequence[ArtifactDraft]) -> None:
    """Complete artifacts while the task stays `working`; one of the same name is replaced. Raises Superseded."""
    drafts = [_cleaned(draft) for draft in artifacts]
    if drafts:
        _log(claim, [_artifact_event(claim, draft) for draft in drafts], [_artifact_insert(claim, d) for d in drafts])
        transaction.on_commit(partial(wakeups.announce, [claim.task_id]))


def note(claim: Claim, kind: str, *row_ids: Any) -> None:
    """Log that decisions or tool calls are on record, for those who watch the mission. Raises Superseded."""
    _log(claim, [Draft(kind, {"id": str(row_id)}) for row_id in row_ids])
    transaction.on_commit(partial(wakeups.announce, [claim.task_id]))


def finish(
    claim: Claim,
    target: str,
    *,
    message: dict[str, Any] | None = None,
    artifacts: Sequence[ArtifactDraft] = (),
    even_unread: bool = False,
    until: datetime | None = None,
) -> int:
    """End the turn: the task goes to `target` with its message and artifacts, all or nothing.

    With `until`, a task that waits for a person is looked at again then, should the answer not have come.
    `even_unread` is for an end that no further message can change. What goes on below a task that fails is canceled
    with it. Returns the number of the last event.
    Raises Superseded when the claim is over, and Unread when a message came in meanwhile that the turn has
    not seen: then its result must not stand.
    """
    has_failed = target in FAILURES
    if claim.parent_id is None and not has_failed:
        return _finish(claim, target, message, artifacts, even_unread, until)
    with transaction.atomic():
        if claim.parent_id is not None:
            # The parent first: whoever locks several tasks of a tree goes from the top down.
            wake(claim.parent_id, even_asking=True)
        seq = _finish(claim, target, message, artifacts, even_unread, until)
        if has_failed:
            cancel_below(claim.task_id)
    return seq


def finish_and_claim_next(
    claim: Claim,
    target: str,
    *,
    message: dict[str, Any] | None = None,
    artifacts: Sequence[ArtifactDraft] = (),
    until: datetime | None = None,
) -> Claim | None:
    """`finish`, and then `claim_next` for the same queue and worker; on PostgreSQL as one statement where it can be.

    Raises what `finish` does; then nothing is claimed.
    """
    if claim.parent_id is not None or target in FAILURES or this_database().vendor != "postgresql":
        finish(claim, target, message=message, artifacts=artifacts, until=until)
        return claim_next(claim.queue, claim.worker)
    beside = claiming(claim.queue, claim.worker, after=claim.task_id)
    _move_to_end(claim, target, message, artifacts, even_unread=False, until=until, beside=beside)
    following = claimed_by(claim.worker, beside.row)
    if following is not None and is_hopeless(following):
        give_up(following)
        following = claim_next(claim.queue, claim.worker)
        wakeups.announce([claim.task_id], is_settled=True)
    else:
        wakeups.announce([claim.task_id], is_settled=True, others=[following.task_id] if following else [])
    return following


def wait(claim: Claim, until: datetime | None = None) -> None:
    """End the turn without an outcome: the task stays as it is, and is due again when it is woken, or at `until`.

    Raises Superseded when the claim is over, and Unread when something happened that the turn has not seen.
    """
    fields = {"due_at": until, "lease_owner": "", "attempts": 0}
    try:
        move(claim.task_id, [], sources=(claim.state,), epoch=claim.epoch, guard="NOT unread", fields=fields)
    except TaskNotInState:
        raise _over_or_unread(claim) from None


def resume(claim: Claim) -> None:
    """End a turn aside: what the task has asked is asked no more, and it is worked on again, at once.

    Raises Superseded when the claim is over, for instance because the answer has come.
    """
    working = Task.State.WORKING
    fields = {"due_at": After(), "lease_owner": "", "attempts": 0, "unread": False, "status_message": None}
    try:
        move(
            claim.task_id,
            [status(working)],
            sources=(claim.state,),
            epoch=claim.epoch,
            target=working,
            fields=fields,
        )
    except TaskNotInState:
        raise Superseded from None
    transaction.on_commit(partial(wakeups.announce, [claim.task_id]))
    doorbell.ring_again(claim.queue)


def hold(claim: Claim) -> None:
    """Take part in a transaction only while the claim holds. Raises Superseded."""
    _log(claim, [])


def _finish(
    claim: Claim,
    target: str,
    message: dict[str, Any] | None,
    artifacts: Sequence[ArtifactDraft],
    even_unread: bool,
    until: datetime | None,
) -> int:
    seq = _move_to_end(claim, target, message, artifacts, even_unread=even_unread, until=until)
    transaction.on_commit(partial(wakeups.announce, [claim.task_id], is_settled=True))
    return seq


def _move_to_end(
    claim: Claim,
    target: str,
    message: dict[str, Any] | None,
    artifacts: Sequence[ArtifactDraft],
    *,
    even_unread: bool,
    until: datetime | None,
    beside: Beside | None = None,
) -> int:
    message = clean(message) if message else None
    artifacts = _named_apart([_cleaned(draft) for draft in artifacts])
    drafts = [_artifact_event(claim, draft) for draft in artifacts]
    inserts = [_artifact_insert(claim, draft) for draft in artifacts]
    if message:
        inserts.append(message_insert(claim.task_id, message))
    try:
        return move(
            claim.task_id,
            [*drafts, status(target, message)],
            sources=(claim.state,),
            epoch=claim.epoch,
            target=target,
            guard="" if even_unread else "NOT unread",
            fields={
                "due_at": until,
                "lease_owner": "",
                "attempts": 0,
                "unread": False,
                "status_message": message,
            },
            inserts=inserts,
            beside=beside,
        )
    except TaskNotInState:
        raise _over_or_unread(claim) from None


def _over_or_unread(claim: Claim) -> TaskNotInState:
    is_ours = Task.objects.filter(pk=claim.task_id, epoch=claim.epoch, state=claim.state).exists()
    return Unread() if is_ours else Superseded()


def _log(claim: Claim, drafts: Sequence[Draft], inserts: Sequence[Insert] = ()) -> int:
    try:
        return move(claim.task_id, drafts, sources=(claim.state,), epoch=claim.epoch, inserts=inserts)
    except TaskNotInState:
        raise Superseded from None


def _cleaned(draft: ArtifactDraft) -> ArtifactDraft:
    return ArtifactDraft(
        clean(draft.name)[:NAME_LENGTH],
        clean(draft.parts),
        clean(draft.description),
        clean(draft.metadata),
        draft.is_streamed,
        clean(draft.tail),
        draft.is_growing,
    )


def _named_apart(artifacts: list[ArtifactDraft]) -> list[ArtifactDraft]:
    """The same artifacts, the second of a name with a number behind it: within a task a name stands once."""
    taken: set[str] = set()
    for draft in artifacts:
        name, number = draft.name, 1
        while draft.name in taken:
            number += 1
            draft.name = f"{name[: NAME_LENGTH - 8]} ({number})"
        taken.add(draft.name)
    return artifacts


def _artifact_event(claim: Claim, draft: ArtifactDraft) -> Draft:
    payload: dict[str, Any] = {"artifactId": str(artifact_id(claim.task_id, draft.name)), "name": draft.name}
    # A closing chunk carries no text again; an empty one keeps the schema's "at least one part".
    appends = draft.is_streamed or bool(draft.tail)
    payload["parts"] = [{"text": draft.tail}] if appends else draft.parts
    payload |= {"append": appends, "lastChunk": not draft.is_growing}
    if draft.description:
        payload["description"] = draft.description
    if draft.metadata:
        payload["metadata"] = draft.metadata
    return Draft(Event.Kind.ARTIFACT, payload)


def _artifact_insert(claim: Claim, draft: ArtifactDraft, *, is_complete: bool = True) -> Insert:
    version = Sql(
        "(SELECT COALESCE(MAX(version), 0) + 1 FROM tasks_artifact "
        "WHERE context_id = %s AND name = %s AND task_id <> %s)",
        (claim.context_id, draft.name, claim.task_id),
    )
    values = {
        "id": artifact_id(claim.task_id, draft.name),
        "task_id": claim.task_id,
        "context_id": claim.context_id,
        "name": draft.name,
        "version": version,
        "description": draft.description,
        "parts": draft.parts,
        "metadata": draft.metadata,
        "is_complete": is_complete,
        "created_at": timezone.now(),
    }
    kept = {"id", "task_id", "context_id", "name"}
    replaced = ", ".join(f"{name} = EXCLUDED.{name}" for name in values if name not in kept)
    return Insert(Artifact, values, f"ON CONFLICT (id) DO UPDATE SET {replaced}")
