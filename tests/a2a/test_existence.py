"""What is somebody else's is answered in exactly the words of what does not exist, everywhere."""

import uuid

import pytest

from bureau.a2a import v03, v1
from bureau.a2a.rest_v03 import ROUTES as OLD_ROUTES
from bureau.a2a.rest_v1 import ROUTES
from directory.services import create_api_client
from tasks.models import PushConfig, StoredFile, Task
from tests.a2a.peer import Peer, envelope, message, old_message

pytestmark = pytest.mark.both_databases
CONFIG = {"url": "http://127.0.0.1/", "id": "p"}


def params_of(method, key):
    """Params of any method of either version, about that task."""
    if "essage" in method and "/" in method:
        return old_message("x", taskId=key, configuration={"blocking": False})
    if "Message" in method:
        return message("x", taskId=key, configuration={"returnImmediately": True})
    if method == "tasks/pushNotificationConfig/set":
        return {"taskId": key, "pushNotificationConfig": CONFIG}
    if "/" in method:
        return {"id": key, "pushNotificationConfigId": "p"}
    return {"taskId": key, **CONFIG} if "Config" in method else {"id": key}


ABOUT_ONE = [
    *(("1.0", name) for name in v1.METHODS if name not in ("ListTasks", "GetExtendedAgentCard")),
    *(("0.3", name) for name in v03.METHODS if name != "agent/getAuthenticatedExtendedCard"),
]


@pytest.fixture
def theirs(alice, settings):
    """A task of hers with everything that can be had of one, and its file."""
    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8",)
    task = alice.submit({"raw": "YQ==", "mediaType": "text/plain"}, contextId="hers")
    alice.result("CreateTaskPushNotificationConfig", {"taskId": task["id"], **CONFIG})
    return task["id"]


def told(response):
    """All that a caller can see of an answer, but for the moment it was given."""
    headers = {name: value for name, value in response.headers.items() if name != "date"}
    body = response.json()
    if isinstance(body, dict):
        body.pop("id", None)
    return response.status_code, headers, body


def same(one, other):
    assert told(one) == told(other)
    assert one.status_code in (200, 404)
    assert "error" in one.json() or "type" in one.json()


@pytest.mark.parametrize(("version", "method"), ABOUT_ONE)
def test_json_rpc(as_peer, theirs, version, method):
    bob = as_peer("bob", version=version, slug="echo")
    for headers in ({}, {"Last-Event-ID": "1"}):
        answers = [
            bob.post(envelope(method, params_of(method, key)), headers=headers) for key in (theirs, str(uuid.uuid4()))
        ]
        same(*answers)

    assert (PushConfig.objects.count(), Task.objects.get().state) == (1, Task.State.SUBMITTED)


@pytest.mark.parametrize(("version", "routes"), [("1.0", ROUTES), ("0.3", OLD_ROUTES)])
def test_http_json(as_peer, theirs, version, routes):
    bob = as_peer("bob", version=version, slug="echo")
    for route in routes:
        if "{" not in route.path:
            continue
        answers = []
        for key in (theirs, str(uuid.uuid4())):
            # The last name in an address is that of a configuration, where there are two.
            path = route.path.replace("{taskId}", key).replace("{configId}", "p")
            path = path.replace("{id}", "p" if "{taskId}" in route.path else key)
            body = {"config": {"pushNotificationConfig": CONFIG}} if version == "0.3" else CONFIG
            sent = {"json": body} if route.verb == "POST" and "Configs" in route.path else {}
            answers.append(bob.http.request(route.verb, f"/a2a/echo/{path}", **sent))
        same(*answers)

    assert (PushConfig.objects.count(), Task.objects.get().state) == (1, Task.State.SUBMITTED)


def test_references_contexts_and_files(bob, theirs):
    now = {"returnImmediately": True}
    refer = [message("x", referenceTaskIds=[key], configuration=now) for key in (theirs, str(uuid.uuid4()))]
    same(*(bob.post(envelope("SendMessage", params)) for params in refer))
    pages = [bob.result("ListTasks", {"contextId": key}) for key in ("hers", "nobodys")]
    assert pages[0] == pages[1]
    same(*(bob.http.get(f"/files/{key}/") for key in (StoredFile.objects.get().pk, uuid.uuid4())))


def test_agents_that_a_key_is_not_for(url):
    _, key = create_api_client("narrow", agents=["echo"])
    peer = Peer(url, key)
    for method, params in [("SendMessage", message("x")), ("GetExtendedAgentCard", {}), ("ListTasks", {})]:
        same(*(peer.post(envelope(method, params), path=f"/a2a/{slug}/") for slug in ("directory", "nobody")))
    peer.close()
    assert not Task.objects.exists()
