"""The A2A client against servers that speak one binding of one version each, and do one thing each."""

import asyncio

import pytest
from a2a.types import Message
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from directory.credentials import Secret
from directory.exceptions import (
    AccessDenied,
    OperationNotSupported,
    RemoteError,
    RemoteTaskNotCancelable,
    RemoteTaskNotFound,
    ServerFailed,
)
from directory.wire import (
    Outgoing,
    Push,
    RemoteMessage,
)
from tests.directory.clients import client_of, hello
from tests.support.remote_agents import (
    REST,
    RPC,
    V03,
    V1,
    Asker,
    Chunky,
    Executor,
    Refuser,
    Slow,
    Talker,
    remote_agent,
    serve,
)

EVERY = [(RPC, V1), (REST, V1), (RPC, V03), (REST, V03)]
every_interface = pytest.mark.parametrize("interface", EVERY, ids=lambda pair: f"{pair[0]}-{pair[1]}")


def agent_with(executor, interface, **options):
    return remote_agent(executor, interfaces=(interface,), **options)


@every_interface
async def test_it_sends_and_waits(interface):
    with agent_with(Executor(), interface) as agent:
        async with await client_of(agent) as client:
            task = await client.send(hello(), wait=True)
    assert (task.state, task.is_settled) == ("completed", True)
    assert task.parts == [{"text": "hello"}]
    assert task.artifacts[0]["name"] == "echo"
    assert task.history[0]["role"] == "user"
    assert task.status_at.tzinfo


@every_interface
async def test_it_sends_and_returns_at_once_then_gets_and_cancels(interface):
    with agent_with(Slow(), interface) as agent:
        async with await client_of(agent) as client:
            task = await client.send(hello())
            assert task.state in {"submitted", "working"}
            assert (await client.get(task.id)).id == task.id
            canceled = await client.cancel(task.id)
            assert canceled.state == "canceled"
            with pytest.raises(RemoteTaskNotCancelable):
                await client.cancel(task.id)


@every_interface
async def test_a_task_that_is_not_there_is_not_found(interface):
    with agent_with(Executor(), interface) as agent:
        async with await client_of(agent) as client:
            with pytest.raises(RemoteTaskNotFound) as caught:
                await client.get("6f9619ff-8b86-d011-b42d-00cf4fc964ff")
            with pytest.raises(RemoteTaskNotFound):
                await client.cancel("6f9619ff-8b86-d011-b42d-00cf4fc964ff")
    assert not caught.value.can_retry
    assert not caught.value.is_fault


@every_interface
async def test_it_streams(interface):
    with agent_with(Chunky(), interface) as agent:
        async with await client_of(agent) as client:
            events = [event async for event in client.stream(hello())]
    chunks = [event for event in events if event.kind == "artifact"]
    assert [chunk.artifact["parts"][0]["text"] for chunk in chunks] == ["one ", "two ", "three"]
    assert [chunk.append for chunk in chunks] == [False, True, True]
    last = events[-1].task
    assert last.state == "completed"
    assert last.parts == [{"text": "one two three"}]


@every_interface
async def test_a_question_is_answered_in_the_same_task(interface):
    with agent_with(Asker(), interface) as agent:
        async with await client_of(agent) as client:
            asking = await client.send(hello(), wait=True)
            assert (asking.state, asking.message["parts"]) == ("input-required", [{"text": "What is your name?"}])
            answer = hello("Ada", task_id=asking.id, context_id=asking.context_id)
            events = [event async for event in client.stream(answer)]
    assert events[-1].task.id == asking.id
    assert events[-1].task.state == "completed"
    assert events[-1].task.parts == [{"text": "Hello, Ada!"}]


@every_interface
async def test_a_bare_message_is_an_answer(interface):
    with agent_with(Talker(), interface) as agent:
        async with await client_of(agent) as client:
            answer = await client.send(hello(), wait=True)
            events = [event async for event in client.stream(hello())]
    assert isinstance(answer, RemoteMessage)
    assert answer.parts == [{"text": "You said: hello"}]
    assert [(event.kind, event.task) for event in events] == [("message", None)]


@every_interface
async def test_a_refusal_comes_with_its_reason(interface):
    with agent_with(Refuser(), interface) as agent:
        async with await client_of(agent) as client:
            task = await client.send(hello(), wait=True)
    assert (task.state, task.parts) == ("rejected", [{"text": "Not that."}])


@every_interface
async def test_files_and_data_travel_both_ways(interface):
    class Mirror(Executor):
        async def execute(self, context, event_queue):
            from a2a.types import Role

            message = Message(role=Role.ROLE_AGENT, message_id="back", parts=context.message.parts)
            await event_queue.enqueue_event(message)

    parts = [
        {"text": "see"},
        {"data": {"answer": 42, "list": [1.5, None, True]}},
        {"raw": "aGVsbG8=", "filename": "a.txt", "mediaType": "text/plain"},
        {"url": "https://files.example/a.txt", "filename": "a.txt", "mediaType": "text/plain"},
    ]
    with agent_with(Mirror(), interface) as agent:
        async with await client_of(agent) as client:
            answer = await client.send(Outgoing(parts, message_id="m-1"), wait=True)
    assert answer.parts == parts


@pytest.mark.parametrize("interface", [(RPC, V1), (REST, V1)])
async def test_it_lists(interface):
    with agent_with(Executor(), interface) as agent:
        async with await client_of(agent) as client:
            first = await client.send(hello(), wait=True)
            second = await client.send(hello(context_id=first.context_id), wait=True)
            await client.send(hello(), wait=True)
            found, _ = await client.list_tasks(context_id=first.context_id)
            page, token = await client.list_tasks(limit=1)
    assert {task.id for task in found} == {first.id, second.id}
    assert len(page) == 1
    assert token


@pytest.mark.parametrize("interface", [(RPC, V03), (REST, V03)])
async def test_0_3_has_no_list(interface):
    with agent_with(Executor(), interface) as agent:
        async with await client_of(agent) as client:
            with pytest.raises(OperationNotSupported):
                await client.list_tasks()


@every_interface
async def test_follow_hears_of_the_end(interface):
    slow = Slow()
    with agent_with(slow, interface) as agent:
        async with await client_of(agent) as client:
            task = await client.send(hello())
            events = []
            async for event in client.follow(task):
                events.append(event)
                slow.release.set()
    assert events[-1].task.state == "completed"
    assert events[-1].task.parts == [{"text": "hello"}]


async def test_follow_asks_where_there_is_no_stream():
    slow = Slow()
    with remote_agent(slow, capabilities={"streaming": False}) as agent:
        async with await client_of(agent) as client:
            task = await client.send(hello())
            slow.release.set()
            events = [event async for event in client.follow(task, poll=(0.01, 0.05))]
    assert events[-1].task.state == "completed"
    assert {event.kind for event in events} == {"task"}


async def test_follow_takes_a_broken_stream_up_again():
    slow = Slow()
    with agent_with(slow, (REST, V1)) as agent:
        async with await client_of(agent) as client:
            task = await client.send(hello())
            agent.failures = 2
            slow.release.set()
            events = [event async for event in client.follow(task, poll=(0.01, 0.05))]
    assert agent.failures == 0
    assert events[-1].task.state == "completed"


async def test_follow_gives_up_when_it_keeps_failing():
    with agent_with(Slow(), (RPC, V1)) as agent:
        async with await client_of(agent) as client:
            task = await client.send(hello())
            agent.failures = 1000
            with pytest.raises(ServerFailed):
                async for _ in client.follow(task, poll=(0.01, 0.01)):
                    pass
            agent.failures = 0
            await client.cancel(task.id)


async def test_follow_of_a_task_that_ended_meanwhile():
    slow = Slow()
    with agent_with(slow, (RPC, V1)) as agent:
        async with await client_of(agent) as client:
            task = await client.send(hello())
            await client.cancel(task.id)
            events = [event async for event in client.follow(task)]
            assert [event.task.state for event in events] == ["canceled"]
            assert [event async for event in client.follow(events[-1].task)] == []


@pytest.mark.parametrize("interface", [(RPC, V1), (REST, V1), (RPC, V03)])
async def test_it_asks_to_be_told(interface):
    heard = []

    async def callback(request):
        heard.append((request.headers, await request.json()))
        return Response()

    app = Starlette(routes=[Route("/heard", callback, methods=["POST"])])
    slow = Slow()
    with serve(app) as ours, agent_with(slow, interface, capabilities={"pushNotifications": True}) as agent:
        async with await client_of(agent) as client:
            assert client.target.pushes
            task = await client.send(hello(), push=Push(f"{ours}/heard", token="t0ken"))
            assert await client.set_push(task.id, Push(f"{ours}/heard", token="t0ken"))
            slow.release.set()
            async for _ in client.follow(task):
                pass
    assert heard
    assert heard[-1][0]["x-a2a-notification-token"] == "t0ken"


async def test_a_credential_lets_it_in():
    with remote_agent(key="s3cret") as agent:
        async with await client_of(agent) as client:
            with pytest.raises(AccessDenied) as caught:
                await client.send(hello())
        async with await client_of(agent, Secret("api_key", "s3cret")) as client:
            assert (await client.send(hello(), wait=True)).state == "completed"
    assert not caught.value.can_retry


# --- Reports -------------------------------------------------------------------------------------


async def test_each_call_is_reported():
    reports = []
    with remote_agent() as agent:
        async with await client_of(agent, on_call=reports.append) as client:
            await client.send(hello(), wait=True)
            async for _ in client.stream(hello()):
                pass
            with pytest.raises(RemoteTaskNotFound):
                await client.get("nothing")
            agent.failures = 1
            with pytest.raises(RemoteError):
                await client.send(hello())
    assert [report.operation for report in reports] == ["send", "stream", "get", "send"]
    assert [type(report.error) for report in reports] == [type(None), type(None), RemoteTaskNotFound, ServerFailed]
    assert all(report.seconds > 0 for report in reports)


async def test_a_canceled_call_is_nobodys_fault():
    reports = []
    with remote_agent(Slow()) as agent:
        async with await client_of(agent, on_call=reports.append) as client:
            asking = asyncio.create_task(client.send(hello(), wait=True))
            done, _ = await asyncio.wait([asking], timeout=0.2)
            assert not done
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
    assert reports == []
