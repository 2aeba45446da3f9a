"""What a key is good for: sending, reading, canceling, and which agents."""

import json

import pytest

from bureau.a2a.authentication import forget_keys
from directory.models import ApiClient
from directory.services import create_api_client
from tasks.files import file_part, store_file
from tasks.models import PushConfig, StoredFile, Task
from tasks.results import ArtifactDraft, finish
from tests.a2a.peer import Peer, envelope, message

pytestmark = pytest.mark.both_databases
NOW = {"returnImmediately": True}


@pytest.fixture
def holder(url):
    """`holder("read", agents=["echo"])`: somebody with a key for this only."""
    peers = []

    def make(*scopes, agents=(), slug="echo"):
        _, key = create_api_client(f"key-{len(peers)}", scopes=scopes, agents=agents)
        peers.append(Peer(url, key, slug=slug))
        return peers[-1]

    yield make
    for peer in peers:
        peer.close()


METHODS = {
    "SendMessage": "send",
    "SendStreamingMessage": "send",
    "GetTask": "read",
    "ListTasks": "read",
    "SubscribeToTask": "read",
    "CreateTaskPushNotificationConfig": "read",
    "GetTaskPushNotificationConfig": "read",
    "ListTaskPushNotificationConfigs": "read",
    "DeleteTaskPushNotificationConfig": "read",
    "GetExtendedAgentCard": "read",
    "CancelTask": "cancel",
}


@pytest.mark.parametrize(("method", "scope"), METHODS.items())
def test_every_method_needs_its_scope(holder, method, scope):
    params = message("x") | {"id": "x", "taskId": "x", "url": "https://example.org"}
    peer = holder(*({"send", "read", "cancel"} - {scope}))
    response = peer.post(envelope(method, params))

    assert response.status_code == 403
    assert response.json()["error"] == {"code": -32000, "message": f"These credentials lack the scope '{scope}'."}
    assert f'error="insufficient_scope", scope="{scope}"' in response.headers["www-authenticate"]
    assert not Task.objects.exists() and not PushConfig.objects.exists()


def test_so_on_rest(holder):
    response = holder("send").http.get("/a2a/echo/tasks", headers={"A2A-Version": "1.0"})

    assert (response.status_code, response.json()["error"]["status"]) == (403, "PERMISSION_DENIED")


def test_a_file_needs_read(holder, url):
    part = {"raw": "aGVsbG8=", "filename": "a.txt", "mediaType": "text/plain"}
    peer = holder("send")
    peer.submit(part)
    from tasks.models import StoredFile

    assert peer.http.get(f"/files/{StoredFile.objects.get().pk}/").status_code == 403


def test_a_file_of_another_agent_is_not_there(holder, take):
    peer = holder("send", "read")
    task = peer.submit("x", {"raw": "aGVsbG8=", "filename": "sent.txt"})
    claim = take()
    made = store_file(claim.owner, "made.txt", "text/plain", b"made")
    finish(claim, Task.State.COMPLETED, artifacts=[ArtifactDraft("made.txt", [file_part(made)])])
    paths = [f"/files/{stored.pk}/" for stored in StoredFile.objects.all()]
    assert [peer.http.get(path).status_code for path in paths] == [200, 200]
    ApiClient.objects.update(agents=["directory"])
    forget_keys()
    # Who may call another agent knows the ids of its files, perhaps, and can say them to it.
    peer.result("SendMessage", message(" ".join(paths), configuration=NOW), path="/a2a/directory/")
    assert peer.error("GetTask", {"id": task["id"]}, path="/a2a/")["code"] == -32001
    assert [peer.http.request(verb, path).status_code for verb in ("GET", "HEAD") for path in paths] == [404] * 4
    ApiClient.objects.update(agents=["echo"])
    forget_keys()
    assert [peer.http.get(path).content for path in paths] == [b"made", b"hello"]


def test_sending_alone_is_enough_to_send(holder, worker):
    peer = holder("send")

    assert peer.send("Hello")["status"]["state"] == "TASK_STATE_COMPLETED"
    old = {"id": "mine", "message": {"role": "user", "parts": [{"type": "text", "text": "x"}]}}
    response = peer.post(envelope("tasks/send", old), headers={"A2A-Version": "0.3"})
    assert response.json()["result"]["status"]["state"] == "completed", json.dumps(response.json())


def test_a_key_for_one_agent(holder):
    peer = holder("send", "read", "cancel", agents=["echo"])
    task = peer.submit("x")

    assert peer.result("GetTask", {"id": task["id"]})["id"] == task["id"]
    for path in ("/a2a/directory/", "/a2a/"):
        reply = peer.post(envelope("SendMessage", message("x", configuration=NOW)), path=path).json()
        assert reply["error"]["code"] == -32004
    reply = peer.post(envelope("GetExtendedAgentCard", {}), path="/a2a/directory/").json()
    assert reply["error"]["code"] == -32004
    assert Task.objects.count() == 1


def test_what_was_sent_before_the_key_was_narrowed_is_not_there(holder):
    from bureau.a2a.authentication import forget_keys
    from directory.models import ApiClient

    peer = holder("send", "read", "cancel")
    task = peer.submit("x")
    ApiClient.objects.update(agents=["directory"])
    forget_keys()

    for method in ("GetTask", "CancelTask"):
        assert peer.error(method, {"id": task["id"]})["code"] == -32001
    reply = peer.post(envelope("ListTasks", {}), path="/a2a/").json()
    assert reply["result"]["totalSize"] == 0
    assert peer.error("SendMessage", message("x", taskId=task["id"]))["code"] == -32001
    there = peer.post(envelope("SendMessage", message("x", referenceTaskIds=[task["id"]])), path="/a2a/directory/")
    assert there.json()["error"]["code"] == -32001
    assert Task.objects.get().state == Task.State.SUBMITTED
