"""The Celery app. Messages only wake a worker; the rows of `tasks` say what there is to do."""

from typing import Any

from celery import Celery, signals

from tasks.aio import refresh_connection

app = Celery("bureau")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(related_name="jobs")


@signals.task_prerun.connect
def drop_broken_connection(**kwargs: Any) -> None:
    """Take the place of Celery's own handler, which would close the connection whether broken or not."""
    refresh_connection()


@signals.setup_logging.connect
def keep_logging(**kwargs: Any) -> None:
    """Celery configures logging unless somebody listens here; ours is configured by Django."""
