"""HTTP+JSON: the same operations as resources. What they do is tested on JSON-RPC; here, how they are addressed."""

import json

import httpx
import pytest

from bureau.a2a.rest import resolve
from tasks.models import Task
from tests.a2a.peer import message, texts

pytestmark = pytest.mark.both_databases
OLD = {"request": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "Hello there"}]}}


@pytest.fixture
def ask(alice):
    """`ask("GET", "tasks", version="1.0")`: an answer below /a2a/echo/, or at another base."""

    def ask(verb, path, body=None, *, base="/a2a/echo/", version="1.0", headers=None, **kwargs):
        sent = {"A2A-Version": version, "Content-Type": "application/a2a+json", **(headers or {})}
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        return alice.http.request(verb, base + path, content=content, headers=sent, **kwargs)

    return ask


def details(response, status, reason):
    """The error of a response, checked to be a google.rpc.Status."""
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, status), error
    assert response.headers["content-type"] == "application/a2a+json"
    assert error["details"][0]["reason"] == reason
    return error


def test_send(ask, worker):
    response = ask("POST", "message:send", message("Hello there"))

    assert response.status_code == 200
    assert response.headers["content-type"] == "application/a2a+json"
    assert texts(response.json()["task"]) == ["Hello there"]


def test_stream(ask, worker):
    response = ask("POST", "message:stream", message("Hello there"))
    lines = [line.partition(": ") for line in response.text.splitlines()]
    events = [json.loads(value) for name, _, value in lines if name == "data"]

    assert response.headers["content-type"] == "text/event-stream"
    assert [next(iter(event)) for event in events] == ["task", "statusUpdate", "artifactUpdate", "statusUpdate"]
    assert [int(value) for name, _, value in lines if name == "id"] == [1, 2, 3, 4]


def test_get(ask, alice, worker):
    task = alice.send("Hello there")

    assert ask("GET", f"tasks/{task['id']}").json() == task
    assert "history" not in ask("GET", f"tasks/{task['id']}?historyLength=0").json()
    assert "history" not in ask("GET", f"tasks/{task['id']}?history_length=0").json()


def test_list(ask, alice, worker):
    tasks = [alice.send("Hello there") for _ in range(3)]
    page = ask("GET", "tasks?pageSize=2&includeArtifacts=true&status=TASK_STATE_COMPLETED").json()
    rest = ask("GET", "tasks", params={"pageToken": page["nextPageToken"]}).json()

    assert [task["id"] for task in [*page["tasks"], *rest["tasks"]]] == [task["id"] for task in reversed(tasks)]
    assert texts(page["tasks"][0]) == ["Hello there"]
    assert (rest["nextPageToken"], rest["totalSize"], rest["pageSize"]) == ("", 3, 50)


@pytest.mark.parametrize("query", ["pageSize=many", "pageSize=0", "includeArtifacts=perhaps", "status=ASLEEP"])
def test_a_wrong_query_is_refused(ask, query):
    details(ask("GET", f"tasks?{query}"), 400, "INVALID_PARAMS")


def test_cancel(ask, alice):
    task = alice.submit("x")

    assert ask("POST", f"tasks/{task['id']}:cancel").json()["status"]["state"] == "TASK_STATE_CANCELED"
    details(ask("POST", f"tasks/{task['id']}:cancel", {}), 400, "TASK_NOT_CANCELABLE")


@pytest.mark.parametrize("verb", ["GET", "POST"])
def test_subscribe_and_resume(ask, alice, verb):
    task = alice.submit("x")
    alice.result("CancelTask", {"id": task["id"]})
    response = ask(verb, f"tasks/{task['id']}:subscribe", headers={"Last-Event-ID": "1"})

    assert "TASK_STATE_CANCELED" in response.text
    details(ask(verb, f"tasks/{task['id']}:subscribe"), 400, "UNSUPPORTED_OPERATION")


def test_a_body_in_chunks(ask, alice, worker):
    chunks = iter([json.dumps(message("Hello there")).encode()])
    headers = {"A2A-Version": "1.0", "Content-Type": "application/a2a+json"}
    response = alice.http.post("/a2a/echo/message:send", content=chunks, headers=headers)

    assert texts(response.json()["task"]) == ["Hello there"]


def test_a_state_in_the_words_of_the_specifications_example(ask, alice):
    task = alice.submit("x")

    assert [each["id"] for each in ask("GET", "tasks?status=submitted").json()["tasks"]] == [task["id"]]
    assert ask("GET", "tasks?status=input-required").json()["tasks"] == []


@pytest.mark.parametrize("version", ["1.0", ""])
def test_a_query_of_very_many_fields_is_refused(ask, version):
    query = "&".join(f"a{number}=1" for number in range(3000))

    assert ask("GET", f"tasks?{query}", version=version).status_code == 400


def test_a_task_of_somebody_else_is_not_there(ask, bob):
    task = bob.submit("x")

    error = details(ask("GET", f"tasks/{task['id']}"), 404, "TASK_NOT_FOUND")
    assert error == details(ask("GET", "tasks/nonsense"), 404, "TASK_NOT_FOUND")
    details(ask("POST", f"tasks/{task['id']}:cancel"), 404, "TASK_NOT_FOUND")
    assert Task.objects.get().state == Task.State.SUBMITTED


def test_a_tenant_names_an_agent(ask, alice, worker):
    task = alice.send("x")

    for base in ("/a2a/", "/a2a/echo/", "/a2a/echo/echo/"):
        assert ask("GET", f"tasks/{task['id']}", base=base).status_code == 200
    assert ask("GET", f"tasks/{task['id']}", base="/a2a/directory/").status_code == 404
    assert ask("GET", f"tasks/{task['id']}?tenant=directory", base="/a2a/").status_code == 404
    details(ask("GET", "tasks", base="/a2a/echo/directory/"), 400, "INVALID_PARAMS")
    assert ask("GET", "tasks", base="/a2a/").json()["totalSize"] == 1


@pytest.mark.parametrize(("version", "path"), [("", "tasks"), ("0.3", "tasks"), ("2.0", "tasks"), ("1.0", "v1/card")])
def test_another_version_than_the_address_has(ask, version, path):
    response = ask("GET", path, version=version)

    assert response.status_code == 400
    assert "VersionNotSupported" in response.text or "VERSION_NOT_SUPPORTED" in response.text


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_media_types(ask, kind):
    details(
        ask("POST", "message:send", message("x"), headers={"Content-Type": kind}), 415, "CONTENT_TYPE_NOT_SUPPORTED"
    )
    assert not Task.objects.exists()


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b'{"a": 1, "a": 2}', b"NaN"])
def test_what_is_no_json_object(ask, body):
    details(ask("POST", "message:send", body), 400, "INVALID_REQUEST")
    assert not Task.objects.exists()


def test_wrong_verbs_and_addresses(ask):
    response = ask("DELETE", "tasks")

    assert (response.status_code, response.headers["allow"]) == (405, "GET")
    for path in ("nothing", "tasks/", "tasks/x/y/z", "a/b/c/tasks", "a/" * 20_000 + "tasks"):
        response = ask("GET", path)
        assert (response.status_code, response.headers["content-type"]) == (404, "application/a2a+json")


@pytest.mark.parametrize("path", ["a2a/echo/tasks/x%0Ay", "a2a/%0A", "files/%0A", ".well-known/%0A"])
def test_a_line_break_in_an_address_is_no_accident(alice, path):
    assert alice.http.get(f"/{path}", headers={"A2A-Version": "1.0"}).status_code == 404


def test_strangers(url, settings):
    settings.BUREAU_ALLOW_ANONYMOUS = False
    response = httpx.get(f"{url}/a2a/echo/tasks", headers={"A2A-Version": "1.0"})

    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert response.json()["error"]["status"] == "UNAUTHENTICATED"


def test_0_3(ask, worker):
    task = ask("POST", "v1/message:send", OLD, version="", headers={"Content-Type": "application/json"}).json()["task"]

    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["artifacts"][0]["parts"] == [{"text": "Hello there"}]
    assert ask("GET", f"v1/tasks/{task['id']}?historyLength=1", version="0.3").json()["id"] == task["id"]
    error = ask("GET", "v1/tasks/nonsense", version="0.3")
    assert (error.status_code, error.json()["type"]) == (404, "TaskNotFoundError")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "request.messageId: Field is required."),
        ({"request": {}}, "request.messageId: Field is required."),
        ({"request": {"messageId": "m", "role": "ROLE_USER"}}, "request.content: Field must contain"),
        ({"request": {"messageId": "m", "content": [{"text": 1}]}}, "text: The value has a wrong type"),
    ],
)
def test_0_3_refuses(ask, body, words):
    response = ask("POST", "v1/message:send", body, version="0.3")

    assert (response.status_code, response.json()["type"]) == (400, "InvalidParamsError")
    assert words in response.json()["message"]
    assert not Task.objects.exists()


def test_0_3_knows_no_tenants():
    assert resolve("echo/v1/card") is not None
    assert resolve("echo/echo/v1/card") is None
