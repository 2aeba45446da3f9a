"""What has to hold before anything is started, and what an empty data folder is filled with."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core import checks
from django.core.management import CommandError, call_command
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.utils import ConnectionHandler

from bureau.checks import TAG
from bureau.embedded import answers
from directory.models import Agent, ApiClient

ADMIN = "admin"
# Any number will do, as long as nothing else in this database uses it.
SETUP_LOCK = 7_233_401


def check_settings() -> list[str]:
    """What is doubtful about the settings. Raises CommandError with a line for each that is wrong."""
    found = [message for message in checks.run_checks(tags=[TAG]) if not message.is_silenced()]
    errors, doubts = (
        [f"{message.msg} {message.hint or ''}".strip() for message in found if message.is_serious() == serious]
        for serious in (True, False)
    )
    if errors:
        raise CommandError("\n".join(errors))
    return doubts


def check_database() -> None:
    """Raises CommandError when the database cannot be reached."""
    database = settings.DATABASES["default"]
    # Without the pool, which would try again for a while and then say only that it gave up.
    options = {name: value for name, value in database["OPTIONS"].items() if name != "pool"}
    probe = ConnectionHandler({"default": database | {"OPTIONS": options}})["default"]
    try:
        # Two that open a new SQLite file at once, and switch it to WAL, do not wait for each other.
        with _alone_in_folder(), contextlib.closing(probe), probe.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        # What libpq writes below the first line are guesses and repetitions.
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(" .")
        raise CommandError(
            f"The database at {database_name()} cannot be reached: {reason}. Check DATABASE_URL."
        ) from None


def database_name() -> str:
    """The database's address for people, without its password."""
    database = settings.DATABASES["default"]
    if "sqlite" in database["ENGINE"]:
        return str(database["NAME"])
    return f"{database['HOST'] or 'localhost'}:{database['PORT'] or 5432}/{database['NAME']}"


def check_redis() -> None:
    """Raises CommandError when the Redis that was named does not answer."""
    reason = answers(settings.REDIS_URL, timeout=3)
    if reason:
        parts = urlsplit(settings.REDIS_URL)
        where = parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or 6379}"
        raise CommandError(f"Redis at {where} cannot be reached: {reason} Check REDIS_URL.")


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, which web processes inherit. Raises CommandError when the port is taken."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except socket.gaierror:
        raise CommandError(f"{host} is not an address of this machine; choose another with --host.") from None
    except OSError as error:
        option = "--host" if error.errno == errno.EADDRNOTAVAIL else "--port"
        reason = os.strerror(error.errno or 0)
        raise CommandError(f"Port {port} on {host} cannot be used ({reason}); choose another with {option}.") from None


def require_tables() -> None:
    """Raises CommandError when the database has not been set up yet."""
    if ApiClient._meta.db_table not in connection.introspection.table_names():
        raise CommandError(
            f"The database at {database_name()} is empty. Run `manage.py up`, or `manage.py setup` where the parts "
            "run alone."
        )


def prepare_database() -> None:
    """Migrate, and seed the directory if it is empty. Safe to run from several machines at once."""
    with _alone():
        call_command("migrate", verbosity=0, interactive=False, skip_checks=True)
        if not Agent.objects.exists():
            call_command("seed", verbosity=0, skip_checks=True)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One at a time on one database: two that migrate get in each other's way."""
    if connection.vendor != "postgresql":
        with _alone_in_folder():
            yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [SETUP_LOCK])
        try:
            yield
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [SETUP_LOCK])


@contextlib.contextmanager
def _alone_in_folder() -> Iterator[None]:
    with (settings.BUREAU_DATA / "setup.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def ensure_admin() -> None:
    """Let there be a superuser to act for; one that is made here has no password yet."""
    users = get_user_model().objects
    if not users.filter(is_superuser=True).exists():
        # Two first commands at once both find nobody; one of them makes the account.
        with contextlib.suppress(IntegrityError), transaction.atomic():
            users.create_superuser(ADMIN, "", None)


def give_admin_password() -> str:
    """A new password for the generated admin, when nobody could sign in yet; else empty. To be shown once."""
    ensure_admin()
    users = get_user_model().objects
    superusers = list(users.filter(is_superuser=True, is_active=True))
    if any(user.has_usable_password() for user in superusers):
        return ""
    admin = next((user for user in superusers if user.get_username() == ADMIN), None)
    if admin is None:
        return ""
    password = secrets.token_urlsafe(12)
    admin.set_password(password)
    admin.save(update_fields=["password"])
    return password


def close_database() -> None:
    """Let go of the database, so that nothing of it is shared with the processes started next."""
    connection.close()
    if connection.vendor == "postgresql":
        connection.close_pool()  # type: ignore[attr-defined]  # only PostgreSQL has one
