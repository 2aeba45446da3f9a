"""The a2a-sdk client, in 1.0 and through its 0.3 compatibility, over both bindings, finding the agent by its card."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.helpers import get_artifact_text, get_message_text, new_text_message
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from bureau.a2a.courier import deliver_due
from directory.models import Agent
from tasks.aio import in_db
from tasks.models import PushConfig, Task
from tasks.results import finish, plain
from tests.support.receivers import receiver

pytestmark = pytest.mark.both_databases
STATES = pb.TaskState.Name


@pytest.fixture(params=["1.0", "0.3"])
def version(request):
    return request.param


@pytest.fixture(params=["JSONRPC", "HTTP+JSON"])
def binding(request):
    return request.param


@pytest.fixture
def key(make_key, settings):
    settings.BUREAU_ALLOW_ANONYMOUS = False
    return make_key("sdk")


@pytest.fixture
async def connect(url, key, version, binding):
    """A client of the echo agent: `await connect(streaming=False)`."""
    http = httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=90)
    if version == "1.0":
        http.headers["A2A-Version"] = version

    async def make(**config):
        card = await A2ACardResolver(http, f"{url}/a2a/echo/").get_agent_card()
        for interface in list(card.supported_interfaces):
            if (interface.protocol_version, interface.protocol_binding) != (version, binding):
                card.supported_interfaces.remove(interface)
        assert len(card.supported_interfaces) == 1
        return ClientFactory(ClientConfig(httpx_client=http, supported_protocol_bindings=[binding], **config)).create(
            card
        )

    yield make
    await http.aclose()


def request(text, task_id="", **configuration):
    message = new_text_message(text, role=pb.ROLE_USER)
    message.task_id = task_id
    return pb.SendMessageRequest(message=message, configuration=pb.SendMessageConfiguration(**configuration))


async def only(stream):
    """The only item of a stream."""
    items = [item async for item in stream]
    assert len(items) == 1
    return items[0]


async def submit(client, text="x"):
    return (await only(client.send_message(request(text, return_immediately=True)))).task


async def test_it_sends_and_waits(connect, worker):
    client = await connect(streaming=False)
    task = (await only(client.send_message(request("Hello there")))).task

    assert task.status.state == pb.TASK_STATE_COMPLETED
    assert get_artifact_text(task.artifacts[0]) == "Hello there"


async def test_it_streams(connect, worker):
    client = await connect()
    events = [event async for event in client.send_message(request("Hello there"))]

    assert [event.WhichOneof("payload") for event in events] == [
        "task",
        "status_update",
        "artifact_update",
        "status_update",
    ]
    assert events[0].task.status.state == pb.TASK_STATE_SUBMITTED
    assert get_artifact_text(events[2].artifact_update.artifact) == "Hello there"
    assert events[3].status_update.status.state == pb.TASK_STATE_COMPLETED


@pytest.mark.parametrize("streaming", [False, True])
async def test_it_is_answered_without_a_task(connect, worker, streaming):
    await in_db(Agent.objects.filter(slug="echo").update, needs_task=False)
    client = await connect(streaming=streaming)
    answer = await only(client.send_message(request("Hello there")))

    assert get_message_text(answer.message) == "Hello there"


async def test_it_gets(connect, worker):
    client = await connect(streaming=False)
    task = (await only(client.send_message(request("Hello there")))).task

    assert await client.get_task(pb.GetTaskRequest(id=task.id)) == task


async def test_it_lists(connect, version, worker):
    client = await connect(streaming=False)
    task = (await only(client.send_message(request("Hello there")))).task
    if version == "0.3":
        with pytest.raises(NotImplementedError):
            await client.list_tasks(pb.ListTasksRequest())
        return

    response = await client.list_tasks(pb.ListTasksRequest(include_artifacts=True))
    assert list(response.tasks) == [task]
    assert (response.total_size, response.page_size, response.next_page_token) == (1, 50, "")


async def test_it_cancels(connect):
    client = await connect(streaming=False)
    task = await submit(client)
    canceled = await client.cancel_task(pb.CancelTaskRequest(id=task.id))

    assert canceled.status.state == pb.TASK_STATE_CANCELED
    with pytest.raises(TaskNotCancelableError):
        await client.cancel_task(pb.CancelTaskRequest(id=task.id))


async def test_it_subscribes(connect):
    task = await submit(await connect(streaming=False))
    client = await connect()
    stream = client.subscribe(pb.SubscribeToTaskRequest(id=task.id))
    first = await anext(stream)
    await client.cancel_task(pb.CancelTaskRequest(id=task.id))
    rest = [event async for event in stream]

    assert first.task.id == task.id
    assert rest[-1].status_update.status.state == pb.TASK_STATE_CANCELED


async def test_it_goes_on_where_a_stream_was_lost(connect, take):
    client = await connect()
    lost = client.send_message(request("Hello"))
    task = (await anext(lost)).task
    await lost.aclose()
    claim = await in_db(take)
    events = []
    async for event in client.subscribe(pb.SubscribeToTaskRequest(id=task.id)):
        if not events:
            await in_db(finish, claim, Task.State.COMPLETED, message=plain("Done."))
        events.append(event)

    assert events[0].task.status.state == pb.TASK_STATE_WORKING
    assert [get_message_text(event.status_update.status.message) for event in events[1:]] == ["Done."]


async def test_it_is_told_what_is_wrong(connect, binding, worker):
    client = await connect(streaming=False)
    task = (await only(client.send_message(request("x")))).task

    with pytest.raises(TaskNotFoundError):
        await client.get_task(pb.GetTaskRequest(id="nonsense"))
    with pytest.raises(UnsupportedOperationError):
        await only(client.send_message(request("more", task.id)))
    if binding == "JSONRPC":
        with pytest.raises(InvalidParamsError):
            await client.get_task(pb.GetTaskRequest(id=""))
    with pytest.raises(InvalidParamsError):
        config = pb.TaskPushNotificationConfig(task_id=task.id, url="http://169.254.169.254/latest")
        await client.create_task_push_notification_config(config)


async def test_a_stream_is_refused_like_anything_else(connect, worker):
    client = await connect()
    events = [event async for event in client.send_message(request("x"))]
    task_id = events[0].task.id

    with pytest.raises(UnsupportedOperationError):
        [event async for event in client.subscribe(pb.SubscribeToTaskRequest(id=task_id))]
    with pytest.raises(UnsupportedOperationError):
        [event async for event in client.send_message(request("more", task_id))]


async def test_it_answers_a_question(connect, take):
    client = await connect(streaming=False)
    asked = asyncio.create_task(only(client.send_message(request("Hello"))))
    await in_db(finish, await in_db(take), Task.State.INPUT_REQUIRED, message=plain("Which one?"))
    task = (await asked).task
    assert task.status.state == pb.TASK_STATE_INPUT_REQUIRED
    assert get_message_text(task.status.message) == "Which one?"

    answered = asyncio.create_task(only(client.send_message(request("That one", task.id))))
    await in_db(finish, await in_db(take), Task.State.COMPLETED, message=plain("Thanks."))
    assert (await answered).task.status.state == pb.TASK_STATE_COMPLETED
    assert (await answered).task.id == task.id


async def test_it_is_told_by_push(connect, version, binding, worker, settings):
    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8",)
    client = await connect(streaming=False)
    with receiver() as hook:
        config = pb.TaskPushNotificationConfig(id="mine", url=hook.url, token="tok")
        sent = request("Hello", task_push_notification_config=config)
        task = (await only(client.send_message(sent))).task
        await deliver_due()

        assert hook.received[-1].headers["x-a2a-notification-token"] == "tok"
        body = hook.received[-1].json
        assert body["id" if version == "0.3" else "statusUpdate"]
    found = await client.get_task_push_notification_config(
        pb.GetTaskPushNotificationConfigRequest(task_id=task.id, id="mine")
    )
    assert (found.url, found.token) == (hook.url, "tok")
    if version == "0.3" and binding == "HTTP+JSON":
        return  # Its client has no list and no delete there.
    configs = await client.list_task_push_notification_configs(
        pb.ListTaskPushNotificationConfigsRequest(task_id=task.id)
    )
    assert [config.id for config in configs.configs] == ["mine"]
    await client.delete_task_push_notification_config(
        pb.DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="mine")
    )
    assert not await in_db(PushConfig.objects.exists)


async def test_it_reads_the_extended_card(connect):
    client = await connect(streaming=False)
    # Now nobody else can read a card of this agent.
    await in_db(Agent.objects.filter(slug="echo").update, is_published=False)
    card = await client.get_extended_agent_card(pb.GetExtendedAgentCardRequest())

    assert (card.name, card.skills[0].id) == ("Echo", "echo")
