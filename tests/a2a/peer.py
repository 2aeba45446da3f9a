"""Another agent's program, as the tests need it: it speaks JSON-RPC to a server and reads what comes back."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from tests.support.waiting import PATIENCE, wait_until

_numbers = itertools.count(1)


class Peer:
    """Calls as one caller, in one protocol version. `slug` picks an agent; without it, the front door."""

    def __init__(self, url: str, key: str = "", version: str = "1.0", slug: str = "") -> None:
        self.path = f"/a2a/{slug}/" if slug else "/a2a/"
        headers = {"A2A-Version": version} if version else {}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self.http = httpx.Client(base_url=url, headers=headers, timeout=PATIENCE)

    def close(self) -> None:
        self.http.close()

    def post(self, body: Any, **kwargs: Any) -> httpx.Response:
        """Send any body: bytes as they are, everything else as JSON."""
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} | kwargs.pop("headers", {})
        return self.http.post(kwargs.pop("path", self.path), content=body, headers=headers, **kwargs)

    def call(self, method: str, params: Any = None, **kwargs: Any) -> dict[str, Any]:
        """The whole reply, checked to be a well-formed one with the id of the request."""
        request = envelope(method, params)
        response = self.post(request, **kwargs)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"] == "application/json"
        reply: dict[str, Any] = response.json()
        assert reply["jsonrpc"] == "2.0"
        assert reply["id"] == request["id"]
        assert ("result" in reply) != ("error" in reply)
        return reply

    def result(self, method: str, params: Any = None, **kwargs: Any) -> Any:
        reply = self.call(method, params, **kwargs)
        assert "result" in reply, reply
        return reply["result"]

    def error(self, method: str, params: Any = None, **kwargs: Any) -> dict[str, Any]:
        reply = self.call(method, params, **kwargs)
        assert "error" in reply, reply
        error: dict[str, Any] = reply["error"]
        return error

    def send(self, *parts: Any, **fields: Any) -> dict[str, Any]:
        """SendMessage; the task of the answer. `fields` are the message's; `configuration` is the request's."""
        task: dict[str, Any] = self.result("SendMessage", message(*parts, **fields))["task"]
        return task

    def submit(self, *parts: Any, **fields: Any) -> dict[str, Any]:
        """SendMessage that does not wait."""
        configuration = {"returnImmediately": True, **fields.pop("configuration", {})}
        return self.send(*parts, configuration=configuration, **fields)

    def send_and_go(self, params: dict[str, Any], is_there: Callable[[], object]) -> None:
        """SendMessage of a caller that hangs up as soon as `is_there()`: what it sent has come in, nothing is back."""
        request = self.http.build_request("POST", self.path, json=envelope("SendMessage", params))
        lines = [f"POST {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in request.headers.items()), "", ""]
        address = (request.url.host, request.url.port)
        with socket.create_connection(address, timeout=PATIENCE) as connection:
            connection.sendall("\r\n".join(lines).encode() + request.content)
            wait_until(is_there)

    @contextlib.contextmanager
    def stream(self, method: str, params: Any, headers: dict[str, str] | None = None) -> Iterator[Stream]:
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream", **(headers or {})}
        body = json.dumps(envelope(method, params)).encode()
        with self.http.stream("POST", self.path, content=body, headers=headers) as response:
            assert response.headers["content-type"] == "text/event-stream", response.read()
            yield Stream(response)


class Stream:
    """Server-sent events, one after the other: (id, result) of each."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.iter_lines()
        self._events = self._read()

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        return self._events

    def __next__(self) -> tuple[int, dict[str, Any]]:
        return next(self._events)

    def wait_for_heartbeat(self) -> None:
        """Read up to the next comment; there must be no event before it."""
        while True:
            line = next(self._lines)
            assert not line.startswith(("id", "data")), line
            if line.startswith(":"):
                return

    def _read(self) -> Iterator[tuple[int, dict[str, Any]]]:
        number = 0
        for line in self._lines:
            name, _, value = line.partition(": ")
            if name == "id":
                number = int(value)
            elif name == "data":
                yield number, json.loads(value)["result"]


def envelope(method: str, params: Any = None) -> dict[str, Any]:
    request = {"jsonrpc": "2.0", "id": next(_numbers), "method": method}
    return request if params is None else request | {"params": params}


def message(*parts: Any, configuration: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Params of SendMessage. A part is a string, or a part as ProtoJSON."""
    shaped = [{"text": part} if isinstance(part, str) else part for part in parts]
    params: dict[str, Any] = {
        "message": {"messageId": f"m-{next(_numbers)}", "role": "ROLE_USER", "parts": shaped, **fields}
    }
    return params | {"configuration": configuration} if configuration else params


def old_message(*parts: Any, configuration: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """The same in 0.3."""
    shaped = [{"kind": "text", "text": part} if isinstance(part, str) else part for part in parts]
    params: dict[str, Any] = {
        "message": {"kind": "message", "messageId": f"m-{next(_numbers)}", "role": "user", "parts": shaped, **fields}
    }
    return params | {"configuration": configuration} if configuration else params


def texts(stream_or_task: Any) -> list[str]:
    """The texts of all artifacts of a task."""
    return [part.get("text", "") for artifact in stream_or_task.get("artifacts", []) for part in artifact["parts"]]
