"""The Celery app: found from any thread, cheap on connections, quick to give up."""

import threading

import pytest
from celery import current_app
from celery.fixups.django import DjangoWorkerFixup
from django.conf import settings
from kombu.exceptions import OperationalError
from kombu.utils import functional

from bureau.celery import app
from bureau.settings import _broker


def test_every_thread_finds_it():
    found = []
    thread = threading.Thread(target=lambda: found.append(current_app.main))
    thread.start()
    thread.join()
    assert found == ["bureau"]


def test_jobs_of_all_apps_are_known():
    app.loader.import_default_modules()
    assert {"tasks.sweep", "agents.drain"} <= set(app.tasks)
    assert {entry["task"] for entry in app.conf.beat_schedule.values()} <= set(app.tasks)


def test_it_does_not_close_connections_around_jobs():
    assert DjangoWorkerFixup(app).db_reuse_max >= 10**9


def test_a_broken_connection_is_replaced_before_a_job(transactional_db):
    from django.db import connection

    from bureau.celery import drop_broken_connection

    connection.ensure_connection()
    connection.connection.close()
    connection.errors_occurred = True
    drop_broken_connection()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def test_publishing_gives_up_at_once_when_redis_is_away(tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr(functional, "sleep", pauses.append)
    with app.connection(f"redis+socket://{tmp_path}/nobody.sock") as connection, pytest.raises(OperationalError):
        app.send_task("tasks.sweep", connection=connection)
    assert pauses == []


def test_nothing_is_kept_of_results():
    assert app.conf.result_backend is None
    assert app.conf.task_ignore_result
    assert settings.CELERY_WORKER_PREFETCH_MULTIPLIER == 1


@pytest.mark.parametrize(
    ("url", "broker"),
    [
        ("redis://host:6380/2", "redis://host:6380/2"),
        ("unix:///run/valkey.sock", "redis+socket:///run/valkey.sock?virtual_host=0"),
        ("unix:///run/valkey.sock?db=3", "redis+socket:///run/valkey.sock?virtual_host=3"),
        ("unix://:secret@/run/valkey.sock", "redis+socket://:secret@/run/valkey.sock?virtual_host=0"),
    ],
)
def test_broker_address_follows_redis_address(url, broker):
    assert _broker(url) == broker
