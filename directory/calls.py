"""Asks remote agents from synchronous code, and keeps what is learned: health, and the rolling memory.

Each verb is one exchange that opens and closes its own connection; it must not run within a transaction,
nor in an event loop. Asynchronous code uses `RemoteClient` with `target_of`, and `record` for its reports.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from django.db import DatabaseError

from directory import cards, credentials, memory
from directory.discovery import Found
from directory.exceptions import NotRemote, RemoteError
from directory.health import check_available, record_call
from directory.http import Authorizer
from directory.models import Agent
from directory.remote import CALL_SECONDS, CallReport, RemoteClient, Target
from directory.wire import Answer, Outgoing, Push, RemoteTask

logger = logging.getLogger(__name__)

T = TypeVar("T")


def target_of(agent: Agent) -> Target:
    """What it takes to speak to this agent. Raises NotRemote, CredentialUnreadable."""
    if not agent.is_remote or not agent.binding:
        raise NotRemote(f"{agent.slug} is not a remote agent with an accepted card.")
    return Target(
        name=agent.slug,
        interface=cards.Interface(agent.url, agent.binding, agent.protocol_version, agent.tenant),
        card=agent.card,
        is_internal=agent.is_internal,
        authorizer=credentials.authorizer_of(agent, agent.url),
        agent_id=agent.pk,
    )


def target_at(found: Found, authorizer: Authorizer | None = None) -> Target:
    """What it takes to speak to an agent that is not in the directory."""
    return Target(
        name=found.card["name"],
        interface=found.interface,
        card=found.card,
        is_internal=found.is_internal,
        authorizer=authorizer,
    )


def record(report: CallReport) -> None:
    """Keep what a call says about an agent's health. A database that fails now does not undo the call."""
    if report.agent_id is not None:
        _keep(record_call, report.agent_id, report.started_at, report.seconds, report.error)


def _keep(write: Callable[..., None], *args: object) -> None:
    """What was sent was sent: whoever is told otherwise sends it again."""
    try:
        write(*args)
    except DatabaseError:
        logger.warning("A call could not be recorded", exc_info=True, extra={"action": "call.unrecorded"})


def send(
    agent: Agent,
    message: Outgoing,
    *,
    principal: str = "",
    sender: str = "",
    wait: bool = False,
    push: Push | None = None,
    seconds: float = CALL_SECONDS,
) -> Answer:
    """Send a message to a remote agent, on behalf of `principal`, by our agent `sender`.

    Without `wait` the answer is the task as soon as there is one. Raises AgentUnavailable (nothing was sent),
    RemoteError, NotRemote, CredentialUnreadable, ValueError.
    """
    agent = check_available(agent)
    target = target_of(agent)
    message = with_id(message)
    request_id = memory.remember(
        message, url=target.interface.url, name=agent.name, agent=agent, principal=principal, sender=sender
    )
    try:
        answer = _ask(target, lambda client: client.send(message, wait=wait, push=push), seconds)
    except RemoteError as error:
        _keep(memory.note_error, request_id, error)
        raise
    _keep(memory.note_answer, request_id, answer)
    return answer


def with_id(message: Outgoing) -> Outgoing:
    """The message with an id of its own, if it has none."""
    return message if message.message_id else replace(message, message_id=str(uuid.uuid4()))


def get_task(agent: Agent, task_id: str, *, history: int | None = None, seconds: float = CALL_SECONDS) -> RemoteTask:
    """How a task is at a remote agent, whatever is thought of the agent now. Raises RemoteError, ..."""
    task = _ask(target_of(agent), lambda client: client.get(task_id, history=history), seconds)
    _keep(memory.note_task, agent, task)
    return task


def cancel_task(agent: Agent, task_id: str, *, seconds: float = CALL_SECONDS) -> RemoteTask:
    """Cancel a task at a remote agent, whatever is thought of the agent now. Raises RemoteError, ..."""
    task = _ask(target_of(agent), lambda client: client.cancel(task_id), seconds)
    _keep(memory.note_task, agent, task)
    return task


def list_tasks(
    agent: Agent, *, context_id: str = "", limit: int = 50, page: str = "", seconds: float = CALL_SECONDS
) -> tuple[list[RemoteTask], str]:
    """Our tasks at a remote agent, and the token of the next page. Raises RemoteError, ..."""
    return _ask(
        target_of(agent),
        lambda client: client.list_tasks(context_id=context_id, limit=limit, page=page),
        seconds,
    )


def extended_card(agent: Agent, *, seconds: float = CALL_SECONDS) -> dict[str, Any]:
    """What the agent tells those who have a credential. Raises RemoteError, ..."""
    return _ask(target_of(agent), lambda client: client.extended_card(), seconds)


def _ask(target: Target, question: Callable[[RemoteClient], Awaitable[T]], seconds: float) -> T:
    reports: list[CallReport] = []

    async def ask() -> T:
        async with RemoteClient(target, seconds=seconds, on_call=reports.append) as client:
            return await question(client)

    try:
        return asyncio.run(ask())
    finally:
        for report in reports:
            record(report)
