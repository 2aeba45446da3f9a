"""A server that speaks the Messages API and says what its script says; for tests, and for trying things by hand.

    python -m tests.support.messages_api --port 8787 [--script replies.json]
    ANTHROPIC_BASE_URL=http://127.0.0.1:8787 make run

A script is a list of replies (see `Reply`; in a file, JSON objects of the same fields). For each request the
first reply that matches and is not used up is given; when none is left, the server makes one up from the
request in a few plain ways (`improvise`). It is as strict as the real server about what is sent to it.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FAULTS = ("", "hang", "hang_midway", "disconnect", "disconnect_midway", "overloaded_midway", "malformed", "garbled")
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}
# What the API refuses in a schema; the SDK moves such limits into descriptions.
UNKNOWN_IN_SCHEMAS = ("minimum", "maximum", "minLength", "maxLength", "multipleOf", "maxItems", "pattern", "oneOf")
CHUNK = 24


@dataclass
class Reply:
    """One scripted reply. `match` is searched for in the whole request; `times` 0 means always.

    `fault`: hang (no answer at all), hang_midway, disconnect, disconnect_midway, overloaded_midway (an error
    event within the stream), malformed (no JSON), garbled (events that are no JSON).
    """

    match: str = ""
    text: str | None = None
    json: Any = None
    status: int = 200
    error: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    stop_reason: str = "end_turn"
    stop_details: dict[str, Any] | None = None
    usage: dict[str, int] = field(default_factory=dict)
    fault: str = ""
    pause: float = 0.0
    delay: float = 0.0
    times: int = 1

    def body(self) -> str:
        return self.text if self.text is not None else json.dumps(self.json if self.json is not None else {})


class MessagesApi:
    """The server. `requests` holds the JSON body of every request so far, `headers` their headers."""

    def __init__(self, port: int = 0) -> None:
        self.script: list[Reply] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.released = threading.Event()
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.api = self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def prompts(self) -> list[str]:
        """What each request said, system and messages together."""
        return [all_text(body) for body in self.requests]

    def add(self, *replies: Reply) -> None:
        """Append to the script."""
        with self._lock:
            self.script += replies

    def reset(self) -> None:
        """Forget script and requests, and let go of whoever hangs."""
        self.released.set()
        with self._lock:
            self.script, self.requests, self.headers = [], [], []
            self.released = threading.Event()

    def next_reply(self, body: dict[str, Any], headers: dict[str, str]) -> Reply:
        with self._lock:
            self.requests.append(body)
            self.headers.append(headers)
            for reply in self.script:
                if re.search(reply.match, all_text(body), re.DOTALL):
                    if reply.times:
                        reply.times -= 1
                        if not reply.times:
                            self.script.remove(reply)
                    return reply
        return improvise(body)

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def serve_forever(self) -> None:
        self._server.serve_forever()

    def stop(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def running(port: int = 0) -> Iterator[MessagesApi]:
    """A server for as long as the block runs."""
    api = MessagesApi(port)
    api.start()
    try:
        yield api
    finally:
        api.stop()


def all_text(body: dict[str, Any]) -> str:
    """System prompt and messages as one text."""
    blocks: list[Any] = [body.get("system") or ""]
    blocks += [message.get("content") or "" for message in body.get("messages", [])]
    texts = [block if isinstance(block, str) else "\n".join(part.get("text", "") for part in block) for block in blocks]
    return "\n".join(texts)


def request_in(body: dict[str, Any]) -> str:
    """What the person wrote, out of the fence around it."""
    found = re.findall(r"<request-(\w+)>\n(.*?)\n</request-\1>", all_text(body), re.DOTALL)
    return found[-1][1] if found else ""


def improvise(body: dict[str, Any]) -> Reply:
    """A plausible reply for a request that no script foresees."""
    said = request_in(body)
    config = (body.get("output_config") or {}).get("format")
    if not config:
        words = " ".join(said.split())[:200]
        return Reply(
            text=f"This is the scripted model. It read the request “{words}” and has nothing to say of its own."
        )
    why = {"rationale": "The script says so.", "confidence": 0.9}
    names = set(config["schema"]["properties"])
    if "needs_plan" in names:
        is_bad = bool(re.search(r"\bhack into\b|\bbomb\b", said, re.IGNORECASE))
        way = {"decision": "reject" if is_bad else "local", "reason": "I will not help with that." if is_bad else ""}
        clear = {"is_clear": True, "question": "", "needs_plan": False}
        return Reply(json={**clear, **way, "call": _call_for(said), **why})
    if "final_answer" in names:
        return Reply(json={"final_answer": "All parts are done.", "conflicts": [], "notes": "", **why})
    if "decision" in config["schema"]["properties"]:
        if re.search(r"\bhack into\b|\bbomb\b", said, re.IGNORECASE):
            return Reply(json={"decision": "reject", "reason": "I will not help with that.", **why})
        return Reply(json={"decision": "local", "reason": "", **why})
    return Reply(json={"call": _call_for(said), **why})


def _call_for(said: str) -> dict[str, Any]:
    path = next(iter(re.findall(r"[\w./-]+\.\w+|README|LICENSE|Makefile", said)), "")
    if re.search(r"summar|tl;?dr", said, re.IGNORECASE):
        return {"tool": "summarize", "params": {"path": path} if path else {"text": said}}
    if re.search(r"\bagents?\b", said, re.IGNORECASE):
        return {"tool": "list_agents", "params": {"format": "simple"} if "simple" in said else {}}
    if re.search(r"\b(list|which|show).*\bfiles\b", said, re.IGNORECASE):
        return {"tool": "list_files", "params": {}}
    if re.search(r"\b(read|show|open)\b", said, re.IGNORECASE) and path:
        return {"tool": "read_file", "params": {"path": path}}
    if said.lower().startswith("echo "):
        return {"tool": "echo", "params": {"text": said[5:]}}
    return {"tool": "answer", "params": {}}


def problem_with(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, str] | None:
    """Why the real server would refuse this request, as (status, message)."""
    if not headers.get("x-api-key") and not headers.get("authorization"):
        return 401, "an API key is required"
    if not headers.get("anthropic-version"):
        return 400, "anthropic-version: header is required"
    for name in ("model", "max_tokens", "messages"):
        if not body.get(name):
            return 400, f"{name}: Field required"
    if {"temperature", "top_p", "top_k"} & set(body):
        return 400, "sampling parameters are not supported by this model"
    if body["messages"][-1]["role"] != "user":
        return 400, "messages: the last one must be from the user"
    if config := (body.get("output_config") or {}).get("format"):
        return _problem_with_schema(config["schema"])
    return None


def _problem_with_schema(schema: Any) -> tuple[int, str] | None:
    if isinstance(schema, list):
        return next((found for item in schema if (found := _problem_with_schema(item))), None)
    if not isinstance(schema, dict):
        return None
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        return 400, "output_config.format.schema: objects need additionalProperties: false"
    for name in UNKNOWN_IN_SCHEMAS:
        if name in schema and not isinstance(schema[name], dict):
            return 400, f"output_config.format.schema: {name} is not supported"
    return next((found for item in schema.values() if (found := _problem_with_schema(item))), None)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    api: MessagesApi

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # As real servers do: else a small piece waits until the one before it is acknowledged, which takes up to 40 ms.
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            body = json.loads(raw)
        except ValueError:
            return self._error(400, "The body is not JSON.")
        if self.path.split("?")[0] != "/v1/messages":
            return self._error(404, f"{self.path} is not served here.")
        if problem := problem_with(body, headers):
            self.server.api.requests.append(body)
            return self._error(*problem)
        # As it was before the reply: a reset in between lets go of this one, too.
        self._released = self.server.api.released
        reply = self.server.api.next_reply(body, headers)
        if reply.delay:
            time.sleep(reply.delay)
        return self._give(reply, body)

    def _give(self, reply: Reply, body: dict[str, Any]) -> None:
        if reply.fault == "hang":
            self._released.wait(60)
            self.close_connection = True
        elif reply.fault == "disconnect":
            self._hang_up()
        elif reply.status != 200:
            self._error(reply.status, reply.error or "scripted", reply.headers)
        elif reply.fault == "malformed":
            self._send(200, b"<html>not what you expect</html>", {"content-type": "text/html"})
        elif body.get("stream"):
            self._stream(reply, body)
        else:
            message = _message(reply, body)
            message["content"] = [{"type": "text", "text": reply.body()}]
            message |= {"stop_reason": reply.stop_reason, "stop_details": reply.stop_details}
            message["usage"]["output_tokens"] = _tokens(reply.body(), reply.usage.get("output_tokens"))
            self._send(200, json.dumps(message).encode(), reply.headers)

    def _stream(self, reply: Reply, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        for number, (kind, payload) in enumerate(_events(reply, body)):
            # Midway is behind the second piece of text, or behind all of a short one.
            if reply.fault.endswith("_midway") and (number == 7 or kind == "message_delta"):
                return self._break_off(reply.fault)
            data = "{not json" if reply.fault == "garbled" else json.dumps({"type": kind, **payload})
            self._chunk(f"event: {kind}\ndata: {data}\n\n")
            if reply.pause and kind == "content_block_delta":
                time.sleep(reply.pause)
        self.wfile.write(b"0\r\n\r\n")
        return None

    def _break_off(self, fault: str) -> None:
        if fault == "hang_midway":
            self._released.wait(60)
        elif fault == "overloaded_midway":
            error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
            self._chunk(f"event: error\ndata: {json.dumps(error)}\n\n")
            self.wfile.write(b"0\r\n\r\n")
            return
        self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _error(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        error = {"type": "error", "error": {"type": ERROR_TYPES.get(status, "api_error"), "message": message}}
        self._send(status, json.dumps(error).encode(), headers or {})

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _tokens(text: str, scripted: int | None) -> int:
    return scripted if scripted is not None else max(len(text) // 4, 1)


def _message(reply: Reply, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"msg_{uuid.uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": _tokens(all_text(body), reply.usage.get("input_tokens")),
            "cache_read_input_tokens": reply.usage.get("cache_read_input_tokens", 0),
            "cache_creation_input_tokens": reply.usage.get("cache_creation_input_tokens", 0),
            "output_tokens": 1,
        },
    }


def _events(reply: Reply, body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events of one streamed message, as the real server sends them."""
    text = reply.body()
    yield "message_start", {"message": _message(reply, body)}
    yield "ping", {}
    # Models that think begin with a block of it, empty unless it was asked for.
    yield "content_block_start", {"index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}
    yield "content_block_stop", {"index": 0}
    if text:
        yield "content_block_start", {"index": 1, "content_block": {"type": "text", "text": ""}}
        for start in range(0, len(text), CHUNK):
            delta = {"type": "text_delta", "text": text[start : start + CHUNK]}
            yield "content_block_delta", {"index": 1, "delta": delta}
        yield "content_block_stop", {"index": 1}
    delta = {"stop_reason": reply.stop_reason, "stop_sequence": None, "stop_details": reply.stop_details}
    output = _tokens(text, reply.usage.get("output_tokens"))
    yield "message_delta", {"delta": delta, "usage": {"output_tokens": output}}
    yield "message_stop", {}


def main() -> None:
    parser = argparse.ArgumentParser(description="A scripted server for the Messages API.")
    parser.add_argument("--port", type=int, default=8787)
    parser.add_argument("--script", type=Path, help="JSON list of replies; without one, replies are made up")
    options = parser.parse_args()
    api = MessagesApi(options.port)
    if options.script:
        api.add(*(Reply(**entry) for entry in json.loads(options.script.read_text())))
    sys.stdout.write(f"Messages API, scripted, on {api.url}\n")
    sys.stdout.flush()
    try:
        api.serve_forever()
    except KeyboardInterrupt:
        api.stop()


if __name__ == "__main__":
    main()
