"""`manage.py web`: one web process, alone."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import socket
from typing import Any

import uvicorn
from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.db import DatabaseError

from bureau import logs, startup

logger = logging.getLogger(__name__)


class Command(BaseCommand):
    help = "Run one web process on BUREAU_HOST and BUREAU_PORT (--host, --port)."

    def add_arguments(self, parser: CommandParser) -> None:
        # A listening socket inherited from `up`.
        parser.add_argument("--fd", type=int, help=argparse.SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        logs.set_role("web")
        os.umask(0o077)
        if options["fd"] is None:
            listener = startup.listen(settings.BUREAU_HOST, settings.BUREAU_PORT)
            _refuse_empty_database()
            # `up` says it by itself, when somebody answers.
            host = f"[{settings.BUREAU_HOST}]" if ":" in settings.BUREAU_HOST else settings.BUREAU_HOST
            logger.info("Listening on http://%s:%s", host, settings.BUREAU_PORT, extra={"action": "web.listen"})
        else:
            listener = socket.socket(fileno=options["fd"])
        config = uvicorn.Config(
            "bureau.asgi:application",
            lifespan="off",
            ws="none",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=3,
        )
        uvicorn.Server(config).run(sockets=[listener])


def _refuse_empty_database() -> None:
    """Raises CommandError. One that cannot be reached now may be there by the first request."""
    with contextlib.suppress(DatabaseError):
        startup.require_tables()
    startup.close_database()
