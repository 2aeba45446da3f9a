"""What nobody should send. The answer is always a JSON-RPC error, never HTML, a 500 or a text of ours within."""

import json
import socket
import time

import httpx
import pytest

from tasks.models import StoredFile, Task
from tests.a2a.peer import envelope, message


def error_of(response, code):
    """The error, after checking that it is one of ours."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    reply = response.json()
    assert reply["jsonrpc"] == "2.0"
    assert reply["error"]["code"] == code, reply
    assert "Traceback" not in response.text
    return reply["error"]


DEEP = 100_000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b"<html>",
        b'{"jsonrpc": "2.0",}',
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b"\xff\xfe",
        b'{"a": "\xff"}',
        b"\xef\xbb\xbf{}",
        '{"jsonrpc": "2.0"}'.encode("utf-16"),
        b"[" * DEEP + b"]" * DEEP,
        b'{"a":' * DEEP + b"1" + b"}" * DEEP,
        b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "method": "CancelTask"}',
        b"\x00",
    ],
    ids=range(17),
)
def test_what_is_not_json(alice, body):
    error = error_of(alice.post(body), -32700)

    assert "data" not in error


@pytest.mark.parametrize(
    "body",
    [
        [],
        [{"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}],
        1,
        "x",
        None,
        True,
        {},
        {"id": 1, "method": "ListTasks"},
        {"jsonrpc": "1.0", "id": 1, "method": "ListTasks"},
        {"jsonrpc": 2.0, "id": 1, "method": "ListTasks"},
        {"jsonrpc": "2.0", "method": "ListTasks"},
        {"jsonrpc": "2.0", "id": True, "method": "ListTasks"},
        {"jsonrpc": "2.0", "id": 1.5, "method": "ListTasks"},
        {"jsonrpc": "2.0", "id": {}, "method": "ListTasks"},
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "2.0", "id": 1, "method": ""},
        {"jsonrpc": "2.0", "id": 1, "method": 1},
        {"jsonrpc": "2.0", "id": 1, "method": ["ListTasks"]},
    ],
)
def test_what_is_no_request(alice, body):
    error = error_of(alice.post(body), -32600)

    assert error["data"][0]["reason"] == "INVALID_REQUEST"


@pytest.mark.parametrize("params", [[], ["x"], "x", 1, None, True])
def test_params_that_are_no_object(alice, params):
    error_of(alice.post({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": params}), -32602)


@pytest.mark.parametrize("id", ["", "x", 0, -1, 10**4000, None, "\ud800", "💥"])
def test_the_id_comes_back_as_it_was(alice, id):
    response = alice.post({"jsonrpc": "2.0", "id": id, "method": "ListTasks"})

    assert response.json()["id"] == id
    assert "result" in response.json()


def test_the_id_comes_back_with_an_error_too(alice):
    assert alice.post({"jsonrpc": "2.0", "id": "mine", "method": ""}).json()["id"] == "mine"


@pytest.mark.parametrize("method", ["Nonsense", "getTask", "__class__", "tasks/list", "\x00", "x" * 10_000])
def test_a_method_that_there_is_not(alice, method):
    assert alice.error(method)["code"] == -32601


def test_other_content_types(alice):
    body = envelope("ListTasks")
    for media_type in ("text/plain", "application/xml", "application/x-www-form-urlencoded", ""):
        error = error_of(alice.post(body, headers={"Content-Type": media_type}), -32005)
        assert error["data"][0]["reason"] == "CONTENT_TYPE_NOT_SUPPORTED"
    assert "result" in alice.post(body, headers={"Content-Type": "Application/JSON; charset=utf-8"}).json()


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_other_http_methods(alice, method):
    response = alice.http.request(method, alice.path)

    assert response.status_code == 405
    assert response.headers["allow"] == "POST"
    assert response.json()["error"]["code"] == -32600


@pytest.mark.parametrize("path", ["/a2a", "/a2a/", "/a2a/echo", "/a2a/echo/"])
def test_the_slash_at_the_end_does_not_matter(alice, path):
    response = alice.post(envelope("ListTasks"), path=path)

    assert response.status_code == 200
    assert "result" in response.json()


@pytest.mark.parametrize("path", ["/a2a/echo/more", "/a2a/é/", "/a2a//", "/.well-known/nonsense", "/files/nonsense/"])
def test_other_addresses(alice, path):
    response = alice.post(envelope("ListTasks"), path=path)

    assert response.status_code == 404
    error = response.json()["error"]
    assert (error["message"] if path.startswith("/a2a") else error) == "There is nothing at this address."


@pytest.mark.parametrize("version", ["2.0", "0.2", "1.1", "1", "nonsense", "9" * 5000, "1.0.0.0", "1.0, 1.0"])
def test_versions_that_are_not_spoken(as_peer, version):
    error = as_peer("alice", version=version).error("ListTasks")

    assert error["code"] == -32009
    assert error["data"][0]["reason"] == "VERSION_NOT_SUPPORTED"
    assert "1.0" in error["message"]


@pytest.mark.parametrize("version", ["1.0", "1.0.1"])
def test_versions_that_are(as_peer, version):
    assert "tasks" in as_peer("alice", version=version).result("ListTasks")


def test_the_version_may_stand_in_the_address(as_peer):
    peer = as_peer("alice", version="")

    assert "tasks" in peer.result("ListTasks", path="/a2a/?A2A-Version=1.0")


def test_a_method_of_another_version(as_peer):
    assert as_peer("alice", version="").error("SendMessage", message("x"))["code"] == -32009
    assert as_peer("alice", version="1.0").error("message/send", message("x"))["code"] == -32009


def nested(depth):
    value = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize("depth", [60, 120, 400])
@pytest.mark.parametrize("place", ["metadata", "data"])
def test_deep_nesting(alice, depth, place):
    params = message("x") | {"metadata": nested(depth)} if place == "metadata" else message({"data": nested(depth)})

    assert alice.error("SendMessage", params)["code"] == -32602
    assert Task.objects.count() == 0


@pytest.mark.parametrize(
    "params",
    [
        {"message": None},
        {"message": []},
        {"message": "x"},
        {"message": {"parts": {}}},
        {"message": {"messageId": {}, "role": "ROLE_USER", "parts": [{"text": "x"}]}},
        {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [None]}},
        {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [[]]}},
        {"message": {"messageId": "m", "role": "ROLE_USER", "parts": ["x"]}},
        {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"raw": 1}]}},
        {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "\ud800"}]}},
        {"message": {"messageId": "m", "role": 10**30, "parts": [{"text": "x"}]}},
        {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}], "\ud800": 1}},
        {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": 10**400}]}},
        {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}] * 101}},
        {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}, "metadata": []},
        {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}, "configuration": 7},
        {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}], "referenceTaskIds": "x"}},
        {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}], "extensions": [1]}},
        {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}], "extensions": ["\x00"]}},
        {},
    ],
    ids=range(20),
)
def test_wrong_types(alice, as_peer, params):
    assert alice.error("SendMessage", params)["code"] == -32602
    assert alice.error("SendStreamingMessage", params)["code"] == -32602
    assert as_peer("alice", version="0.3").error("message/send", params)["code"] == -32602
    assert Task.objects.count() == 0


def test_a_declared_length_that_is_too_large_is_not_read(alice, url, settings):
    settings.BUREAU_MAX_BODY_BYTES = settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 2000
    host = httpx.URL(url).host
    key = alice.http.headers["authorization"]
    head = f"POST /a2a/ HTTP/1.1\r\nHost: {host}\r\nAuthorization: {key}\r\nContent-Type: application/json\r\n"
    reply = exchange(url, f"{head}Content-Length: 1000000000\r\n\r\n{'x' * 100}".encode(), ends=False)

    assert reply.startswith("HTTP/1.1 200")
    assert '"code":-32600' in reply
    assert "connection: close" in reply.lower()


def test_a_body_that_is_too_large(alice, settings):
    settings.BUREAU_MAX_BODY_BYTES = settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 2000
    error_of(alice.post(envelope("SendMessage", message("x" * 3000))), -32600)

    def chunks():
        for _ in range(100):
            yield b"x" * 1000

    response = alice.http.post(alice.path, content=chunks(), headers={"Content-Type": "application/json"})
    error_of(response, -32600)
    assert "result" in alice.call("ListTasks")


def test_failures_inside_are_told_in_a_fixed_text(alice, monkeypatch, caplog):
    from bureau.a2a import handler

    def broken(*args, **kwargs):
        raise RuntimeError("secret detail")

    monkeypatch.setattr(handler, "list_tasks", broken)
    response = alice.post(envelope("ListTasks"))

    assert error_of(response, -32603)["message"] == "Internal error"
    assert "secret" not in response.text
    assert "secret detail" in caplog.text


def test_failures_inside_a_stream_are_too(alice, monkeypatch, caplog):
    from bureau.a2a import handler

    def broken(*args, **kwargs):
        raise RuntimeError("secret detail")

    monkeypatch.setattr(handler, "to_update", broken)
    body = json.dumps(envelope("SendStreamingMessage", message("x"))).encode()
    with alice.http.stream("POST", alice.path, content=body, headers={"Content-Type": "application/json"}) as response:
        lines = response.iter_lines()
        while not next(lines).startswith("data"):
            pass
        from tasks.claims import claim_next

        deadline = time.monotonic() + 60
        while claim_next("default", "test-worker") is None:
            assert time.monotonic() < deadline
        rest = "\n".join(lines)

    assert "event: error" in rest
    assert '"code":-32603,"message":"Internal error"' in rest
    assert "secret" not in rest
    assert "secret detail" in caplog.text


def test_an_unknown_host_name(url):
    # Else a page could reach the anonymous caller of this machine by a name that it points here.
    response = httpx.post(f"{url}/a2a/", json=envelope("ListTasks"), headers={"Host": "evil.example"})

    assert response.status_code == 400
    assert response.json() == {"error": "This server is not known by that host name."}


def test_security_headers(alice):
    assert alice.post(envelope("ListTasks")).headers["x-content-type-options"] == "nosniff"


def test_a_body_of_very_many_values_is_refused(alice):
    error_of(alice.post(envelope("SendMessage", message({"data": [0] * 100_001}))), -32600)
    assert not Task.objects.exists()


def test_more_parts_than_a_message_may_have_keep_no_file(alice):
    error_of(alice.post(envelope("SendMessage", message(*[{"raw": "YQ=="}] * 101))), -32602)
    assert not StoredFile.objects.exists()


def exchange(url, data, *, ends=True):
    """What comes back for these bytes, to the end of the connection."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=90) as connection:
        connection.sendall(data)
        if ends:
            connection.shutdown(socket.SHUT_WR)
        found = b""
        while piece := connection.recv(65536):
            found += piece
    return found.decode()


HEAD = "POST /a2a/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"


@pytest.mark.parametrize(
    "rest",
    [
        "Content-Length: -2\r\n\r\n{}",
        "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Content-Length: 99999999999999999999999999\r\n\r\n{}",
        "Content-Length: two\r\n\r\n{}",
        "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: gzip\r\n\r\n{}",
        "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        "A2A-Version: \x01\r\nContent-Length: 2\r\n\r\n{}",
        "A2A-Version: é\r\nContent-Length: 2\r\n\r\n{}",
        "A2A-Version: 1.0\r\nA2A-Version: 0.3\r\nContent-Length: 2\r\n\r\n{}",
        "A2A-Extensions: " + ",;\t " * 9000 + "\r\nContent-Length: 2\r\n\r\n{}",
        "Authorization: Bearer " + "x" * 40_000 + "\r\nContent-Length: 2\r\n\r\n{}",
        "Cookie: " + "a=b; " * 9000 + "\r\nContent-Length: 2\r\n\r\n{}",
        "X: y\r\n" * 3000 + "Content-Length: 2\r\n\r\n{}",
        "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
        "Host: evil.example\r\nContent-Length: 2\r\n\r\n{}",
        "Content-Type: application/json; charset=\xff\r\nContent-Length: 2\r\n\r\n{}",
        "Upgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\n{}",
        "no header\r\n\r\n{}",
        "\r\n",
    ],
    ids=range(22),
)
def test_requests_that_are_not_as_http_has_it(url, rest):
    found = exchange(url, (HEAD + rest).encode("latin-1", "replace"))
    status = found.removeprefix("HTTP/1.1 100 Continue\r\n\r\n").partition("\r\n")[0]

    assert not found or status.startswith(("HTTP/1.1 200", "HTTP/1.1 4")), found
    assert "html" not in found.lower()
    assert "INTERNAL" not in found and "nternal error" not in found


def test_a_body_that_does_not_come(url, monkeypatch):
    monkeypatch.setattr("bureau.a2a.asgi.BODY_SECONDS", 0.2)
    for body in ("", '{"jsonrpc": '):
        found = exchange(url, f"{HEAD}Content-Length: 100\r\n\r\n{body}".encode(), ends=False)

        assert found.startswith("HTTP/1.1 408")
        assert '"error": "The body did not come."' in found
