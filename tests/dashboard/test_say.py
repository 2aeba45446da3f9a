import uuid

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from tasks.models import Message, StoredFile, Task
from tests.support.cast import snapshot
from tests.support.people import end

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


def send(client, claim, **changes):
    form = {"token": str(uuid.uuid4()), "text": "With rain water", "as": "follow-up"} | changes
    return client.post(f"/missions/{claim.task_id}/messages/", form)


def test_an_answer_hands_the_mission_in_again(as_alice, claim):
    end(claim, "input-required", "Which water?")
    assert send(as_alice, claim).headers["Location"] == f"/missions/{claim.task_id}/"
    task = Task.objects.get()
    assert task.state == Task.State.SUBMITTED
    assert task.messages.last().parts == [{"text": "With rain water"}]


def test_something_can_be_added_while_it_works(as_alice, claim):
    send(as_alice, claim, attachments=[SimpleUploadedFile("pots.txt", b"12")])
    assert Task.objects.get().unread
    assert StoredFile.objects.get().name == "pots.txt"


def test_sending_it_twice_says_it_once(as_alice, claim):
    token = str(uuid.uuid4())
    send(as_alice, claim, token=token)
    send(as_alice, claim, token=token)
    assert Message.objects.filter(role="user").count() == 2


def test_a_refinement_is_a_new_mission_in_the_same_context(as_alice, claim):
    end(claim)
    token = str(uuid.uuid4())
    led_to = {send(as_alice, claim, **{"as": "refinement", "token": token}).headers["Location"] for _ in range(2)}
    new = Task.objects.exclude(pk=claim.task_id).get()
    assert led_to == {f"/missions/{new.pk}/"}
    assert new.context_id == claim.context_id
    assert [task.pk for task in new.references.all()] == [claim.task_id]


def test_an_answer_that_comes_too_late_changes_nothing_and_is_not_lost(as_alice, claim):
    end(claim)
    before = snapshot(claim.task_id)
    answer = send(as_alice, claim)
    assert answer.status_code == 400
    text = answer.content.decode()
    assert "The mission ended before this arrived." in text
    assert "With rain water</textarea>" in text
    assert 'name="as" value="refinement"' in text
    assert snapshot(claim.task_id) == before
    assert Task.objects.count() == 1


@pytest.mark.parametrize("changes", [{"text": ""}, {"token": "x"}, {"text": "a\x00b"}])
def test_a_broken_form_changes_nothing(as_alice, claim, changes):
    before = snapshot(claim.task_id)
    assert send(as_alice, claim, **changes).status_code == 400
    assert snapshot(claim.task_id) == before


def test_only_the_owner_may_answer(as_bob, as_olga, claim):
    before = snapshot(claim.task_id)
    assert send(as_bob, claim).status_code == 404
    assert send(as_olga, claim).status_code == 404
    assert snapshot(claim.task_id) == before


def test_suggested_questions_fill_in_the_form(as_alice, claim):
    page = as_alice.get(f"/missions/{claim.task_id}/", {"text": "And the ferns?"}).content.decode()
    assert "And the ferns?</textarea>" in page
