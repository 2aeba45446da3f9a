import pytest

from tasks.claims import note_stopped
from tasks.models import Task
from tests.support.cast import snapshot
from tests.support.people import end

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


def cancel(client, claim):
    return client.post(f"/missions/{claim.task_id}/cancel/", follow=True)


def test_it_cancels(as_alice, claim):
    page = cancel(as_alice, claim).content.decode()
    assert "The mission was canceled." in page
    assert "Canceled by alice." in page
    assert Task.objects.get().state == Task.State.CANCELED


def test_an_operator_cancels_anybodys(as_olga, claim):
    cancel(as_olga, claim)
    assert Task.objects.get().state == Task.State.CANCELED


def test_it_loses_to_the_end_and_says_so(as_alice, claim):
    end(claim)
    before = snapshot(claim.task_id)
    assert "has ended already (completed)" in cancel(as_alice, claim).content.decode()
    assert snapshot(claim.task_id) == before


def test_nobody_else_may(as_bob, claim):
    before = snapshot(claim.task_id)
    assert cancel(as_bob, claim).status_code == 404
    assert snapshot(claim.task_id) == before


def test_it_says_how_far_the_stopping_has_come_and_how_long_it_took(as_alice, as_bob, claim):
    address = f"/missions/{claim.task_id}/stop/"
    assert as_alice.get(address).content.decode().strip() == ""
    page = cancel(as_alice, claim).content.decode()
    assert "1 of 1 still at work" in page
    assert f'hx-get="{address}"' in page
    note_stopped(claim)
    part = as_alice.get(address).content.decode()
    assert "All stopped" in part
    assert "its worker let go, after" in part
    assert "hx-get" not in part
    assert as_bob.get(address).status_code == 404


def test_what_nobody_had_begun_needs_no_stopping(as_alice, alice, agent):
    from directory.identity import Caller
    from tasks.content import Incoming
    from tasks.services import send_message

    sent = send_message(Caller.from_user(alice), agent, Incoming.from_text("Later"))
    assert "Nothing was at work when it was canceled" in cancel(as_alice, sent).content.decode()
