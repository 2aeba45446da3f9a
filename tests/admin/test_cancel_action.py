import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from tasks.models import Task
from tests.support.cast import snapshot
from tests.support.people import end, make_user, start

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


def run(client, *tasks):
    form = {"action": "cancel", "_selected_action": [str(claim.task_id) for claim in tasks]}
    return client.post("/admin/tasks/task/", form, follow=True)


def test_it_cancels_what_is_live_and_says_what_was_not(as_olga, alice, agent):
    live, done = start(alice, agent, "Live"), start(alice, agent, "Done")
    end(done)
    before = snapshot(done.task_id)
    page = run(as_olga, live, done).content.decode()
    assert "1 task was canceled." in page
    assert "Not canceled: 1 ended before (completed)." in page
    assert Task.objects.get(pk=live.task_id).state == Task.State.CANCELED
    assert snapshot(done.task_id) == before


def test_it_stops_at_its_batch_and_says_so(as_olga, alice, agent, monkeypatch):
    monkeypatch.setattr("tasks.admin.CANCEL_BATCH", 1)
    page = run(as_olga, start(alice, agent, "One"), start(alice, agent, "Two")).content.decode()
    assert "Only 1 tasks are looked at in one go" in page
    assert Task.objects.filter(state=Task.State.CANCELED).count() == 1


def test_those_who_may_only_look_cannot_cancel(alice, agent):
    viewer = make_user("vera")
    viewer.is_staff = True
    viewer.save()
    viewer.user_permissions.add(Permission.objects.get(codename="view_task"))
    client = Client()
    client.force_login(viewer)
    claim = start(alice, agent)
    before = snapshot(claim.task_id)
    run(client, claim)
    assert snapshot(claim.task_id) == before
