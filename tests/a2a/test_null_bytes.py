"""A NUL in any string of any request: PostgreSQL neither stores nor compares it, and SQLite does both."""

import pytest

from bureau.a2a import v03, v1
from bureau.a2a.rest_v1 import ROUTES
from tasks.models import PushConfig, Task
from tests.a2a.peer import envelope

pytestmark = pytest.mark.both_databases
NUL = "a\0b"

PARTS = [{"text": "x", "mediaType": "text/plain", "filename": "f", "metadata": {"k": "v"}}, {"raw": "YQ=="}]
MESSAGE = {
    "messageId": "m",
    "contextId": "c",
    "taskId": "t",
    "role": "ROLE_USER",
    "parts": PARTS,
    "metadata": {"k": "v"},
    "extensions": ["urn:x"],
    "referenceTaskIds": ["r"],
}
CONFIG = {"url": "http://127.0.0.1/", "token": "t", "authentication": {"scheme": "s", "credentials": "c"}}
FULL = {
    "SendMessage": {
        "message": MESSAGE,
        "metadata": {"k": "v"},
        "configuration": {
            "returnImmediately": True,
            "acceptedOutputModes": ["text/plain"],
            "taskPushNotificationConfig": {"id": "p", **CONFIG},
        },
    },
    "GetTask": {"id": "t"},
    "ListTasks": {"contextId": "c", "pageToken": "p", "status": "s", "statusTimestampAfter": "s"},
    "CancelTask": {"id": "t", "metadata": {"k": "v"}},
    "SubscribeToTask": {"id": "t"},
    "CreateTaskPushNotificationConfig": {"taskId": "t", "id": "p", **CONFIG},
    "GetTaskPushNotificationConfig": {"taskId": "t", "id": "p"},
    "ListTaskPushNotificationConfigs": {"taskId": "t", "pageToken": "p"},
    "DeleteTaskPushNotificationConfig": {"taskId": "t", "id": "p"},
    "GetExtendedAgentCard": {},
}
FULL["SendStreamingMessage"] = FULL["SendMessage"]
OLD_PART = {"kind": "text", "text": "x", "metadata": {"k": "v"}}
OLD_MESSAGE = {**MESSAGE, "kind": "message", "role": "user", "parts": [OLD_PART]}
OLD_CONFIG = {"id": "p", "url": "http://127.0.0.1/", "token": "t"}
OLD = {
    "message/send": {
        "message": OLD_MESSAGE,
        "configuration": {"blocking": False, "pushNotificationConfig": OLD_CONFIG},
    },
    "tasks/get": {"id": "t"},
    "tasks/cancel": {"id": "t"},
    "tasks/resubscribe": {"id": "t"},
    "tasks/pushNotificationConfig/set": {"taskId": "t", "pushNotificationConfig": OLD_CONFIG},
    "tasks/pushNotificationConfig/get": {"id": "t", "pushNotificationConfigId": "p"},
    "tasks/pushNotificationConfig/list": {"id": "t"},
    "tasks/pushNotificationConfig/delete": {"id": "t", "pushNotificationConfigId": "p"},
    "agent/getAuthenticatedExtendedCard": {},
}
OLD["message/stream"] = OLD["message/send"]


def spoiled(value):
    """The value once for each text in it, with a NUL there."""
    if isinstance(value, str):
        yield NUL
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            for other in spoiled(item):
                copy = value.copy()
                copy[key] = other
                yield copy


def check(response):
    assert response.status_code in (200, 400, 401, 404, 415), response.text
    assert "nternal error" not in response.text and "INTERNAL" not in response.text
    assert "html" not in response.headers["content-type"]


def test_it_tries_every_method():
    assert set(FULL) == set(v1.METHODS)
    assert set(v03.METHODS) <= set(OLD)


@pytest.fixture
def task(alice, settings):
    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8",)
    task = alice.submit("x")
    alice.result("CreateTaskPushNotificationConfig", {"taskId": task["id"], "id": "p", **CONFIG})
    return task


@pytest.mark.parametrize(("version", "methods"), [("1.0", FULL), ("0.3", OLD)])
def test_json_rpc(as_peer, alice, task, version, methods):
    peer = as_peer("alice", version=version, slug="echo")
    kept = (PushConfig.objects.count(), Task.objects.count())
    for method, params in methods.items():
        own = {**params, **{name: task["id"] for name in ("id", "taskId") if params.get(name) == "t"}}
        tenant = [{**own, "tenant": NUL}] if version == "1.0" else []
        for wrong in [*spoiled(params), *spoiled(own), *tenant]:
            check(peer.post(envelope(method, wrong), path="/a2a/"))

    assert (PushConfig.objects.count(), Task.objects.count()) == kept


def test_the_older_protocol(as_peer):
    peer = as_peer("alice", version="", slug="echo")
    message = {"role": "user", "parts": [{"type": "text", "text": NUL}]}
    named = {"id": "n", "sessionId": NUL, "message": {"role": "user", "parts": [{"type": "text", "text": "x"}]}}

    for params in [{"id": "n", "message": message}, named]:
        assert peer.error("tasks/send", params)["code"] == -32602
    assert peer.error("tasks/get", {"id": NUL})["code"] == -32001
    assert not Task.objects.exists()


def test_rest(alice, task):
    headers = {"A2A-Version": "1.0", "Content-Type": "application/a2a+json"}
    for route in ROUTES:
        path = route.path.replace("{id}:", "%00:").replace("{id}", "%00").replace("{taskId}", task["id"])
        for query in ["", *(f"?{name.rstrip('?')}=%00" for name in route.query), "?%00=%00"]:
            check(alice.http.request(route.verb, f"/a2a/echo/{path}{query}", headers=headers))
            if "tenant" not in query:
                check(alice.http.request(route.verb, f"/a2a/echo/echo/{path}{query}", headers=headers))


@pytest.mark.parametrize("header", ["A2A-Version", "A2A-Extensions", "Last-Event-ID", "X-API-Key", "Cookie"])
def test_headers(url, header):
    # What HTTP itself refuses never gets here; a cookie can hold anything, by its own escapes.
    import httpx

    value = 'sessionid="\\000aaaaaaaaaaaa"; csrftoken="\\000"' if header == "Cookie" else "%00\\000"
    check(httpx.post(f"{url}/a2a/", json=envelope("ListTasks"), headers={"A2A-Version": "1.0", header: value}))
