import threading
import uuid

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client

from bureau.dashboard import submit
from directory.identity import Caller
from tasks.models import Context, StoredFile, Task

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


def form(**changes) -> dict:
    return {"token": str(uuid.uuid4()), "text": "Water the plants", "agent": "assistant"} | changes


def nothing_was_made() -> bool:
    return not (Task.objects.exists() or Context.objects.exists() or StoredFile.objects.exists())


def test_it_starts_a_mission_and_leads_to_its_page(as_alice, alice, agent):
    sent = as_alice.post("/missions/new/", form())
    task = Task.objects.get()
    assert sent.headers["Location"] == f"/missions/{task.pk}/"
    assert (task.owner, task.agent, task.title) == (f"user:{alice.pk}", agent, "Water the plants")


def test_it_takes_files(as_alice, agent):
    uploads = [SimpleUploadedFile("a.txt", b"one", "text/plain"), SimpleUploadedFile("b.bin", b"two")]
    as_alice.post("/missions/new/", form(attachments=uploads))
    parts = Task.objects.get().messages.get().parts
    assert [part.get("filename") for part in parts] == [None, "a.txt", "b.bin"]
    stored = StoredFile.objects.get(pk=parts[1]["file"])
    assert (stored.size, stored.media_type) == (3, "text/plain")


def test_sending_the_form_twice_leads_to_the_same_mission(as_alice, agent):
    twice = form()
    first, second = (as_alice.post("/missions/new/", twice) for _ in range(2))
    assert first.headers["Location"] == second.headers["Location"]
    assert Task.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_double_click_makes_one_mission(alice, agent):
    caller, token = Caller.from_user(alice), uuid.uuid4()
    gate, led_to = threading.Barrier(2), []

    def click() -> None:
        gate.wait(60)
        led_to.append(submit.start(caller, agent, "Hello", [], token))
        connection.close()

    threads = [threading.Thread(target=click) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(led_to) == 2
    assert set(led_to) == {Task.objects.get().pk}


def test_two_people_may_have_the_same_token(as_alice, as_bob, agent):
    same = form()
    as_alice.post("/missions/new/", same)
    as_bob.post("/missions/new/", same)
    assert Task.objects.count() == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"text": "  "}, "Write what should be done."),
        ({"text": "x" * 100_001}, "at most 100000 characters"),
        ({"text": "a\x00b"}, "ull character"),
        ({"text": "a\ud800b".encode("utf-8", "surrogatepass")}, ""),
        ({"agent": "nobody"}, "That agent is not available"),
        ({"token": "no token"}, "please send it once more"),
        ({"attachments": [SimpleUploadedFile("a.txt", b"")]}, "One of the files is empty."),
        ({"attachments": [SimpleUploadedFile(f"{n}.txt", b"x") for n in range(21)]}, "20 files at most"),
    ],
)
def test_a_form_that_cannot_be_taken_says_why_and_makes_nothing(as_alice, agent, changes, said):
    answer = as_alice.post("/missions/new/", form(**changes))
    if said:
        assert answer.status_code == 200
        assert said in answer.content.decode()
        assert nothing_was_made()
    else:
        # Broken UTF-8 is read as replacement characters, which can be kept.
        assert answer.status_code == 302


def test_files_that_are_too_large_together_are_refused(as_alice, agent, settings):
    settings.BUREAU_MAX_BODY_BYTES = 5
    uploads = [SimpleUploadedFile("a.txt", b"123"), SimpleUploadedFile("b.txt", b"456")]
    assert b"together" in as_alice.post("/missions/new/", form(attachments=uploads)).content
    assert nothing_was_made()


def test_a_disabled_agent_is_no_choice(as_alice, agent):
    agent.is_enabled = False
    agent.save()
    assert b"not available" in as_alice.post("/missions/new/", form()).content
    assert nothing_was_made()


def test_files_are_taken_back_when_the_mission_cannot_start(alice, agent, monkeypatch, settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path

    def broken(*args, **kwargs):
        raise RuntimeError("no luck")

    monkeypatch.setattr(submit, "send_message", broken)
    with pytest.raises(RuntimeError):
        submit.start(Caller.from_user(alice), agent, "Hi", [SimpleUploadedFile("a.txt", b"one")], uuid.uuid4())
    assert nothing_was_made()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_form_can_be_filled_in_by_a_link(as_alice, agent):
    page = as_alice.get("/missions/new/", {"agent": "assistant", "text": "Feed <b>the cat"}).content.decode()
    assert "Feed &lt;b&gt;the cat</textarea>" in page
    assert '<option value="assistant" selected>' in page
    assert Task.objects.count() == 0


def test_a_form_without_its_csrf_token_is_refused(alice, agent):
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)
    answer = client.post("/missions/new/", form())
    assert answer.status_code == 403
    assert "out of date" in answer.content.decode()
    assert nothing_was_made()
