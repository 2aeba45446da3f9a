"""`manage.py worker`: one worker process, alone."""

from __future__ import annotations

import os
import socket
import sys
import warnings
from typing import Any

from celery import signals
from celery.apps.worker import _shutdown_handler  # type: ignore[attr-defined]
from celery.exceptions import CPendingDeprecationWarning, SecurityWarning
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from bureau import logs
from bureau.celery import app
from bureau.checks import TAG
from bureau.liveness import Heartbeat


class Worker(app.Worker):  # type: ignore[misc, name-defined]  # made at run time
    """Celery's worker, which announces a warm shutdown to its log and not to standard output."""

    def install_platform_tweaks(self, worker: Any) -> None:
        super().install_platform_tweaks(worker)
        _shutdown_handler(worker, sig="SIGTERM", how="Warm", verbose=False)


class Command(BaseCommand):
    help = "Run one worker process; it takes up due tasks of its queues."
    requires_system_checks = (TAG,)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--threads",
            type=int,
            default=settings.BUREAU_WORKER_THREADS,
            help="Tasks at the same time (default: BUREAU_WORKER_THREADS, %(default)s).",
        )
        parser.add_argument("--queues", default="default", help="Queues, separated by commas (%(default)s).")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["threads"] < 1:
            raise CommandError("--threads must be 1 or more.")
        logs.set_role("worker")
        os.umask(0o077)
        # Ours have run; Celery would run Django's own, too.
        os.environ["CELERY_SKIP_CHECKS"] = "1"
        # It warns of pickled messages, which we do not accept; deploy/ shows how not to be root.
        warnings.simplefilter("ignore", SecurityWarning)
        # It announces that late acknowledgements will change, which we do not use.
        warnings.simplefilter("ignore", CPendingDeprecationWarning)
        heartbeat = Heartbeat()
        signals.worker_ready.connect(lambda **_: heartbeat.start(), weak=False)
        signals.worker_shutdown.connect(lambda **_: heartbeat.stop(), weak=False)
        worker = Worker(
            pool="threads",
            concurrency=options["threads"],
            queues=options["queues"],
            hostname=f"bureau-{os.getpid()}@{socket.gethostname()}",
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            quiet=True,
        )
        worker.start()
        sys.exit(worker.exitcode)
