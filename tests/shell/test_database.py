"""How connections are opened, on either database."""

import threading

import pytest
from django.db import connection, transaction

pytestmark = pytest.mark.both_databases


@pytest.mark.django_db
def test_sqlite_waits_its_turn_and_postgresql_is_pooled():
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA journal_mode")
            assert cursor.fetchone() == ("wal",)
            cursor.execute("PRAGMA synchronous")
            assert cursor.fetchone() == (1,)
        assert connection.transaction_mode == "IMMEDIATE"
    else:
        assert connection.pool
        assert connection.pool.max_size >= 24


@pytest.mark.django_db(transaction=True)
def test_writers_from_many_threads_all_get_through(django_user_model):
    def write(number):
        with transaction.atomic():
            count = django_user_model.objects.count()
            django_user_model.objects.create(username=f"{number}-{count}")
        connection.close()

    threads = [threading.Thread(target=write, args=[number]) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert django_user_model.objects.count() == 16
