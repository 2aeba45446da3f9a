"""From a message on the wire to a message of ours: checked whole, files kept, then sent or refused whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import UUID

from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import ContentTypeNotSupportedError

from bureau.a2a.addresses import FRONT_DOOR
from bureau.a2a.errors import invalid_field
from bureau.a2a.notifications import draft_of
from directory.exceptions import AgentNotFound
from directory.identity import Caller
from directory.models import Agent
from directory.protojson import as_json
from directory.services import get_agent
from tasks.content import MAX_PARTS, Incoming
from tasks.exceptions import TaskIsTerminal
from tasks.files import file_part, store_file
from tasks.models import StoredFile
from tasks.push import PushDraft
from tasks.queries import fetch_task
from tasks.services import Sent, send_message


class Taken(NamedTuple):
    """A message that was taken. `is_bare`: what comes of it is to be a message, if that is all that comes of it."""

    sent: Sent
    is_bare: bool


def send(
    caller: Caller, slug: str, request: pb.SendMessageRequest, new_id: UUID | None = None, *, version: str = "1.0"
) -> Taken:
    """Take the message in `request` for the agent of that slug; without one, for the front door.

    `new_id` is the id that a new task gets; `version` that of the protocol which the caller speaks.

    Raises what `tasks.services.send_message` does, AgentNotFound, and A2A errors for content that the
    agent or the protocol does not take. Then nothing has changed, and no file was kept.
    """
    message = request.message
    _check_content(message)
    agent = _agent_for(caller, slug, message.task_id)
    _check_media_types(agent, message.parts)
    push = _read_push(request, version)
    kept: list[StoredFile] = []
    try:
        parts = [_read_part(part, caller, kept) for part in message.parts]
        sent = send_message(
            caller,
            agent,
            Incoming(
                parts=parts,
                message_id=message.message_id,
                metadata=as_json(message.metadata),
                extensions=list(message.extensions),
                references=list(message.reference_task_ids),
            ),
            task_id=message.task_id or None,
            context_key=message.context_id,
            metadata=as_json(request.metadata),
            new_id=new_id,
            push=push,
        )
    except BaseException:
        _discard(kept)
        raise
    # Who follows up on a task, or wants to be told of its events, has one already.
    return Taken(sent, is_bare=sent.is_new and push is None and not agent.needs_task)


def _read_push(request: pb.SendMessageRequest, version: str) -> PushDraft | None:
    if not request.configuration.HasField("task_push_notification_config"):
        return None
    draft = draft_of(request.configuration.task_push_notification_config, version)
    draft.check()
    return draft


def _agent_for(caller: Caller, slug: str, task_id: str) -> Agent:
    """A follow-up goes to the agent that has the task, also when that takes no new ones any more."""
    if not task_id:
        if not caller.may_call(slug or FRONT_DOOR):
            raise AgentNotFound
        return get_agent(slug or FRONT_DOOR)
    view = fetch_task(caller, task_id, agent_slug=slug, history=0, with_artifacts=False)
    if view.is_terminal:
        raise TaskIsTerminal
    return Agent.objects.get(slug=view.agent_slug)


def _check_content(message: pb.Message) -> None:
    if message.role != pb.ROLE_USER:
        raise invalid_field("message.role", "Messages to an agent have the role of the user.")
    # Before any file of it is kept.
    if len(message.parts) > MAX_PARTS:
        raise invalid_field("message.parts", f"A message may have {MAX_PARTS} parts at most.")
    for number, part in enumerate(message.parts):
        if part.WhichOneof("content") is None:
            raise invalid_field(f"message.parts[{number}]", "A part holds one of text, raw, url and data.")


def _check_media_types(agent: Agent, parts: Iterable[pb.Part]) -> None:
    """Only what the sender states can contradict the card; a card that states nothing takes everything."""
    if not agent.input_modes:
        return
    for part in parts:
        if part.media_type and not _is_taken(part.media_type, agent.input_modes):
            modes = ", ".join(agent.input_modes)
            raise ContentTypeNotSupportedError(f"This agent does not take that media type. It takes: {modes}")


def _is_taken(media_type: str, modes: Iterable[str]) -> bool:
    """`modes` may hold wildcards: `text/*`, `*/*`. Parameters such as a charset do not matter."""
    wanted = media_type.partition(";")[0].strip().lower()
    family = wanted.partition("/")[0]
    return bool({wanted, f"{family}/*", "*/*"} & {mode.partition(";")[0].strip().lower() for mode in modes})


def _read_part(part: pb.Part, caller: Caller, kept: list[StoredFile]) -> dict[str, Any]:
    if part.WhichOneof("content") != "raw":
        shape: dict[str, Any] = as_json(part)
        return shape
    stored = store_file(caller.principal, part.filename, part.media_type, part.raw)
    kept.append(stored)
    shape = file_part(stored)
    return shape | {"metadata": as_json(part.metadata)} if part.HasField("metadata") else shape


def _discard(kept: list[StoredFile]) -> None:
    for stored in kept:
        stored.content.delete(save=False)
        stored.delete()
