import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.utils import timezone

from tasks.models import PushConfig
from tests.support.people import make_push, make_user, start

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


@pytest.fixture
def config(alice, agent):
    return make_push(start(alice, agent).task_id, failures=7, disabled_at=timezone.now())


def run(client, kind, row):
    form = {"action": "redeliver", "_selected_action": [str(row.pk)]}
    return client.post(f"/admin/tasks/{kind}/", form, follow=True)


def test_what_was_given_up_is_tried_at_once(as_olga, config):
    assert "1 will be tried at once." in run(as_olga, "pushconfig", config).content.decode()
    config.refresh_from_db()
    assert (config.disabled_at, config.failures, config.cursor, config.epoch) == (None, 0, 1, 1)
    assert config.due_at <= timezone.now()


def test_an_event_is_delivered_again(as_olga, config):
    PushConfig.objects.update(cursor=9, is_over=True)
    run(as_olga, "pushattempt", config.attempts.get())
    config.refresh_from_db()
    assert (config.cursor, config.is_over, config.disabled_at) == (1, False, None)
    assert config.due_at <= timezone.now()


def test_those_who_may_only_look_cannot(config):
    viewer = make_user("vera")
    viewer.is_staff = True
    viewer.save()
    viewer.user_permissions.add(*Permission.objects.filter(codename__in=["view_pushconfig", "view_pushattempt"]))
    client = Client()
    client.force_login(viewer)
    before = list(PushConfig.objects.values())
    run(client, "pushconfig", config)
    run(client, "pushattempt", config.attempts.get())
    assert list(PushConfig.objects.values()) == before


def test_its_secrets_are_not_shown(as_olga, config):
    PushConfig.objects.update(token="s3cret-token", credentials="s3cret-credentials")
    page = as_olga.get(f"/admin/tasks/pushconfig/{config.pk}/change/").content.decode()
    assert "s3cret" not in page
