"""The servers of these tests themselves: what they leave behind would fail some other test."""

import asyncio
import gc
import socket

from starlette.responses import PlainTextResponse

from tests.support import remote_agents
from tests.support.servers import hold_port
from tests.support.waiting import PATIENCE


async def app(scope, receive, send):
    await PlainTextResponse("hello")(scope, receive, send)


def test_a_server_that_is_stopped_as_somebody_connects_leaves_nothing_open():
    server = remote_agents._Server(app, hold_port())
    server.start()

    async def connect_and_stop():
        client.connect(("127.0.0.1", server.port))
        # Accepted by then, and nobody has been told.
        for _ in range(2):
            await asyncio.sleep(0)
        await server._stop()

    with socket.socket() as client:
        client.settimeout(PATIENCE)
        try:
            remote_agents._loop.wait_for(connect_and_stop())
        finally:
            server.close()
        assert client.recv(1) == b""
    gc.collect()


def test_a_port_that_is_held_is_for_who_names_it():
    with hold_port() as holder:
        address = holder.getsockname()
        for _ in range(2):
            with socket.create_server(address), socket.create_connection(address):
                pass
        with socket.socket() as other:
            assert other.connect_ex(address) != 0
