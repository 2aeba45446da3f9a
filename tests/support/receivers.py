"""A place that pushes go to: a real web server on loopback that keeps what it is sent."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.waiting import PATIENCE


@dataclass
class Received:
    """One request, as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """`answers` are the statuses of the next requests, then always 200; `hold` keeps requests waiting."""

    url: str = ""
    received: list[Received] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)

    def states(self) -> list[str]:
        """What arrived, in short: states, and "artifact"."""
        return [
            item["statusUpdate"]["status"]["state"].removeprefix("TASK_STATE_").lower()
            if "statusUpdate" in item
            else "artifact"
            for item in (each.json for each in self.received)
        ]


@contextlib.contextmanager
def receiver() -> Iterator[Receiver]:
    """Run one until the block ends."""
    found = Receiver()
    found.go_on.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.received.append(Received(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            found.go_on.wait(PATIENCE)
            status = found.answers.pop(0) if found.answers else 200
            with contextlib.suppress(OSError):
                self.send_response(status)
                self.send_header("Content-Length", "0")
                if 300 <= status < 400:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()

        def log_message(self, *_: object) -> None:
            """Not on the test's output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    try:
        yield found
    finally:
        found.go_on.set()
        server.shutdown()
        server.server_close()
