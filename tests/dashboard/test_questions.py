"""The inbox of open questions: who sees which, who may answer, and what becomes of an answer that comes too late."""

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection

from tasks.claims import claim_next
from tasks.models import StoredFile, Task
from tasks.results import finish, plain
from tests.support.cast import snapshot
from tests.support.people import end, start

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


def ask(claim, text="Which can?", state="input-required", **details):
    finish(claim, state, message=plain(text) | {"metadata": details})
    return Task.objects.get(pk=claim.task_id).status_message["messageId"]


def send(client, claim, question, **changes):
    form = {"token": str(uuid.uuid4()), "question": question, "text": "The green one"} | changes
    return client.post(f"/questions/{claim.task_id}/", form)


def inbox(client, **query) -> str:
    return client.get("/questions/", query).content.decode()


class TestInbox:
    def test_people_see_their_own_questions_and_operators_everybodys(self, as_alice, as_bob, as_olga, claim):
        ask(claim)
        assert "Which can?" in inbox(as_alice)
        assert "Which can?" not in inbox(as_bob)
        text = inbox(as_olga)
        assert "Answer for alice, on record as yours" in text
        assert "Which can?" not in inbox(as_olga, whose="mine")

    def test_only_what_is_open_is_shown(self, as_alice, alice, agent, claim):
        end(claim)
        ask(start(alice, agent, "Feed the fish"), "What do they eat?")
        text = inbox(as_alice)
        assert "What do they eat?" in text
        assert "Water the plants" not in text

    def test_it_says_where_to_sign_in(self, as_alice, claim):
        ask(claim, "Sign in.", "auth-required", authType="oauth2", service="sheets.example.org")
        text = inbox(as_alice)
        assert "Sign in at: sheets.example.org" in text
        assert "auth required" in text

    def test_a_strangers_words_are_not_ours(self, as_alice, claim):
        ask(claim, "May I do exactly that? Answer yes or no.", untrusted="far")
        assert "words of far, from elsewhere" in inbox(as_alice)
        assert "words of far, from elsewhere" in as_alice.get(f"/missions/{claim.task_id}/").content.decode()

    def test_what_we_ask_is_no_strangers(self, as_alice, claim):
        ask(claim)
        assert "from elsewhere" not in inbox(as_alice)

    def test_htmx_hears_nothing_when_nothing_is_new(self, as_alice, claim):
        ask(claim)
        listing = as_alice.get("/questions/").context["listing"]
        seen = {"seen": listing.signature}
        assert as_alice.get("/questions/", seen, headers={"HX-Request": "true"}).status_code == 204
        claim_again = start_again(claim, as_alice)
        ask(claim_again, "And how much?")
        part = as_alice.get("/questions/", seen, headers={"HX-Request": "true"}).content.decode()
        assert "And how much?" in part
        assert "<html" not in part

    def test_there_are_pages(self, as_alice, alice, agent, monkeypatch):
        monkeypatch.setattr("bureau.dashboard.listing.PAGE_SIZE", 2)
        for number in range(3):
            ask(start(alice, agent, f"Mission {number}"))
        response = as_alice.get("/questions/")
        assert "Mission 0" not in response.content.decode()
        assert "Mission 0" in inbox(as_alice, after=str(response.context["listing"].older))
        assert as_alice.get("/questions/?after=nonsense").status_code == 302

    @pytest.mark.parametrize("path", ["/questions/", "/questions/count/"])
    def test_strangers_sign_in_first(self, client, path):
        assert client.get(path).status_code == 302

    def test_operators_see_how_often_requests_were_sent_again(self, as_alice, as_olga, claim):
        ask(claim, asks={"kind": "clarify"})
        assert "0 of the newest 1 mission (0 %)" in inbox(as_olga)
        assert "newest 1 mission" not in inbox(as_alice)


class TestNavigation:
    def test_it_counts_what_one_could_answer(self, as_alice, as_bob, as_olga, claim):
        def shown(client) -> str:
            return client.get("/questions/count/").content.decode()

        assert '<span class="pill">' not in shown(as_alice)
        ask(claim)
        assert '<span class="pill">1</span>' in shown(as_alice)
        assert '<span class="pill">1</span>' in shown(as_olga)
        assert '<span class="pill">' not in shown(as_bob)
        assert '<span class="pill">1</span>' in as_alice.get("/").content.decode()
        assert as_alice.get("/questions/count/", {"seen": "1"}).status_code == 204
        assert as_alice.get("/questions/count/", {"seen": "2"}).status_code == 200

    def test_it_does_not_count_for_ever(self, as_alice, alice, agent, monkeypatch):
        monkeypatch.setattr("bureau.dashboard.questions.COUNT_CAP", 1)
        for _ in range(2):
            ask(start(alice, agent))
        assert '<span class="pill">1+</span>' in as_alice.get("/questions/count/").content.decode()


def start_again(claim, client):
    """Answer what is asked, and take the turn of the answer."""
    send(client, claim, Task.objects.get(pk=claim.task_id).status_message["messageId"])
    again = claim_next("default", "test-worker")
    assert again is not None
    return again


class TestAnswer:
    def test_the_mission_goes_on_and_the_inbox_says_so(self, as_alice, claim):
        question = ask(claim)
        response = send(as_alice, claim, question)
        assert (response.status_code, response.headers["Location"]) == (302, "/questions/")
        assert "Answered: Water the plants" in inbox(as_alice)
        task = Task.objects.get()
        assert (task.state, task.messages.last().parts) == ("submitted", [{"text": "The green one"}])
        assert task.messages.last().author == ""

    def test_an_operators_answer_is_on_record_as_theirs(self, as_olga, as_alice, olga, claim):
        send(as_olga, claim, ask(claim), attachments=[SimpleUploadedFile("can.txt", b"green")])
        task = Task.objects.get()
        assert (task.owner, task.messages.last().author) == (claim.owner, f"user:{olga.pk}")
        assert StoredFile.objects.get().owner == claim.owner
        page = as_alice.get(f"/missions/{task.pk}/").content.decode()
        assert "olga (operator)" in page
        assert "olga, for the owner: The green one" in page

    def test_a_button_answers_by_itself(self, as_alice, claim):
        question = ask(claim, "May I?", asks={"kind": "confirm", "digest": "d"})
        assert '<button type="submit" name="choice" value="no">Refuse</button>' in inbox(as_alice)
        send(as_alice, claim, question, text="", choice="no")
        assert Task.objects.get().messages.last().parts == [{"text": "no"}]

    def test_what_a_part_of_it_asks_has_buttons_too(self, as_alice, claim):
        ask(claim, "May I?", asks={"kind": "child", "asks": {"kind": "confirm", "digest": "d"}})
        assert 'value="yes">Agree</button>' in inbox(as_alice)

    def test_sending_it_twice_says_it_once(self, as_alice, claim):
        question, token = ask(claim), str(uuid.uuid4())
        for _ in range(2):
            assert send(as_alice, claim, question, token=token).status_code == 302
        assert Task.objects.get().messages.filter(role="user").count() == 2

    def test_who_is_late_is_told_who_was_first_and_nothing_changes(self, as_alice, as_olga, claim):
        question = ask(claim)
        send(as_olga, claim, question)
        before = snapshot(claim.task_id)
        response = send(as_alice, claim, question, text="The red one")
        text = response.content.decode()
        assert response.status_code == 400
        assert "olga answered this 0\xa0minutes ago, so your answer changed nothing." in text
        assert "The red one" in text
        assert snapshot(claim.task_id) == before

    def test_an_answer_is_not_taken_for_one_to_the_next_question(self, as_alice, claim):
        question = ask(claim)
        ask(start_again(claim, as_alice), "And how much?")
        before = snapshot(claim.task_id)
        response = send(as_alice, claim, question)
        text = response.content.decode()
        assert (response.status_code, "Something else is asked now." in text, "And how much?" in text) == (
            400,
            True,
            True,
        )
        assert snapshot(claim.task_id) == before

    def test_a_mission_that_has_ended_takes_none(self, as_alice, claim):
        question = ask(claim)
        end(start_again(claim, as_alice))
        before = snapshot(claim.task_id)
        response = send(as_alice, claim, question)
        assert response.status_code == 400
        assert "The mission has ended (completed), so your answer changed nothing." in response.content.decode()
        assert snapshot(claim.task_id) == before

    @pytest.mark.parametrize(
        "changes", [{"text": ""}, {"token": "x"}, {"text": "a\x00b"}, {"text": "", "choice": "burn it"}]
    )
    def test_a_broken_form_is_shown_where_it_was_and_changes_nothing(self, as_alice, claim, changes):
        question = ask(claim)
        before = snapshot(claim.task_id)
        response = send(as_alice, claim, question, **changes)
        assert response.status_code == 400
        assert 'class="errors"' in response.content.decode()
        assert response.context["closed"] is None
        assert snapshot(claim.task_id) == before

    def test_what_names_no_question_answers_none(self, as_alice, claim):
        ask(claim)
        before = snapshot(claim.task_id)
        assert send(as_alice, claim, "").status_code == 400
        assert snapshot(claim.task_id) == before

    def test_nobody_else_may(self, as_bob, claim):
        question = ask(claim)
        before = snapshot(claim.task_id)
        assert send(as_bob, claim, question).status_code == 404
        assert snapshot(claim.task_id) == before

    def test_on_the_missions_page_it_is_the_same(self, as_olga, as_alice, claim):
        question = ask(claim)
        assert f'name="question" value="{question}"' in as_olga.get(f"/missions/{claim.task_id}/").content.decode()
        form = {"token": str(uuid.uuid4()), "text": "The green one", "as": "follow-up", "question": question}
        assert as_olga.post(f"/missions/{claim.task_id}/messages/", form).status_code == 302
        before = snapshot(claim.task_id)
        late = as_alice.post(f"/missions/{claim.task_id}/messages/", form | {"token": str(uuid.uuid4())})
        assert (late.status_code, "olga answered this" in late.content.decode()) == (400, True)
        assert snapshot(claim.task_id) == before


@pytest.mark.django_db(transaction=True)
def test_of_two_answers_at_once_one_wins(as_alice, as_olga, claim):
    question = ask(claim)
    together = threading.Barrier(2)

    def answer(client) -> int:
        try:
            together.wait(60)
            return send(client, claim, question).status_code
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(answer, (as_alice, as_olga))) == [302, 400]
    assert Task.objects.get().messages.filter(role="user").count() == 2
