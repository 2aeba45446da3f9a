"""Settings of the floors: nothing that a view and a job do not need."""

import os

import dj_database_url
from kombu import Queue

SECRET_KEY = "the floors sign nothing"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "tests.bench.floor.views"
INSTALLED_APPS: list[str] = []
MIDDLEWARE: list[str] = []
USE_TZ = True
USE_I18N = False
LOGGING_CONFIG = None
DATABASES = {"default": dj_database_url.parse(os.environ["FLOOR_DATABASE_URL"])}

FLOOR_REDIS_URL = os.environ["FLOOR_REDIS_URL"]
FLOOR_KIND = os.environ["FLOOR_KIND"]  # "a": a job per task; "b": a doorbell

CELERY_BROKER_URL = FLOOR_REDIS_URL
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_DEFAULT_QUEUE = f"floor-{FLOOR_KIND}"
# A hint may be lost; to remember that it is not acknowledged yet costs about 0.3 ms.
CELERY_TASK_QUEUES = [Queue(CELERY_TASK_DEFAULT_QUEUE, no_ack=True)]
CELERY_TASK_IGNORE_RESULT = True
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_DB_REUSE_MAX = 10**9  # else Celery's Django fixup closes the connection around every job
