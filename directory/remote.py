"""The A2A client: speaks to one remote agent in the version and binding that were chosen for it.

Asynchronous and without a database: everything it needs is in a `Target`, and what it learns about the
agent's health it reports through `on_call`. `directory.calls` puts the two together.
"""

import asyncio
import re
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar

from a2a.client.client import ClientCallContext
from a2a.client.transports.base import ClientTransport
from a2a.client.transports.jsonrpc import JsonRpcTransport
from a2a.client.transports.rest import RestTransport
from a2a.client.transports.tenant_decorator import TenantTransportDecorator
from a2a.types.a2a_pb2 import (
    AgentCard,
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from a2a.utils.constants import VERSION_HEADER
from django.utils import timezone
from google.protobuf.json_format import ParseDict

from directory import cards
from directory.exceptions import (
    ConnectionLost,
    InvalidAnswer,
    OperationNotSupported,
    RemoteError,
    TimedOut,
)
from directory.failures import explained
from directory.http import Authorizer, Client, open_client
from directory.wire import Answer, Outgoing, Push, RemoteEvent, RemoteTask, answer_from, event_from, task_from

T = TypeVar("T")

# A stream may take some seconds of the loop that hears all of them, in many small pieces; then it is asked instead.
EVENT_WORK = 1000
MOST_WORK = 4 * 1024**3
CALL_SECONDS = 30.0
# A stream without a sign of life, heartbeats included, is given up.
IDLE_SECONDS = 120.0
POLL_SECONDS = (0.5, 15.0)
RETRIES = 5
_PATH_SEGMENT = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._~!$&'()*+,;=:@-]+")


@dataclass(frozen=True, slots=True)
class Target:
    """Everything it takes to speak to one agent."""

    name: str
    interface: cards.Interface
    card: dict[str, Any] = field(repr=False)
    is_internal: bool
    authorizer: Authorizer | None = field(default=None, repr=False)
    agent_id: int | None = None

    @property
    def streams(self) -> bool:
        return cards.capability(self.card, "streaming")

    @property
    def pushes(self) -> bool:
        return cards.capability(self.card, "pushNotifications")


@dataclass(frozen=True, slots=True)
class CallReport:
    """How one call went, for the agent's health."""

    agent_id: int | None
    operation: str
    started_at: datetime
    seconds: float
    error: RemoteError | None = None


class RemoteClient(AbstractAsyncContextManager["RemoteClient"]):
    """Calls to one remote agent; use as an asynchronous context manager, in one event loop.

    Every call raises RemoteError: `can_retry` says whether the same call may succeed later, and
    `may_have_arrived` whether the agent may have acted on it.
    """

    def __init__(
        self,
        target: Target,
        *,
        seconds: float = CALL_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        on_call: Callable[[CallReport], None] | None = None,
    ) -> None:
        self.target = target
        self._seconds = seconds
        self._idle_seconds = idle_seconds
        self._on_call = on_call

    async def __aenter__(self) -> "RemoteClient":
        self._client = open_client(
            authorizer=self.target.authorizer, public_only=not self.target.is_internal, read_seconds=self._seconds
        )
        self._client.headers[VERSION_HEADER] = self.target.interface.version
        self._transport = _transport(self.target, self._client)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    # --- Calls that have one answer ---

    async def send(
        self, message: Outgoing, *, wait: bool = False, push: Push | None = None, history: int | None = None
    ) -> Answer:
        """Send a message; without `wait`, the agent answers with the task as soon as there is one."""
        request = message.request(wait=wait, tenant=self.target.interface.tenant, push=push, history=history)
        response = await self._call("send", lambda: self._transport.send_message(request))
        return answer_from(response)

    async def get(self, task_id: str, *, history: int | None = None) -> RemoteTask:
        """Raises RemoteTaskNotFound, ..."""
        request = GetTaskRequest(id=self._usable(task_id), tenant=self.target.interface.tenant)
        if history is not None:
            request.history_length = history
        return task_from(await self._call("get", lambda: self._transport.get_task(request), about_task=True))

    async def cancel(self, task_id: str) -> RemoteTask:
        """Raises RemoteTaskNotFound, RemoteTaskNotCancelable, ..."""
        request = CancelTaskRequest(id=self._usable(task_id), tenant=self.target.interface.tenant)
        return task_from(await self._call("cancel", lambda: self._transport.cancel_task(request), about_task=True))

    async def list_tasks(
        self, *, context_id: str = "", limit: int = 50, page: str = ""
    ) -> tuple[list[RemoteTask], str]:
        """Our tasks there, newest first, and the token of the next page. Not in 0.3: OperationNotSupported."""
        request = ListTasksRequest(
            context_id=context_id, page_size=limit, page_token=page, tenant=self.target.interface.tenant
        )
        response = await self._call("list", lambda: self._transport.list_tasks(request))
        return [task_from(task) for task in response.tasks], response.next_page_token

    async def set_push(self, task_id: str, push: Push) -> str:
        """Have the agent tell us of a task that is there already; returns the id of the configuration."""
        document = {"taskId": self._usable(task_id), "id": str(uuid.uuid4()), "tenant": self.target.interface.tenant}
        config = ParseDict(document | push.as_config(), TaskPushNotificationConfig())
        made = await self._call(
            "set_push", lambda: self._transport.create_task_push_notification_config(config), about_task=True
        )
        return made.id

    async def extended_card(self) -> dict[str, Any]:
        """What the agent tells those who have a credential. Raises OperationNotSupported, ..."""
        if not cards.capability(self.target.card, "extendedAgentCard"):
            raise OperationNotSupported("The agent has no extended card.")
        request = GetExtendedAgentCardRequest(tenant=self.target.interface.tenant)
        return cards.as_dict(await self._call("card", lambda: self._transport.get_extended_agent_card(request)))

    # --- Streams ---

    async def stream(self, message: Outgoing, *, push: Push | None = None) -> AsyncGenerator[RemoteEvent]:
        """Send a message and hear what happens, until the task is settled or the stream ends."""
        request = message.request(wait=True, tenant=self.target.interface.tenant, push=push)
        events = self._transport.send_message_streaming(request, context=self._idle())
        async with aclosing(self._events("stream", events, None)) as found:
            async for event in found:
                yield event

    async def subscribe(self, task: RemoteTask) -> AsyncGenerator[RemoteEvent]:
        """Hear what happens to a task that is there already; a terminal one cannot be subscribed to."""
        request = SubscribeToTaskRequest(id=self._usable(task.id), tenant=self.target.interface.tenant)
        events = self._transport.subscribe(request, context=self._idle())
        async with aclosing(self._events("subscribe", events, task)) as found:
            async for event in found:
                yield event

    async def follow(
        self, task: RemoteTask, *, poll: tuple[float, float] = POLL_SECONDS
    ) -> AsyncGenerator[RemoteEvent]:
        """Hear what happens to a task until it is settled: by stream where the agent has one, else by asking.

        A broken stream is taken up again, with everything that was missed. Raises RemoteError when the agent
        fails several times in a row, or once for good.
        """
        by_stream = self.target.streams
        has_missed = False
        failures = 0
        wait = poll[0]
        while not task.is_settled:
            before = task
            try:
                if has_missed or not by_stream:
                    task = await self.get(task.id)
                    if task != before:
                        yield RemoteEvent("task", task=task)
                if by_stream and not task.is_settled:
                    has_missed = True
                    async with aclosing(self.subscribe(task)) as events:
                        async for event in events:
                            # A stream that begins with all of the task has missed nothing.
                            has_missed = has_missed and event.kind != "task"
                            task = event.task or task
                            yield event
                    if task.is_settled and has_missed:
                        before, task = task, await self.get(task.id)
                        if task != before:
                            yield RemoteEvent("task", task=task)
                    has_missed = True
                failures = 0
            except OperationNotSupported:
                if not by_stream:
                    raise
                # It cannot, or the task has ended: asking will tell.
                by_stream = False
                continue
            except RemoteError as error:
                failures += 1
                if not error.can_retry or failures > RETRIES:
                    raise
                has_missed = True
            wait = poll[0] if task != before else min(wait * 1.5, poll[1])
            if not task.is_settled:
                await asyncio.sleep(wait)

    # --- Inside ---

    def _usable(self, task_id: str) -> str:
        """REST puts the id into the path, with our credential: it may not lead to another place of that host."""
        if self.target.interface.binding == cards.REST and not _PATH_SEGMENT.fullmatch(task_id):
            raise InvalidAnswer("The remote agent gave a task an id that cannot be part of an address.")
        return task_id

    def _idle(self) -> ClientCallContext:
        return ClientCallContext(timeout=self._idle_seconds)

    async def _call(self, operation: str, call: Callable[[], Awaitable[T]], *, about_task: bool = False) -> T:
        started_at, clock = timezone.now(), time.monotonic()
        try:
            async with asyncio.timeout(self._seconds):
                answer = await call()
        except Exception as raised:
            error = self._explained(raised, about_task=about_task)
            self._report(operation, started_at, clock, error)
            raise error from raised
        self._report(operation, started_at, clock, None)
        return answer

    def _explained(self, error: Exception, *, about_task: bool) -> RemoteError:
        if isinstance(error, TimeoutError):
            return TimedOut(f"{self.target.name} did not answer within {self._seconds:g} seconds.")
        return explained(error, about_task=about_task, is_rest=self.target.interface.binding == cards.REST)

    async def _events(
        self, operation: str, events: AsyncIterator[StreamResponse], task: RemoteTask | None
    ) -> AsyncGenerator[RemoteEvent]:
        """Fold the events of a stream, and report once how it began and once if it broke."""
        started_at, clock = timezone.now(), time.monotonic()
        has_begun = False
        work = 0
        try:
            async for response in events:
                event = event_from(response, task)
                work = _more_work(work, event.task)
                is_first, has_begun = not has_begun, True
                if is_first:
                    self._report(operation, started_at, clock, None)
                task = event.task or task
                yield event
                if _is_last(event, is_first=is_first, operation=operation):
                    return
        except Exception as raised:
            error = self._explained(raised, about_task=operation == "subscribe")
            self._report(operation, timezone.now() if has_begun else started_at, clock, error)
            raise error from raised
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()
        if not has_begun:
            error = ConnectionLost("The stream ended before anything was said.")
            self._report(operation, started_at, clock, error)
            raise error

    def _report(self, operation: str, started_at: datetime, clock: float, error: RemoteError | None) -> None:
        if self._on_call:
            seconds = time.monotonic() - clock
            self._on_call(CallReport(self.target.agent_id, operation, started_at, seconds, error))


def _more_work(before: int, task: RemoteTask | None) -> int:
    """What a stream has cost, in characters looked at: an event that is folded in looks at all before it once more.

    Raises InvalidAnswer.
    """
    known = task.artifacts if task else []
    texts = sum(len(part.get("text", "")) for artifact in known for part in artifact["parts"])
    work = before + EVENT_WORK + 100 * (len(task.history) if task else 0) + texts
    if work > MOST_WORK:
        raise InvalidAnswer("The remote agent's stream has too many events for what they say.")
    return work


def _is_last(event: RemoteEvent, *, is_first: bool, operation: str) -> bool:
    """Whether nothing more will come, however long the other side keeps the stream open."""
    if event.kind != "task":
        return event.kind == "message" or (event.kind == "status" and event.task is not None and event.task.is_settled)
    assert event.task is not None
    # The answer to a question may begin with the task as it was: still asking.
    is_old = is_first and operation == "stream" and not event.task.is_terminal
    return event.task.is_settled and not is_old


def _transport(target: Target, client: Client) -> ClientTransport:
    card = ParseDict(target.card, AgentCard(), ignore_unknown_fields=True)
    interface = target.interface
    made: ClientTransport
    match (interface.binding, interface.version):
        case (cards.JSONRPC, "1.0"):
            made = JsonRpcTransport(client, card, interface.url, is_shared_httpx=True)
        case (cards.REST, "1.0"):
            made = RestTransport(client, card, interface.url, is_shared_httpx=True)
        case (cards.JSONRPC, _):
            from a2a.compat.v0_3.jsonrpc_transport import CompatJsonRpcTransport

            made = CompatJsonRpcTransport(client, card, interface.url, is_shared_httpx=True)
        case _:
            from a2a.compat.v0_3.rest_transport import CompatRestTransport

            made = CompatRestTransport(client, card, interface.url, is_shared_httpx=True)
    return TenantTransportDecorator(made, interface.tenant) if interface.tenant else made
