"""A client that is closed while its task is being stopped: every connection of it ends all the same."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from directory import http


@pytest.fixture(autouse=True)
def loopback_allowed(settings):
    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8",)


class Server:
    """Answers once two have asked, so that a client has two connections."""

    def __init__(self) -> None:
        self.both = asyncio.Barrier(2)
        self.ended: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await self.both.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        self.ended.put_nowait(await reader.read())
        writer.close()


@asynccontextmanager
async def running():
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    async with listening:
        yield server, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"


@pytest.mark.parametrize("steps", range(1, 6))
@pytest.mark.parametrize("as_manager", [True, False], ids=["by the block", "by aclose"])
async def test_a_stop_while_it_closes_leaves_no_connection(steps, as_manager):
    async with running() as (server, url):
        client = http.open_client()
        await client.__aenter__()
        await asyncio.gather(http.fetch(client, "GET", url), http.fetch(client, "GET", url))
        closing = asyncio.create_task(client.__aexit__() if as_manager else client.aclose())
        for _ in range(steps):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        async with asyncio.timeout(10):
            assert [await server.ended.get(), await server.ended.get()] == [b"", b""]
