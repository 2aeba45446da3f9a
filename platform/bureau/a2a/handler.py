"""A2A's operations over our services: one implementation of a2a-sdk's `RequestHandler` for every wire version.

It knows protocol types and callers, and nothing of HTTP. Waiting and streaming hold no thread.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import UTC
from functools import partial
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast
from uuid import UUID, uuid4

from a2a.server.context import ServerCallContext
from a2a.server.events import Event
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
from a2a.utils.errors import TaskNotFoundError, UnsupportedOperationError
from a2a.utils.task import validate_history_length, validate_page_size
from django.conf import settings
from rest_framework.exceptions import NotAuthenticated

from bureau.a2a.authentication import CallerUser, ScopeMissing
from bureau.a2a.cards import extended_card
from bureau.a2a.errors import FORESEEN, as_a2a_error, invalid_field
from bureau.a2a.inbound import Taken, send
from bureau.a2a.notifications import draft_of, to_config, version_of
from bureau.a2a.outbound import (
    STATE_NAMES,
    Ids,
    bare_message,
    holds_files,
    parts_of,
    read_files,
    to_task,
    to_update,
)
from directory.exceptions import AgentNotFound
from directory.identity import CANCEL, READ, SEND, Caller
from directory.models import Agent
from tasks.aio import in_db
from tasks.content import check_storable
from tasks.exceptions import PushConfigNotFound, TaskNotInState
from tasks.follow import Settling, follow, settles, settling
from tasks.models import Event as LoggedEvent
from tasks.models import Task
from tasks.push import PushDraft, delete_config, get_config, list_configs, set_config
from tasks.queries import EventRow, TaskView, fetch_task, list_tasks
from tasks.services import Sent, cancel_task

P = ParamSpec("P")
T = TypeVar("T")

# In ServerCallContext.state: the number of the event that a stream yields next, set before each yield.
EVENT_ID = "event_id"
# There, too: the id that a new task gets, if it is not to be a random one.
NEW_ID = "new_id"

ENDED = "The task has ended; there is nothing to subscribe to."


class Handler(RequestHandler):
    """Keeps no state: one instance serves every request.

    `context.user` is a CallerUser, and `context.tenant` the slug of the addressed agent or empty.
    Every method raises A2AError for what is foreseen, and ScopeMissing.
    """

    async def on_message_send(self, params: pb.SendMessageRequest, context: ServerCallContext) -> pb.Task | pb.Message:
        """Waits until the task has ended or needs somebody, unless told to return at once.

        A bare message is always waited for (3.2.2): there is no task to come back for.
        """
        caller, slug = _who(context, SEND)
        history = _history_length(params.configuration)
        task_id = _named_task(params.message) or context.state.get(NEW_ID) or uuid4()
        async with settling(task_id) as task:
            sent, is_bare = await _send(caller, slug, params, task_id, context)
            if params.configuration.return_immediately and not is_bare:
                return await _ask(_read_task, caller, sent.task_id, "", history)
            answer = await _settled(task, caller, sent, history)
        return (bare_message(answer) if is_bare else None) or answer

    async def on_message_send_stream(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """Begins with the task: a new one as it was when the message came, so that everything follows on it.

        From an agent that needs none it is one message and nothing else, or the task as it has become.
        """
        caller, slug = _who(context, SEND)
        history = _history_length(params.configuration)
        task_id = context.state.get(NEW_ID) or uuid4()
        async with settling(task_id) as settled:
            sent, is_bare = await _send(caller, slug, params, task_id, context)
            answer = await _settled(settled, caller, sent, history) if is_bare else None
        if answer is not None and (said := bare_message(answer)) is not None:
            context.state[EVENT_ID] = None
            yield said
            return
        read = _read_snapshot if answer is not None or not sent.is_new else _read_as_sent
        view, task = await _ask(read, caller, sent.task_id, "", history)
        context.state[EVENT_ID] = view.last_seq
        yield task
        if view.is_settled:
            return
        async with aclosing(_updates(view, view.last_seq, context)) as updates:
            async for update in updates:
                yield update

    async def on_subscribe_to_task(
        self, params: pb.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """Begins with the task. One that waits for somebody is followed on, until it ends or waits again."""
        view, task = await _ask(_read_snapshot, *_who_and_task(context, READ, params.id), None)
        if view.is_terminal:
            raise UnsupportedOperationError(ENDED)
        context.state[EVENT_ID] = view.last_seq
        yield task
        async with aclosing(_updates(view, view.last_seq, context)) as updates:
            async for update in updates:
                yield update

    async def resume(
        self, params: pb.SubscribeToTaskRequest, context: ServerCallContext, after: int
    ) -> AsyncGenerator[Event]:
        """A stream that was lost behind event `after`: exactly what follows on it, without the task again.

        What happened last of a task that has ended meanwhile is still told.
        """
        view = await _ask(_read_view, *_who_and_task(context, READ, params.id))
        if after > view.last_seq:
            raise invalid_field("Last-Event-ID", "This task has no such event yet.")
        if view.is_terminal and after == view.last_seq:
            raise UnsupportedOperationError(ENDED)
        return _updates(view, after, context)

    async def on_get_task(self, params: pb.GetTaskRequest, context: ServerCallContext) -> pb.Task:
        return await _ask(_read_task, *_who_and_task(context, READ, params.id), _history_length(params))

    async def on_list_tasks(self, params: pb.ListTasksRequest, context: ServerCallContext) -> pb.ListTasksResponse:
        """The caller's missions, newest status first. Files are given as addresses only."""
        caller, slug = _who(context, READ)
        if params.HasField("page_size"):
            validate_page_size(params.page_size)
        return await _ask(_read_page, caller, slug, params, _history_length(params))

    async def on_cancel_task(self, params: pb.CancelTaskRequest, context: ServerCallContext) -> pb.Task:
        return await _ask(_cancel, *_who_and_task(context, CANCEL, params.id))

    async def on_create_task_push_notification_config(
        self, params: pb.TaskPushNotificationConfig, context: ServerCallContext
    ) -> pb.TaskPushNotificationConfig:
        draft = draft_of(params, version_of(context))
        return await _ask(_create_config, *_who_and_task(context, READ, params.task_id), draft)

    async def on_get_task_push_notification_config(
        self, params: pb.GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> pb.TaskPushNotificationConfig:
        """In 0.3 the id may be left out: then it is the first."""
        return await _ask(_read_config, *_who_and_task(context, READ, params.task_id), params.id)

    async def on_list_task_push_notification_configs(
        self, params: pb.ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> pb.ListTaskPushNotificationConfigsResponse:
        """All of them on one page: there are few."""
        return await _ask(_list_configs, *_who_and_task(context, READ, params.task_id))

    async def on_delete_task_push_notification_config(
        self, params: pb.DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        await _ask(_delete_config, *_who_and_task(context, READ, params.task_id), params.id)

    async def on_get_extended_agent_card(
        self, params: pb.GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> pb.AgentCard:
        """For those who say who they are: the card, also of an agent that strangers are told nothing of."""
        caller, slug = _who(context, READ)
        if caller.is_anonymous:
            raise NotAuthenticated("The extended card is for callers with a key.")
        return await _ask(extended_card, caller, slug)


async def _send(
    caller: Caller, slug: str, params: pb.SendMessageRequest, task_id: UUID, context: ServerCallContext
) -> Taken:
    """Take the message. A sender who has a name of its own for the task, as in the older protocol, wants the task."""
    taken = await _ask(send, caller, slug, params, task_id, version=version_of(context))
    return taken._replace(is_bare=taken.is_bare and NEW_ID not in context.state)


async def _settled(task: Settling, caller: Caller, sent: Sent, history: int | None) -> pb.Task:
    """The task that a message went to, once it has ended or needs somebody."""
    try:
        answer = await task.read_settled(sent.seq, partial(_read_answer, caller, sent.task_id, history))
    except FORESEEN as error:
        raise as_a2a_error(error) from None
    assert answer.task is not None
    return answer.task


async def _ask(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a service, and say what it raises in the protocol's words."""
    try:
        return await in_db(function, *args, **kwargs)
    except FORESEEN as error:
        raise as_a2a_error(error) from None


def _who(context: ServerCallContext, scope: str) -> tuple[Caller, str]:
    """Raises ScopeMissing when the caller's credentials are not for this."""
    caller = cast(CallerUser, context.user).caller
    if scope not in caller.scopes:
        raise ScopeMissing(scope)
    return caller, context.tenant


def _who_and_task(context: ServerCallContext, scope: str, task_id: str) -> tuple[Caller, str, str]:
    caller, slug = _who(context, scope)
    return caller, task_id, slug


def _history_length(params: Any) -> int | None:
    """None when the caller sets no limit. Raises InvalidParamsError."""
    validate_history_length(params)
    return params.history_length if params.HasField("history_length") else None


def _read_task(caller: Caller, task_id: UUID | str, slug: str, history: int | None) -> pb.Task:
    return to_task(fetch_task(caller, task_id, agent_slug=slug, history=history))


class Answer(NamedTuple):
    """A task that is waited for; on the wire only once it has settled."""

    is_settled: bool
    last_seq: int
    task: pb.Task | None


def _read_answer(caller: Caller, task_id: UUID, history: int | None) -> Answer:
    view = fetch_task(caller, task_id, history=history)
    return Answer(view.is_settled, view.last_seq, to_task(view) if view.is_settled else None)


def _named_task(message: pb.Message) -> UUID | None:
    """The id of the task that the message follows up on; sending it tells whether there is one."""
    try:
        return UUID(message.task_id)
    except ValueError:
        return None


def _create_config(caller: Caller, task_id: str, slug: str, draft: PushDraft) -> pb.TaskPushNotificationConfig:
    return to_config(set_config(caller, _read_view(caller, task_id, slug).id, draft))


def _read_config(caller: Caller, task_id: str, slug: str, config_id: str) -> pb.TaskPushNotificationConfig:
    task = _read_view(caller, task_id, slug).id
    if config_id:
        return to_config(get_config(caller, task, config_id))
    configs = list_configs(caller, task)
    if not configs:
        raise PushConfigNotFound
    return to_config(configs[0])


def _list_configs(caller: Caller, task_id: str, slug: str) -> pb.ListTaskPushNotificationConfigsResponse:
    configs = list_configs(caller, _read_view(caller, task_id, slug).id)
    return pb.ListTaskPushNotificationConfigsResponse(configs=map(to_config, configs))


def _delete_config(caller: Caller, task_id: str, slug: str, config_id: str) -> None:
    delete_config(caller, _read_view(caller, task_id, slug).id, config_id)


def _read_view(caller: Caller, task_id: str, slug: str) -> TaskView:
    return fetch_task(caller, task_id, agent_slug=slug, history=0, with_artifacts=False)


def _read_snapshot(caller: Caller, task_id: UUID | str, slug: str, history: int | None) -> tuple[TaskView, pb.Task]:
    """The task as of its `last_seq`, on which the events behind that number follow."""
    view = fetch_task(caller, task_id, agent_slug=slug, history=history)
    return view, to_task(view)


def _read_as_sent(caller: Caller, task_id: UUID | str, slug: str, history: int | None) -> tuple[TaskView, pb.Task]:
    """A new task as of its first event, although it may have ended by now."""
    view = fetch_task(caller, task_id, agent_slug=slug, with_artifacts=False)
    view.state, view.status_message, view.status_at, view.last_seq = Task.State.SUBMITTED, None, view.created_at, 1
    view.history = view.history[: 1 if history is None else min(history, 1)]
    return view, to_task(view)


def _read_page(caller: Caller, slug: str, params: pb.ListTasksRequest, history: int | None) -> pb.ListTasksResponse:
    # A disabled agent whose tasks are somebody's is there for that somebody, and for nobody else.
    agent = Agent.objects.filter(slug=slug).first() if slug else None
    if slug and (agent is None or not caller.may_call(slug)):
        raise AgentNotFound
    if agent and not agent.is_enabled and not agent.tasks.filter(owner=caller.principal).exists():
        raise AgentNotFound
    if params.status and params.status not in STATE_NAMES:
        raise invalid_field("status", "There is no such task state.")
    check_storable([params.context_id, params.page_token], "The filter")
    page_size = params.page_size if params.HasField("page_size") else DEFAULT_LIST_TASKS_PAGE_SIZE
    since = params.status_timestamp_after if params.HasField("status_timestamp_after") else None
    page = list_tasks(
        caller,
        agent_slug=slug,
        context_key=params.context_id,
        states=[STATE_NAMES[params.status]] if params.status else [],
        status_after=since.ToDatetime(UTC) if since else None,
        page_size=page_size,
        page_token=params.page_token,
        history=history,
        with_artifacts=params.include_artifacts,
        max_bytes=settings.BUREAU_PAGE_BYTES,
    )
    return pb.ListTasksResponse(
        tasks=[to_task(view, inline=False) for view in page.tasks],
        next_page_token=page.next_token,
        page_size=page_size,
        total_size=page.total,
    )


def _cancel(caller: Caller, task_id: str, slug: str) -> pb.Task:
    # An operator may cancel anybody's task, but not here: on the protocol everybody has only their own.
    view = _read_view(caller, task_id, slug)
    try:
        cancel_task(caller, view.id)
    except TaskNotInState:
        raise TaskNotInState("The task has ended already.") from None
    return _read_task(caller, view.id, slug, None)


async def _updates(view: TaskView, after: int, context: ServerCallContext) -> AsyncGenerator[Event]:
    """What happens to the task behind event `after`, until it has ended or waits for somebody."""
    ids = Ids(str(view.id), view.context_key)
    async with aclosing(cast("AsyncGenerator[list[EventRow]]", follow(view.id, after))) as batches:
        async for batch in batches:
            for event in batch:
                if event.kind not in LoggedEvent.ON_THE_WIRE:
                    continue
                parts = parts_of(event)
                contents = await in_db(read_files, parts) if holds_files(parts) else {}
                context.state[EVENT_ID] = event.seq
                yield to_update(event, ids, contents)
                if settles(event):
                    return
    raise TaskNotFoundError("The task has been deleted.")


HANDLER = Handler()
