"""`manage.py scheduler`: Celery's beat, which rings for what is due. One is enough; more do no harm."""

from __future__ import annotations

import signal
import sys
from typing import Any

from celery.beat import Scheduler, Service
from django.core.management.base import BaseCommand

from bureau import logs
from bureau.celery import app
from bureau.checks import TAG


class Command(BaseCommand):
    help = "Run the periodic scheduler: it has expired leases and due tasks taken up."
    requires_system_checks = (TAG,)

    def handle(self, *args: Any, **options: Any) -> None:
        logs.set_role("scheduler")
        # Ends the service's loop in an orderly way, as Ctrl-C does.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        app.finalize()
        # What is due is in the database: there is nothing to remember in a file.
        Service(app, scheduler_cls=Scheduler).start()
