"""The A2A client against servers that do it wrong: odd answers, odd streams, too much, too slow, nobody there."""

import asyncio

import pytest
from a2a.types import Artifact, Message, Part, Task, TaskStatus
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from directory import remote
from directory.cards import Interface
from directory.exceptions import (
    AccessDenied,
    AddressRefused,
    ConnectionLost,
    InvalidAnswer,
    OperationNotSupported,
    ProtocolError,
    RedirectRefused,
    RemoteTaskNotCancelable,
    RemoteTaskNotFound,
    RequestRefused,
    ServerFailed,
    Throttled,
    TimedOut,
    Unreachable,
    VersionNotSupported,
)
from directory.remote import RemoteClient, Target
from directory.wire import (
    MOST_ARTIFACTS,
    MOST_MESSAGES,
    MOST_PARTS,
    Outgoing,
    Push,
    RemoteTask,
    task_from,
)
from tests.directory.clients import client_of, hello
from tests.support.remote_agents import (
    REST,
    RPC,
    V03,
    V1,
    Chunky,
    Slow,
    remote_agent,
    serve,
)


def target(url, interface=(RPC, V1), *, streaming=True):
    card = {"name": "Odd", "capabilities": {"streaming": streaming}}
    return Target("odd", Interface(url, *interface), card, is_internal=True)


def answering(make):
    async def endpoint(request):
        return await make(request) if asyncio.iscoroutinefunction(make) else make(request)

    return serve(Starlette(routes=[Route("/{path:path}", endpoint, methods=["GET", "POST", "DELETE"])]))


def rpc_error(code, message="no"):
    return lambda request: JSONResponse({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": message}})


def rpc_result(result):
    return lambda request: JSONResponse({"jsonrpc": "2.0", "id": 1, "result": result})


TASK = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}
CASES = {
    "task not found": (rpc_error(-32001), RemoteTaskNotFound),
    "not cancelable": (rpc_error(-32002), RemoteTaskNotCancelable),
    "no such method": (rpc_error(-32601), OperationNotSupported),
    "bad params": (rpc_error(-32602), RequestRefused),
    "its own fault": (rpc_error(-32603), ServerFailed),
    "not this version": (rpc_error(-32009), VersionNotSupported),
    "an error of its own": (rpc_error(-31999), ProtocolError),
    "HTTP 500": (lambda request: PlainTextResponse("x", 500), ServerFailed),
    "HTTP 429": (lambda request: PlainTextResponse("x", 429, headers={"Retry-After": "3"}), Throttled),
    "HTTP 401": (lambda request: PlainTextResponse("x", 401), AccessDenied),
    "a redirect inside": (
        lambda request: Response(status_code=307, headers={"Location": "http://169.254.169.254/"}),
        RedirectRefused,
    ),
    "HTML": (lambda request: PlainTextResponse("<html>"), InvalidAnswer),
    "no object": (lambda request: JSONResponse([1, 2]), InvalidAnswer),
    "no result": (lambda request: JSONResponse({"jsonrpc": "2.0", "id": 1}), InvalidAnswer),
    "neither task nor message": (rpc_result({}), InvalidAnswer),
    "a result of the wrong type": (rpc_result({"task": "yes"}), InvalidAnswer),
    "a task without id": (rpc_result({"task": {"status": {"state": "TASK_STATE_WORKING"}}}), InvalidAnswer),
    "a task with an endless id": (rpc_result({"task": TASK | {"id": "x" * 300}}), InvalidAnswer),
    "deep nesting": (
        rpc_result({"task": TASK | {"metadata": {"a": [[[[[[[[[[]]]]]]]]]] * 1}}}),
        None,
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_odd_answers_become_errors(case):
    make, error = CASES[case]
    with answering(make) as url:
        async with RemoteClient(target(url)) as client:
            if error is None:
                assert (await client.send(hello())).id == "t"
                return
            with pytest.raises(error) as caught:
                await client.send(hello())
    assert type(caught.value) is error


@pytest.mark.parametrize("task_id", ["../../admin", "a/b", "..", "a?b=c", "a#b", "a%2fb", "a b", "a\\b"])
async def test_an_id_does_not_lead_to_another_place(task_id):
    """With REST it is part of the path, which our credential goes along with."""
    with remote_agent(interfaces=((REST, V1),)) as agent:
        async with await client_of(agent) as client:
            agent.requests.clear()
            for call in (client.get(task_id), client.cancel(task_id), client.set_push(task_id, Push("http://x/"))):
                with pytest.raises(InvalidAnswer):
                    await call
            with pytest.raises(InvalidAnswer):
                async for _ in client.subscribe(RemoteTask(task_id, "c", "working")):
                    pass
        assert not agent.requests


def status(code, document=None):
    return lambda request: JSONResponse(document, code) if document is not None else PlainTextResponse("x", code)


REST_CASES = {
    "bare 404": (status(404), RemoteTaskNotFound),
    "404 with 0.3's message": (status(404, {"message": "Task not found"}), RemoteTaskNotFound),
    "409 with 0.3's message": (status(409, {"message": "Too late"}), RemoteTaskNotCancelable),
    "405": (status(405), OperationNotSupported),
    "501": (status(501, {"message": "No"}), OperationNotSupported),
    "400 with 1.0's reason": (
        status(400, {"error": {"code": 400, "details": [{"@type": "x", "reason": "TASK_NOT_CANCELABLE"}]}}),
        RemoteTaskNotCancelable,
    ),
    "400": (status(400, {"error": [1]}), InvalidAnswer),
    "418": (status(418, [1]), InvalidAnswer),
    "500": (status(500, {"message": "Ouch"}), ServerFailed),
}


@pytest.mark.parametrize("version", [V1, V03])
@pytest.mark.parametrize("case", REST_CASES)
async def test_failing_statuses_of_rest_become_errors(case, version):
    make, error = REST_CASES[case]
    with answering(make) as url:
        async with RemoteClient(target(url, (REST, version))) as client:
            with pytest.raises(error) as caught:
                await client.cancel("t")
    assert type(caught.value) is error
    if "message" in case:
        assert str(caught.value).startswith("The remote agent says: T")


async def test_a_404_of_json_rpc_is_no_word_about_the_task():
    with answering(status(404)) as url:
        async with RemoteClient(target(url)) as client:
            with pytest.raises(InvalidAnswer):
                await client.get("t")


def deep(levels):
    value = "end"
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize("interface", [(RPC, V1), (RPC, V03)])
async def test_nesting_without_end_is_refused(interface):
    task = TASK | {"metadata": deep(90), "kind": "task"}
    if interface[1] == V03:
        task["status"] = {"state": "working"}
    result = {"task": task} if interface[1] == V1 else task
    with answering(rpc_result(result)) as url:
        async with RemoteClient(target(url, interface)) as client:
            with pytest.raises(InvalidAnswer):
                await client.send(hello())


async def test_text_that_no_database_keeps_is_mended():
    message = {"messageId": "m\x00", "role": "ROLE_AGENT", "parts": [{"text": "a\x00b"}]}
    with answering(rpc_result({"message": message})) as url:
        async with RemoteClient(target(url)) as client:
            answer = await client.send(hello())
    assert answer.parts == [{"text": "a\ufffdb"}]
    assert answer.message["messageId"] == "m\ufffd"


async def test_an_error_message_is_cleaned_and_cut():
    with answering(rpc_error(-32602, "\u202eIgnore\n" + "x" * 9000)) as url:
        async with RemoteClient(target(url)) as client:
            with pytest.raises(RequestRefused) as caught:
                await client.send(hello())
    assert len(str(caught.value)) < 300
    assert "\u202e" not in str(caught.value)


async def test_a_slow_server_is_given_up():
    async def never(request):
        await asyncio.sleep(60)

    with answering(never) as url:
        async with RemoteClient(target(url), seconds=1.0) as client:
            with pytest.raises(TimedOut) as caught:
                await client.send(hello())
    assert caught.value.may_have_arrived


async def test_a_server_that_drips_is_given_up():
    async def drip(request):
        async def chunks():
            while True:
                yield b" "
                await asyncio.sleep(0.05)

        return StreamingResponse(chunks(), media_type="application/json")

    with answering(drip) as url:
        async with RemoteClient(target(url), seconds=1.0) as client:
            with pytest.raises(TimedOut):
                await client.send(hello())


async def test_nobody_there():
    async with RemoteClient(target("http://127.0.0.1:1/")) as client:
        with pytest.raises(Unreachable) as caught:
            await client.send(hello())
    assert not caught.value.may_have_arrived


async def test_a_public_agent_is_not_let_lead_inside(settings):
    """Its name may lead to loopback by now, which the allowlist allows to others."""
    with answering(rpc_error(-32001)) as url:
        inside = Target("odd", Interface(url, RPC, V1), {"name": "Odd"}, is_internal=False)
        async with RemoteClient(inside) as client:
            with pytest.raises(AddressRefused):
                await client.send(hello())


def sse(*documents, then=None):
    async def endpoint(request):
        async def chunks():
            import json

            for document in documents:
                yield b"data: " + json.dumps({"jsonrpc": "2.0", "id": 1, "result": document}).encode() + b"\n\n"
            if then:
                raise then

        return StreamingResponse(chunks(), media_type="text/event-stream")

    return endpoint


WORKING = {"task": TASK}
STREAMS = {
    "ends at once": (sse(), ConnectionLost),
    "dies in the middle": (sse(WORKING, then=ConnectionError("as it should")), ConnectionLost),
    "speaks of another task": (
        sse(WORKING, {"statusUpdate": {"taskId": "other", "status": {"state": "TASK_STATE_COMPLETED"}}}),
        InvalidAnswer,
    ),
    "says nothing": (sse({}), InvalidAnswer),
    "an artifact without id": (sse(WORKING, {"artifactUpdate": {"taskId": "t", "artifact": {}}}), InvalidAnswer),
}


@pytest.mark.parametrize("case", STREAMS)
async def test_odd_streams_become_errors(case):
    make, error = STREAMS[case]
    with answering(make) as url:
        async with RemoteClient(target(url)) as client:
            with pytest.raises(error):
                async for _ in client.stream(hello()):
                    pass


async def test_a_silent_stream_is_given_up():
    async def silent(request):
        async def chunks():
            yield b": still here\n\n"
            await asyncio.sleep(60)

        return StreamingResponse(chunks(), media_type="text/event-stream")

    with answering(silent) as url:
        async with RemoteClient(target(url), idle_seconds=1.0) as client:
            with pytest.raises(TimedOut):
                async for _ in client.stream(hello()):
                    pass


async def test_a_stream_that_its_reader_leaves_is_closed():
    slow = Slow()
    with remote_agent(slow) as agent:
        async with await client_of(agent) as client:
            stream = client.stream(hello())
            first = await anext(stream)
            await stream.aclose()
            await client.cancel(first.task.id)


@pytest.mark.parametrize("parts", [[{"text": 7}], [{"words": "x"}], [{"file": "some-id"}]])
async def test_parts_that_are_not_a2a_are_refused_before_anything_is_sent(parts):
    with remote_agent() as agent:
        async with await client_of(agent) as client:
            agent.requests.clear()
            with pytest.raises(ValueError, match="A2A message"):
                await client.send(Outgoing(parts, message_id="m"))
        assert not agent.requests


def part():
    return Part(text="x")


def test_of_a_long_history_the_newest_is_looked_at():
    history = [Message(message_id=str(number), parts=[part()]) for number in range(MOST_MESSAGES + 2)]
    found = task_from(Task(id="1", history=history)).history
    assert (len(found), found[0]["messageId"], found[-1]["messageId"]) == (MOST_MESSAGES, "2", str(MOST_MESSAGES + 1))


@pytest.mark.parametrize(
    "task",
    [
        Task(artifacts=[Artifact(artifact_id=str(number), parts=[part()]) for number in range(MOST_ARTIFACTS + 1)]),
        Task(artifacts=[Artifact(artifact_id="1", parts=[part()] * (MOST_PARTS + 1))]),
        Task(status=TaskStatus(message=Message(message_id="1", parts=[part()] * (MOST_PARTS + 1)))),
    ],
)
def test_what_nobody_has_a_use_for_is_refused(task):
    task.id = "1"
    with pytest.raises(InvalidAnswer, match="has more than"):
        task_from(task)


async def test_a_stream_in_too_many_pieces_is_left(monkeypatch):
    with remote_agent(Chunky()) as agent:
        async with await client_of(agent) as client:
            assert [event.kind async for event in client.stream(hello())].count("artifact") == 3
            monkeypatch.setattr(remote, "MOST_WORK", 3 * remote.EVENT_WORK)
            with pytest.raises(InvalidAnswer, match="too many events"):
                _ = [event async for event in client.stream(Outgoing([{"text": "go"}], message_id="m-2"))]
