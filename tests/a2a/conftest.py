"""A web server in this process, agents, callers with keys, and a worker that works when it is told to."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import uvicorn
from httpx._config import DEFAULT_TIMEOUT_CONFIG

from tests.a2a.peer import Peer
from tests.support.servers import answers_http
from tests.support.waiting import PATIENCE, wait_until


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that names no time would wait five seconds, which a busy machine may take."""
    for name in ("connect", "read", "write", "pool"):
        monkeypatch.setattr(DEFAULT_TIMEOUT_CONFIG, name, PATIENCE)


@pytest.fixture(scope="session")
def _server(django_db_setup: None, valkey_server: str) -> Iterator[str]:
    """The ASGI application on uvicorn, in a thread, so that tests can change settings under it."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    config = uvicorn.Config(
        "bureau.asgi:application",
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        # Longer than a client keeps a connection: it never asks on one that is just being closed.
        timeout_keep_alive=600,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=[[listener]], name="web")
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    wait_until(lambda: answers_http(f"{url}/healthz"), what="the web server")
    yield url
    server.should_exit = server.force_exit = True
    thread.join(60)


@pytest.fixture
def url(_server: str, valkey: str, transactional_db: None, settings: Any) -> Iterator[str]:
    """The address of the server, with the agents that come with Bureau and nothing else in its database."""
    from agents.seeding import seed
    from bureau.a2a.authentication import forget_keys
    from directory.services import forget_agents

    settings.BUREAU_PUBLIC_URL = _server
    forget_keys()
    forget_agents()
    seed()
    yield _server
    forget_keys()
    forget_agents()


@pytest.fixture
def make_key(url: str) -> Callable[[str], str]:
    """A new API client's key."""
    from directory.services import create_api_client

    return lambda name: create_api_client(name)[1]


@pytest.fixture
def as_peer(url: str, make_key: Callable[[str], str]) -> Iterator[Callable[..., Peer]]:
    """`as_peer("alice", version="0.3", slug="echo")`: a caller with a key of its own."""
    keys: dict[str, str] = {}
    with contextlib.ExitStack() as stack:

        def make(name: str, **kwargs: Any) -> Peer:
            if name not in keys:
                keys[name] = make_key(name)
            peer = Peer(url, keys[name], **kwargs)
            stack.callback(peer.close)
            return peer

        yield make


@pytest.fixture
def alice(as_peer: Callable[..., Peer]) -> Peer:
    """She owns what the tests make; she talks to the echo agent."""
    return as_peer("alice", slug="echo")


@pytest.fixture
def bob(as_peer: Callable[..., Peer]) -> Peer:
    """He may see nothing of hers."""
    return as_peer("bob", slug="echo")


@pytest.fixture
def worker(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A worker that takes what is due as soon as the bell rings, as a thread of this process."""
    from django.db import connections

    from agents.runtime import drain
    from tasks import doorbell

    rung = threading.Event()
    is_over = threading.Event()
    for name in ("ring", "ring_again", "call_for_help"):
        monkeypatch.setattr(doorbell, name, lambda queue: rung.set())

    def work() -> None:
        while not is_over.is_set():
            rung.wait()
            rung.clear()
            drain("default")
        connections.close_all()

    thread = threading.Thread(target=work, name="worker")
    thread.start()
    rung.set()
    yield
    is_over.set()
    rung.set()
    thread.join(60)


@pytest.fixture
def take(url: str) -> Callable[[], Any]:
    """Be the worker: the claim on the task that is due next."""
    from tasks.claims import claim_next

    return lambda: wait_until(lambda: claim_next("default", "test-worker"), what="a task that is due")


@pytest.fixture
def meanwhile() -> Iterator[Callable[..., Future[Any]]]:
    """`meanwhile(alice.send, "hello")`: a call that waits, in another thread."""
    with ThreadPoolExecutor(4) as pool:
        yield pool.submit
