"""The worker's side: `echo` finishes one task (floor A), `drain` finishes all that are due (floor B)."""

import redis
from celery import Celery
from django.conf import settings
from django.db import connection

from tests.bench.floor import statements

CHANNEL = f"floor-{settings.FLOOR_KIND}"
BELL = f"bell-{settings.FLOOR_KIND}"
BELL_SECONDS = 5

app = Celery("floor")
app.config_from_object("django.conf:settings", namespace="CELERY")
wire = redis.Redis.from_url(settings.FLOOR_REDIS_URL)


@app.task(ignore_result=True)
def echo(task_id: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statements.WORK, [task_id])
        if row := cursor.fetchone():
            cursor.execute(statements.ARTIFACT, row)
            cursor.execute(statements.FINISH, [task_id])
            wire.publish(CHANNEL, task_id)


@app.task(ignore_result=True)
def drain() -> None:
    wire.delete(BELL)  # before the first claim: what is inserted after it rings again
    with connection.cursor() as cursor:
        cursor.execute(statements.CLAIM)
        while row := cursor.fetchone():
            cursor.execute(statements.ARTIFACT, row)
            cursor.execute(statements.FINISH_AND_CLAIM, [row[0]])
            wire.publish(CHANNEL, str(row[0]))
