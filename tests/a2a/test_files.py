"""Files: kept when they come in, inline or as an address when they go out, downloaded by whose they are."""

import base64
import hashlib
import uuid

import pytest
from django.test import Client

from directory.identity import Caller
from directory.models import ApiClient
from tasks.files import file_part, store_file
from tasks.models import StoredFile, Task
from tasks.results import ArtifactDraft, finish

CONTENT = b"\x00\x01 bytes \xff"
PART = {"raw": base64.b64encode(CONTENT).decode(), "filename": "notes.bin", "mediaType": "text/plain"}


def principal(name="alice"):
    return Caller.from_client(ApiClient.objects.get(name=name)).principal


def deliver(claim, content, name="result.txt", media_type="text/plain"):
    """End the task with a file as its artifact; the file."""
    stored = store_file(claim.owner, name, media_type, content)
    finish(claim, Task.State.COMPLETED, artifacts=[ArtifactDraft(name, [file_part(stored)])])
    return stored


@pytest.mark.both_databases
def test_what_comes_in_is_kept_and_comes_back(alice):
    task = alice.submit("Look at this", PART | {"metadata": {"page": 1}})
    stored = StoredFile.objects.get()

    assert stored.owner == principal()
    assert (stored.name, stored.media_type, stored.size) == ("notes.bin", "text/plain", len(CONTENT))
    assert stored.sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert Task.objects.get().messages.get().parts[1]["file"] == str(stored.pk)
    assert task["history"][0]["parts"][1] == PART | {"metadata": {"page": 1}}


def test_a_small_file_goes_out_inline(alice, take):
    task = alice.submit("x")
    deliver(take(), CONTENT)
    part = alice.result("GetTask", {"id": task["id"]})["artifacts"][0]["parts"][0]

    assert base64.b64decode(part["raw"]) == CONTENT
    assert (part["filename"], part["mediaType"]) == ("result.txt", "text/plain")
    assert "url" not in part


@pytest.fixture
def delivered(alice, take, settings, url):
    """The address of a file that is too large to go inline, and the file."""
    settings.BUREAU_INLINE_BYTES = 10
    task = alice.submit("x")
    stored = deliver(take(), b"more than ten bytes")
    part = alice.result("GetTask", {"id": task["id"]})["artifacts"][0]["parts"][0]
    assert "raw" not in part
    assert part["url"] == f"{url}/files/{stored.pk}/"
    return part["url"], stored


def test_a_large_one_as_an_address(alice, delivered):
    response = alice.http.get(delivered[0])

    assert response.status_code == 200
    assert response.content == b"more than ten bytes"
    assert response.headers["content-type"] == "text/plain"
    assert response.headers["content-length"] == "19"


def test_lists_give_addresses_only(alice, take):
    alice.submit("x", PART)
    deliver(take(), CONTENT)
    task = alice.result("ListTasks", {"includeArtifacts": True})["tasks"][0]

    assert "url" in task["artifacts"][0]["parts"][0]
    assert "url" in task["history"][0]["parts"][1]


def test_streams_carry_files_too(alice, take):
    from tests.a2a.peer import message

    with alice.stream("SendStreamingMessage", message("x")) as stream:
        next(stream)
        deliver(take(), CONTENT)
        parts = [result["artifactUpdate"]["artifact"]["parts"] for _, result in stream if "artifactUpdate" in result]

    assert base64.b64decode(parts[0][0]["raw"]) == CONTENT


def test_the_agent_is_free_to_refer_to_other_addresses(alice, take):
    part = {"url": "https://example.org/x.pdf", "filename": "x.pdf", "mediaType": "application/pdf"}
    task = alice.submit("x")
    finish(take(), Task.State.COMPLETED, artifacts=[ArtifactDraft("x", [part])])

    assert alice.result("GetTask", {"id": task["id"]})["artifacts"][0]["parts"] == [part]


def test_a_download_can_do_no_harm(alice, take, settings):
    settings.BUREAU_INLINE_BYTES = 0
    alice.submit("x")
    stored = deliver(take(), b"<script>alert(1)</script>", 'p"age\n é.html', "text/html")
    headers = alice.http.get(f"/files/{stored.pk}/").headers

    assert headers["content-disposition"].startswith("attachment; filename")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert "no-store" in headers["cache-control"]


def test_a_name_cannot_turn_around_or_break_lines(db):
    assert store_file("user:1", "../a\u202egpj.exe\r\nx", "text/plain", b"").name == "agpj.exe x"


@pytest.mark.parametrize("media_type", ["text/html\r\nX-Evil: 1", "nonsense", "a/b c", ""])
def test_a_media_type_that_is_none(alice, take, media_type):
    alice.submit("x")
    stored = deliver(take(), CONTENT)
    StoredFile.objects.update(media_type=media_type)
    response = alice.http.get(f"/files/{stored.pk}/")

    assert response.headers["content-type"] == "application/octet-stream"
    assert "x-evil" not in response.headers


def test_a_large_download_comes_whole(alice, take):
    content = bytes(range(256)) * 4096
    alice.submit("x")
    stored = deliver(take(), content)

    assert alice.http.get(f"/files/{stored.pk}/").content == content
    assert alice.http.head(f"/files/{stored.pk}/").headers["content-length"] == str(len(content))


class TestWhoMayNot:
    def test_others_are_told_that_there_is_no_such_file(self, bob, delivered):
        theirs, nobodys = bob.http.get(delivered[0]), bob.http.get(f"/files/{uuid.uuid4()}/")

        assert theirs.status_code == nobodys.status_code == 404
        assert theirs.json() == nobodys.json() == {"error": "There is no such file."}

    def test_strangers_are_asked_who_they_are(self, alice, delivered, settings):
        settings.BUREAU_ALLOW_ANONYMOUS = False
        del alice.http.headers["Authorization"]
        response = alice.http.get(delivered[0])

        assert response.status_code == 401
        assert response.headers["www-authenticate"] == 'Bearer realm="bureau"'
        assert response.headers["content-type"] == "application/json"

    def test_a_wrong_key_is_refused(self, alice, delivered):
        assert alice.http.get(delivered[0], headers={"Authorization": "Bearer bureau_wrong"}).status_code == 401

    def test_bytes_that_are_gone(self, alice, delivered, caplog):
        stored = delivered[1]
        stored.content.storage.delete(stored.content.name)

        assert alice.http.get(delivered[0]).status_code == 404
        assert "cannot be read" in caplog.text

    def test_other_methods(self, alice, delivered):
        response = alice.http.delete(delivered[0])

        assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD")
        assert StoredFile.objects.count() == 1


def test_bytes_that_are_gone_do_not_break_the_task(alice, take):
    task = alice.submit("x")
    stored = deliver(take(), CONTENT)
    stored.content.storage.delete(stored.content.name)

    assert "url" in alice.result("GetTask", {"id": task["id"]})["artifacts"][0]["parts"][0]


def sign_in(alice, user):
    browser = Client()
    browser.force_login(user)
    del alice.http.headers["Authorization"]
    alice.http.cookies.update({name: morsel.value for name, morsel in browser.cookies.items()})


def test_an_operator_may_see_all(alice, delivered, django_user_model):
    sign_in(alice, django_user_model.objects.create_user("olga", is_staff=True))

    assert alice.http.get(delivered[0]).status_code == 200


def test_a_signed_in_user_may_not(alice, delivered, django_user_model):
    sign_in(alice, django_user_model.objects.create_user("carol"))

    assert alice.http.get(delivered[0]).status_code == 404


def test_a_refused_message_leaves_no_bytes_behind(alice, bob):
    from django.core.files.storage import default_storage

    task = alice.submit("mine")
    before = _all_files(default_storage)
    bob.error("SendMessage", {"message": _message(taskId=task["id"])})
    alice.error("SendMessage", {"message": _message(contextId="other", taskId=task["id"])})
    alice.error("SendMessage", {"message": _message(referenceTaskIds=[str(uuid.uuid4())])})

    assert _all_files(default_storage) == before
    assert StoredFile.objects.count() == 0


def _message(**fields):
    return {"messageId": "m", "role": "ROLE_USER", "parts": [PART], **fields}


def _all_files(storage):
    root = storage.base_location
    from pathlib import Path

    return sorted(path for path in Path(root).rglob("*") if path.is_file())
