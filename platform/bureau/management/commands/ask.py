"""`manage.py ask "…"`: a mission from the command line, with a running Bureau or without one."""

from __future__ import annotations

import asyncio
import logging
import mimetypes
import os
import signal
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser

from agents.costs import Bill, bill_of
from agents.following import follow_due
from bureau import logs, startup
from bureau.ondemand import OnDemand, on_demand
from bureau.transcript import Transcript
from directory.exceptions import AgentNotFound
from directory.identity import Caller
from directory.services import get_agent
from directory.untrusted import json_text
from tasks import claims
from tasks.aio import close_pool, in_db
from tasks.content import Incoming
from tasks.exceptions import TaskError, TaskNotInState
from tasks.files import file_part, store_file
from tasks.follow import follow, settles
from tasks.models import Task
from tasks.queries import TaskView, fetch_task
from tasks.services import Sent, cancel_task, send_message

EXIT_STATUS = {
    Task.State.COMPLETED: 0,
    Task.State.FAILED: 2,
    Task.State.REJECTED: 3,
    Task.State.INPUT_REQUIRED: 4,
    Task.State.AUTH_REQUIRED: 4,
    Task.State.CANCELED: 5,
}


class Command(BaseCommand):
    help = (
        "Send a message to an agent and print what it answers. Exit status: 0 completed, 2 failed, "
        "3 rejected, 4 something is asked back, 5 canceled, 1 anything else."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("text", nargs="*", help="What to ask.")
        parser.add_argument("--agent", default="assistant", metavar="SLUG", help="Who to ask (%(default)s).")
        parser.add_argument("--user", metavar="NAME", help="Who asks (default: the first superuser).")
        parser.add_argument("--file", action="append", default=[], metavar="PATH", help="Attach a file; repeatable.")
        parser.add_argument("--task", default="", metavar="ID", help="Answer what this task asked back.")
        parser.add_argument(
            "--json", action="store_true", help="Print the whole task, and what it cost, as one JSON object."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        logs.set_role("ask")
        logging.getLogger().setLevel(logging.WARNING)
        os.umask(0o077)
        text = " ".join(options["text"]).strip()
        if not text and not options["file"]:
            raise CommandError("Say what to ask, for example: manage.py ask 'List the agents'.")
        files = [_read(Path(name)) for name in options["file"]]
        with on_demand() as running:
            caller = _caller(options["user"])
            sent = _send(caller, options["agent"], text, files, options["task"])
            sys.exit(asyncio.run(_follow(caller, sent, running, as_json=options["json"])))


def _read(path: Path) -> tuple[str, bytes]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.") from None
    if len(content) > settings.BUREAU_MAX_BODY_BYTES:
        raise CommandError(f"{path} is larger than BUREAU_MAX_BODY_BYTES ({settings.BUREAU_MAX_BODY_BYTES}).")
    return path.name, content


def _caller(name: str | None) -> Caller:
    if not name and not settings.BUREAU_PRODUCTION:
        startup.ensure_admin()
    users = get_user_model().objects.filter(is_active=True).order_by("pk")
    user = users.filter(username=name).first() if name else users.filter(is_superuser=True).first()
    if user is None:
        raise CommandError(f"There is no user {name!r}." if name else "There is no superuser; name one with --user.")
    return Caller.from_user(user)


def _send(caller: Caller, slug: str, text: str, files: list[tuple[str, bytes]], task_id: str) -> Sent:
    try:
        agent = get_agent(slug)
        attached = []
        for name, content in files:
            media_type = mimetypes.guess_type(name)[0] or ""
            attached.append(file_part(store_file(caller.principal, name, media_type, content)))
        return send_message(caller, agent, Incoming.from_text(text, *attached), task_id=task_id or None)
    except AgentNotFound:
        raise CommandError(f"There is no agent {slug!r} to ask.") from None
    except TaskError as error:
        raise CommandError(str(error)) from None


async def _follow(caller: Caller, sent: Sent, running: OnDemand, *, as_json: bool) -> int:
    """Print what happens until the task settles; Ctrl-C cancels it. Returns the exit status."""
    loop = asyncio.get_running_loop()
    watching = asyncio.create_task(_watch(sent, Transcript(quiet=as_json)))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, watching.cancel)
    tending = asyncio.create_task(_tend(running))
    try:
        await asyncio.wait([watching, tending], return_when=asyncio.FIRST_COMPLETED)
        if tending.done():
            await tending  # only ever ends with an error
        if watching.cancelled():
            await _cancel(caller, sent.task_id)
        else:
            await watching
        view = await in_db(fetch_task, caller, sent.task_id)
        bill = await in_db(_bill, sent.task_id)
    finally:
        tending.cancel()
        watching.cancel()
        await asyncio.gather(tending, watching, return_exceptions=True)
        close_pool()
    if as_json:
        found = as_dict(view) | {"cost": bill.as_json()}
        sys.stdout.write(json_text(found, indent=2) + "\n")
    elif watching.cancelled():
        sys.stderr.write("\nCanceled.\n")
    return EXIT_STATUS.get(Task.State(view.state), 1)


def _bill(task_id: uuid.UUID) -> Bill:
    return bill_of(Task.objects.get(pk=task_id))


async def _watch(sent: Sent, transcript: Transcript) -> None:
    async for batch in follow(sent.task_id, sent.seq):
        for event in batch:
            transcript.show(event)
            if settles(event):
                transcript.end(sent.task_id)
                return


async def _tend(running: OnDemand) -> None:
    """Keep what the task needs running; with a worker of our own, also do what the scheduler would."""
    swept_at = time.monotonic()
    while True:
        await asyncio.sleep(0.5)
        running.tend()
        if running.has_worker:
            await in_db(follow_due)
        if running.has_worker and time.monotonic() - swept_at > settings.BUREAU_SWEEP_SECONDS:
            swept_at = time.monotonic()
            await in_db(claims.sweep)


async def _cancel(caller: Caller, task_id: uuid.UUID) -> None:
    try:
        await in_db(cancel_task, caller, task_id, "Canceled from the command line.")
    except TaskNotInState:
        return  # it was faster


def as_dict(view: TaskView) -> dict[str, Any]:
    """The task in A2A's shape, with our word for its state and the agent that has it."""
    status: dict[str, Any] = {"state": view.state, "timestamp": view.status_at.isoformat()}
    if view.status_message:
        status["message"] = view.status_message
    return {
        "id": str(view.id),
        "contextId": view.context_key,
        "agent": view.agent_slug,
        "status": status,
        "artifacts": view.artifacts,
        "history": view.history,
        "metadata": view.metadata,
    }
