"""Remote agents for the tests: real servers on loopback, made of the SDK's parts, each doing one thing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
import uvicorn
from a2a.helpers.proto_helpers import (
    get_message_text,
    new_task_from_user_message,
    new_text_message,
    new_text_part,
)
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import AgentCard
from google.protobuf.json_format import ParseDict
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from uvicorn.server import ServerState

from tests.support.servers import hold_port
from tests.support.waiting import PATIENCE

T = TypeVar("T")
Scope = MutableMapping[str, Any]
App = Callable[[Scope, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]


class _Loop(threading.Thread):
    """One event loop for all these servers: a thread and a shutdown for each would cost a fifth of a second."""

    def __init__(self) -> None:
        super().__init__(name="remote agents", daemon=True)
        self.loop = asyncio.new_event_loop()
        self.start()

    def run(self) -> None:
        self.loop.run_forever()

    def wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE)


_loop: _Loop | None = None


@contextlib.contextmanager
def serve(app: App, **options: Any) -> Iterator[str]:
    """Run an ASGI application on a free port of 127.0.0.1, by uvicorn; yields its base URL, without a slash."""
    with _running(_Server(app, hold_port(), **options)) as server:
        yield server.url


class _Server:
    """An ASGI application on a port of its own, which it keeps when it is stopped and started again."""

    def __init__(self, app: App, holder: socket.socket, **options: Any) -> None:
        self._config = uvicorn.Config(app, log_level="critical", lifespan="off", **options)
        self._config.load()
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._holder = holder
        self.port = holder.getsockname()[1]
        self.url = f"{'https' if self._config.ssl else 'http'}://127.0.0.1:{self.port}"

    def start(self) -> None:
        global _loop
        if _loop is None:
            _loop = _Loop()
        _loop.wait_for(self._start(_listener(self.port)))

    def stop(self) -> None:
        assert _loop is not None
        _loop.wait_for(self._stop())

    def close(self) -> None:
        """Stop for good, and give up the port."""
        self.stop()
        self._holder.close()

    async def _start(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._protocol, sock=listener, ssl=self._config.ssl)

    def _protocol(self) -> asyncio.Protocol:
        return self._config.http_protocol_class(  # type: ignore[call-arg]
            config=self._config, server_state=self._state, app_state={}
        )

    async def _stop(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        # asyncio leaves a connection open for ever that was accepted just before its server is closed: so none more is
        # accepted, and those that were are made, first.
        for listener in server.sockets:
            asyncio.get_running_loop().remove_reader(listener.fileno())
        for _ in range(3):
            await asyncio.sleep(0)
        server.close()
        for connection in list(self._state.connections):
            connection.transport.abort()
        for task in list(self._state.tasks):
            task.cancel()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)
        await server.wait_closed()


@contextlib.contextmanager
def _running(server: _Server) -> Iterator[_Server]:
    server.start()
    try:
        yield server
    finally:
        server.close()


def _listener(port: int) -> socket.socket:
    # Named as TCP, or asyncio leaves Nagle's algorithm on and every answer takes 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener


# --- What the agents do --------------------------------------------------------------------------


class Executor(AgentExecutor):
    """Echoes. The others change one step of it."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        task = context.current_task
        if task is None:
            task = new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        await self.run(get_message_text(context.message), updater, is_first=context.current_task is None)

    async def run(self, text: str, updater: TaskUpdater, *, is_first: bool) -> None:
        await updater.add_artifact([new_text_part(text)], artifact_id="echo-1", name="echo", last_chunk=True)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id and context.context_id
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


class Talker(Executor):
    """Answers with a bare message; needs no task."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        await event_queue.enqueue_event(new_text_message(f"You said: {get_message_text(context.message)}"))


class Asker(Executor):
    """Asks for a name first, then greets."""

    async def run(self, text: str, updater: TaskUpdater, *, is_first: bool) -> None:
        if is_first:
            question = updater.new_agent_message([new_text_part("What is your name?")])
            await updater.requires_input(question)
            return
        await updater.add_artifact([new_text_part(f"Hello, {text}!")], name="greeting")
        await updater.complete()


class Slow(Executor):
    """Works until it is canceled or let go, and says so."""

    def __init__(self) -> None:
        # Set from the test's thread.
        self.release = threading.Event()

    async def run(self, text: str, updater: TaskUpdater, *, is_first: bool) -> None:
        await updater.start_work(updater.new_agent_message([new_text_part("Still working.")]))
        while not self.release.is_set():  # noqa: ASYNC110 - asyncio's own events are for one thread
            await asyncio.sleep(0.02)
        await super().run(text, updater, is_first=is_first)


class Chunky(Executor):
    """Streams its artifact in three chunks."""

    async def run(self, text: str, updater: TaskUpdater, *, is_first: bool) -> None:
        for number, word in enumerate(("one ", "two ", "three")):
            await updater.add_artifact(
                [new_text_part(word)],
                artifact_id="story-1",
                name="story",
                append=number > 0,
                last_chunk=number == 2,
            )
        await updater.complete()


class Teller(Executor):
    """Tells its story as the test gives it out: `words` one by one, None at its end."""

    def __init__(self) -> None:
        self.words: queue.Queue[str | None] = queue.Queue()

    async def run(self, text: str, updater: TaskUpdater, *, is_first: bool) -> None:
        number = 0
        while True:
            try:
                word = self.words.get_nowait()
            except queue.Empty:
                await asyncio.sleep(0.01)
                continue
            if word is None:
                return await updater.complete()
            await updater.add_artifact(
                [new_text_part(word)], artifact_id="story-1", name="story", append=number > 0, last_chunk=False
            )
            number += 1


class Guard(Executor):
    """Wants to know who it is first, and does not ask again."""

    async def run(self, text: str, updater: TaskUpdater, *, is_first: bool) -> None:
        if is_first:
            await updater.requires_auth(updater.new_agent_message([new_text_part("Show your badge.")]))
            return
        await super().run(text, updater, is_first=is_first)


class Refuser(Executor):
    """Rejects whatever it is asked."""

    async def run(self, text: str, updater: TaskUpdater, *, is_first: bool) -> None:
        await updater.reject(updater.new_agent_message([new_text_part("Not that.")]))


# --- How they are spoken to ----------------------------------------------------------------------

V1, V03 = "1.0", "0.3"
RPC, REST = "JSONRPC", "HTTP+JSON"
PATHS = {(RPC, V1): "/rpc", (RPC, V03): "/rpc03", (REST, V1): "/rest", (REST, V03): "/rest03"}


@dataclass
class RemoteAgent:
    """A running agent: its address, the card it serves (change it at will), and what it was asked."""

    url: str
    card: dict[str, Any]
    requests: list[dict[str, Any]] = field(default_factory=list)
    # Other JSON that it serves, by path.
    documents: dict[str, Any] = field(default_factory=dict)
    # Fails this many of the next calls with this status, whatever they are.
    failures: int = 0
    status: int = 500
    # Sends every call on to this address.
    redirect: str = ""
    _server: _Server | None = None

    @property
    def paths(self) -> list[str]:
        return [f"{request['method']} {request['path']}" for request in self.requests]

    def die(self) -> None:
        """Cut all connections and take no more; what it works on goes on."""
        assert self._server is not None
        self._server.stop()

    def come_back(self) -> None:
        """Listen again, at the same port."""
        assert self._server is not None
        self._server.start()


@contextlib.contextmanager
def remote_agent(
    executor: AgentExecutor | None = None,
    *,
    interfaces: tuple[tuple[str, str], ...] = ((RPC, V1),),
    card_paths: tuple[str, ...] = ("/.well-known/agent-card.json",),
    name: str = "Echo",
    key: str = "",
    capabilities: dict[str, Any] | None = None,
    port: int = 0,
    **card: Any,
) -> Iterator[RemoteAgent]:
    """An agent that speaks just these bindings and versions; its card is in the form of its first version.

    With `key`, every call but that of the card needs it in X-API-Key (or as a bearer token).
    """
    holder = hold_port(port)
    url = f"http://127.0.0.1:{holder.getsockname()[1]}"
    capabilities = {"streaming": True} | (capabilities or {})
    make = _card_1_0 if interfaces[0][1] == V1 else _card_0_3
    agent = RemoteAgent(url, make(url, name, interfaces, capabilities, key) | card)
    handler = _handler(executor or Executor(), _card_1_0(url, name, interfaces, capabilities, key))
    app = Starlette(
        routes=[
            *(Route(path, _card_endpoint(agent)) for path in card_paths),
            *_protocol_routes(handler, interfaces),
            Route("/{path:path}", _document_endpoint(agent)),
        ]
    )
    agent._server = _Server(_watched(agent, app, key, card_paths), holder)
    with _running(agent._server):
        yield agent
    assert _loop is not None
    # What it still works on would take its time from all tests that follow.
    _loop.wait_for(handler.aclose())


def skill(number: int = 1, **fields: Any) -> dict[str, Any]:
    """A skill as cards write it."""
    return {
        "id": f"echo-{number}",
        "name": f"Echo {number}",
        "description": "Repeats what it is told.",
        "tags": ["echo"],
        "examples": ["Repeat this"],
    } | fields


def _card_1_0(url: str, name: str, interfaces: Any, capabilities: Any, key: str) -> dict[str, Any]:
    card: dict[str, Any] = {
        "name": name,
        "description": "Repeats the message.",
        "version": "1.0.0",
        "supportedInterfaces": [
            {"url": f"{url}{PATHS[pair]}", "protocolBinding": pair[0], "protocolVersion": pair[1]}
            for pair in interfaces
        ],
        "capabilities": capabilities,
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [skill()],
    }
    if key:
        card["securitySchemes"] = {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}}
        card["securityRequirements"] = [{"schemes": {"key": {"list": []}}}]
    return card


def _card_0_3(url: str, name: str, interfaces: Any, capabilities: Any, key: str) -> dict[str, Any]:
    card: dict[str, Any] = {
        "protocolVersion": "0.3.0",
        "name": name,
        "description": "Repeats the message.",
        "version": "1.0.0",
        "url": f"{url}{PATHS[interfaces[0]]}",
        "preferredTransport": interfaces[0][0],
        "additionalInterfaces": [{"url": f"{url}{PATHS[pair]}", "transport": pair[0]} for pair in interfaces[1:]],
        "capabilities": capabilities,
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [skill()],
    }
    if key:
        card["securitySchemes"] = {"key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}}
        card["security"] = [{"key": []}]
    return card


def _card_endpoint(agent: RemoteAgent) -> Callable[[Request], Awaitable[Response]]:
    async def card(request: Request) -> Response:
        body = json.dumps(agent.card).encode()
        etag = f'"{hash(body)}"'
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers={"ETag": etag})
        return Response(body, media_type="application/json", headers={"ETag": etag})

    return card


def _document_endpoint(agent: RemoteAgent) -> Callable[[Request], Awaitable[Response]]:
    async def document(request: Request) -> Response:
        found = agent.documents.get(request.url.path)
        return Response(status_code=404) if found is None else JSONResponse(found)

    return document


def _handler(executor: AgentExecutor, card: dict[str, Any]) -> DefaultRequestHandler:
    configs = InMemoryPushNotificationConfigStore()
    push = card["capabilities"].get("pushNotifications")
    handler = DefaultRequestHandler(
        agent_executor=executor,
        task_store=InMemoryTaskStore(),
        # What it goes by; what it serves may say otherwise.
        agent_card=ParseDict(card, AgentCard()),
        push_config_store=configs if push else None,
        push_sender=BasePushNotificationSender(_plain_client(), configs) if push else None,
    )
    _kept.append(handler)
    return handler


def _protocol_routes(handler: DefaultRequestHandler, interfaces: tuple[tuple[str, str], ...]) -> list[Any]:
    # Importable only when the module of routes has been: they import each other.
    from a2a.compat.v0_3.rest_adapter import REST03Adapter

    routes: list[Any] = []
    for pair in interfaces:
        path = PATHS[pair]
        match pair:
            case ("JSONRPC", "1.0"):
                routes += create_jsonrpc_routes(handler, path)
            case ("JSONRPC", _):
                routes.append(Route(path, _rpc_0_3(handler), methods=["POST"]))
            case (_, "1.0"):
                routes.append(Mount(path, routes=create_rest_routes(handler)))
            case _:
                older = REST03Adapter(handler).routes()
                routes.append(
                    Mount(path, routes=[Route(at, point, methods=[verb]) for (at, verb), point in older.items()])
                )
    return routes


# A task that has not ended would otherwise be collected in some other thread, and wait there for a lock of its own.
_kept: list[DefaultRequestHandler] = []


def _plain_client() -> httpx.AsyncClient:
    """Nobody closes it, so it keeps no connection."""
    return httpx.AsyncClient(trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))


def _rpc_0_3(handler: DefaultRequestHandler) -> Callable[[Request], Awaitable[Response]]:
    from a2a.compat.v0_3.jsonrpc_adapter import JSONRPC03Adapter

    adapter = JSONRPC03Adapter(handler)

    async def endpoint(request: Request) -> Response:
        try:
            body = await request.json()
        except ValueError:
            return JSONResponse({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error"}})
        method = str(body.get("method"))
        if not adapter.supports_method(method):
            error = {"code": -32601, "message": "Method not found"}
            return JSONResponse({"jsonrpc": "2.0", "id": body.get("id"), "error": error})
        return await adapter.handle_request(body.get("id"), method, body, request)

    return endpoint


def _watched(agent: RemoteAgent, app: App, key: str, card_paths: tuple[str, ...]) -> App:
    """Notes every request, asks for the key, and fails when it is told to."""

    async def watched(scope: Scope, receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        agent.requests.append({"method": scope["method"], "path": scope["path"], "headers": headers})
        given = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if agent.failures and scope["path"] not in card_paths:
            agent.failures -= 1
            await Response(status_code=agent.status)(scope, receive, send)
        elif agent.redirect and scope["path"] not in card_paths:
            await Response(status_code=307, headers={"Location": agent.redirect})(scope, receive, send)
        elif key and given != key and scope["path"] not in card_paths:
            await Response(status_code=401, headers={"WWW-Authenticate": "Bearer"})(scope, receive, send)
        else:
            await app(scope, receive, send)

    return watched
