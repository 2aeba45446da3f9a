"""`manage.py up`: everything that a running Bureau needs, as one process tree."""

from __future__ import annotations

import http.client
import logging
import os
import socket
from typing import Any

from django.conf import settings
from django.core.management import CommandError
from django.core.management.base import BaseCommand, CommandParser

from bureau import embedded, logs, parts, startup
from bureau.supervisor import Part, PartFailed, Supervisor
from tasks import claims

logger = logging.getLogger(__name__)


class Command(BaseCommand):
    help = "Start the web server, workers, the scheduler and the embedded parts; Ctrl-C ends them all."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        # manage.py takes these out and sets the environment; they are here for --help.
        parser.add_argument("--host", help="Address to listen on (BUREAU_HOST).")
        parser.add_argument("--port", help="Port to listen on (BUREAU_PORT).")
        parser.add_argument("--workers", help="Number of worker processes (BUREAU_WORKERS).")
        parser.add_argument("--data", help="Data folder (BUREAU_DATA).")

    def handle(self, *args: Any, **options: Any) -> None:
        logs.set_role("up")
        os.umask(0o077)
        doubts = startup.check_settings()
        with embedded.hold(settings.BUREAU_DATA, "manage.py up") as is_ours:
            if not is_ours:
                holder = embedded.holder(settings.BUREAU_DATA)
                raise CommandError(
                    f"The data folder {settings.BUREAU_DATA} is in use by {holder}; "
                    "end that, or choose another folder with --data."
                )
            with startup.listen(settings.BUREAU_HOST, settings.BUREAU_PORT) as listener:
                startup.check_database()
                if not settings.BUREAU_EMBEDDED_REDIS:
                    startup.check_redis()
                for doubt in doubts:
                    logger.warning(doubt, extra={"action": "check.doubt"})
                self._serve(listener)

    def _serve(self, listener: socket.socket) -> None:
        supervisor = Supervisor()
        with supervisor.signals() as wakeup:
            password = self._prepare()
            try:
                if not supervisor.is_stopping:
                    web = self._start(supervisor, listener)
                    self._wait_for_web(supervisor, wakeup, web)
                if not supervisor.is_stopping:
                    self._welcome(password)
                supervisor.run(wakeup)
            except PartFailed as error:
                raise CommandError(str(error)) from None
            finally:
                supervisor.stop()
                if settings.BUREAU_EMBEDDED_REDIS:
                    parts.remove_socket(settings.BUREAU_VALKEY_SOCKET)
        logger.info("Everything has ended", extra={"action": "up.end"})

    def _prepare(self) -> str:
        """Bring the database up to date; returns a password to show, the first time."""
        startup.prepare_database()
        password = "" if settings.BUREAU_PRODUCTION else startup.give_admin_password()
        if settings.BUREAU_EMBEDDED_REDIS and settings.BUREAU_EMBEDDED_DATABASE:
            # Whoever worked with this folder's queue and database is gone; their tasks need not wait for the leases.
            claims.release_all()
        startup.close_database()
        return password

    def _start(self, supervisor: Supervisor, listener: socket.socket) -> Part:
        parts.export_settings()
        if settings.BUREAU_EMBEDDED_REDIS:
            valkey = parts.valkey()
            supervisor.start(valkey)
            parts.wait_for_valkey(valkey)
        web = parts.web(listener.fileno())
        supervisor.start(web)
        for number in range(1, settings.BUREAU_WORKERS + 1):
            supervisor.start(parts.worker(number))
        supervisor.start(parts.scheduler())
        return web

    def _wait_for_web(self, supervisor: Supervisor, wakeup: int, web: Part) -> None:
        """The socket accepts from the beginning; the address is worth printing once somebody answers."""
        while not supervisor.is_stopping:
            supervisor.tend()
            if web.is_running and _answers_http():
                return
            supervisor.wait(wakeup, 0.05)

    def _welcome(self, password: str) -> None:
        lines = [f"\nBureau runs at {settings.BUREAU_PUBLIC_URL}/   (Ctrl-C ends it)"]
        if password:
            lines.append(f"Sign in as {startup.ADMIN} with the password {password}")
            lines.append(f"It is shown this once; `manage.py changepassword {startup.ADMIN}` sets another.")
        elif settings.BUREAU_PRODUCTION:
            lines.append("`manage.py createsuperuser` makes the first account.")
        self.stdout.write("\n".join(lines) + "\n")
        self.stdout.flush()


def _answers_http() -> bool:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.BUREAU_HOST, settings.BUREAU_HOST)  # noqa: S104
    connection = http.client.HTTPConnection(host, settings.BUREAU_PORT, timeout=0.5)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
