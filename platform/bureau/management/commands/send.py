"""`manage.py send URL "text"`: a message to any A2A agent, straight from the command line."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection

from bureau import startup
from bureau.management import access
from directory import calls, memory
from directory.credentials import authorizer
from directory.discovery import discover
from directory.exceptions import DirectoryError, RemoteError, TimedOut
from directory.health import check_available
from directory.models import Agent, OutgoingRequest
from directory.remote import CallReport, RemoteClient, Target
from directory.untrusted import json_text, printable
from directory.wire import Answer, Outgoing, RemoteEvent, RemoteMessage, RemoteTask

EXIT_STATUS = {"completed": 0, "failed": 2, "rejected": 3, "input-required": 4, "auth-required": 4, "canceled": 5}
SENDER = "command"
# For one call. When the time is up, however short it was, the agent is still asked to stop.
LEAST_SECONDS, MOST_SECONDS = 10.0, 60.0


class Command(BaseCommand):
    help = (
        "Send a message to an A2A agent, by URL or by its short name in the directory, and print what it answers. "
        "Exit status: 0 completed, 2 failed, 3 rejected, 4 something is asked back, 5 canceled, 1 anything else."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", metavar="URL", help="Any address of the agent, or its short name.")
        parser.add_argument("text", nargs="+", help="What to say.")
        parser.add_argument("--stream", action="store_true", help="Print the answer while it comes.")
        parser.add_argument("--json", action="store_true", help="Print JSON; with --stream one event on each line.")
        parser.add_argument("--no-wait", action="store_true", help="Print the task as soon as there is one.")
        parser.add_argument("--task", default="", metavar="ID", help="Answer what this task of the agent's asked.")
        parser.add_argument("--context", default="", metavar="ID", help="Go on in this context of the agent's.")
        parser.add_argument("--seconds", type=float, default=300.0, help="How long to wait (default: %(default)g).")
        access.add_options(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        text = " ".join(options["text"]).strip()
        if not text:
            raise CommandError("Say something.")
        message = Outgoing([{"text": text}], message_id="", context_id=options["context"], task_id=options["task"])
        try:
            agent = _known(options["agent"])
            target = _target(agent, options)
            answer = _exchange(agent, target, calls.with_id(message), options)
        except DirectoryError as error:
            raise CommandError(str(error)) from None
        sys.exit(_status(answer))


def _known(word: str) -> Agent | None:
    """The agent of that short name, or at that address; None for an address that is not in the directory."""
    has_tables = OutgoingRequest._meta.db_table in connection.introspection.table_names()
    if "://" not in word:
        if not has_tables:
            startup.require_tables()
        agent = Agent.objects.filter(slug=word, kind=Agent.Kind.REMOTE).first()
        if agent is None:
            raise CommandError(f"There is no remote agent {word!r}, and that is no URL either.")
        return agent
    if not has_tables:
        return None
    remote = Agent.objects.filter(kind=Agent.Kind.REMOTE)
    return remote.filter(card_url=word).first() or remote.filter(url__in={word, word.rstrip("/")}).first()


def _target(agent: Agent | None, options: dict[str, Any]) -> Target:
    secret = access.secret_from(options)
    if agent:
        agent = check_available(agent)
        if secret:
            raise CommandError(f"{agent.slug} has its credential in the directory: agents credential {agent.slug}.")
        return calls.target_of(agent)
    give = authorizer(secret, options["agent"]) if secret else None
    found = asyncio.run(discover(options["agent"], give))
    return calls.target_at(found, authorizer(secret, found.interface.url) if secret else None)


def _exchange(agent: Agent | None, target: Target, message: Outgoing, options: dict[str, Any]) -> Answer:
    """The conversation; of an agent in the directory, what there is to learn from it is kept."""
    reports: list[CallReport] = []
    request_id = None
    if agent:
        request_id = memory.remember(
            message, url=target.interface.url, name=agent.name, agent=agent, principal=SENDER, sender=SENDER
        )
    try:
        answer = asyncio.run(_converse(target, message, options, reports))
    except RemoteError as error:
        if request_id:
            memory.note_error(request_id, error)
        raise
    finally:
        for report in reports:
            calls.record(report)
    if request_id:
        memory.note_answer(request_id, answer)
    return answer


async def _converse(target: Target, message: Outgoing, options: dict[str, Any], reports: list[CallReport]) -> Answer:
    """The whole exchange; when it is interrupted or takes too long, the agent is asked to stop."""
    printer = Printer(as_json=options["json"], live=options["stream"])
    seen: list[Answer] = []
    seconds = min(max(options["seconds"], LEAST_SECONDS), MOST_SECONDS)
    async with RemoteClient(target, seconds=seconds, on_call=reports.append) as client:
        talking = asyncio.create_task(_talk(client, message, options, printer, seen))
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, talking.cancel)
        try:
            done, _ = await asyncio.wait([talking], timeout=options["seconds"])
            if not done:
                sys.stderr.write(f"No end after {options['seconds']:g} seconds.\n")
                talking.cancel()
                await asyncio.wait([talking])
        finally:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        if not talking.cancelled():
            talking.result()
        elif seen and isinstance(seen[-1], RemoteTask) and not seen[-1].is_terminal:
            seen.append(await client.cancel(seen[-1].id))
        else:
            raise TimedOut("Given up before there was a task.")
    printer.end(seen[-1])
    return seen[-1]


async def _talk(
    client: RemoteClient, message: Outgoing, options: dict[str, Any], printer: Printer, seen: list[Answer]
) -> None:
    """Show what happens, and keep the latest answer in `seen`."""
    async with aclosing(_events(client, message, options)) as events:
        async for event in events:
            printer.show(event)
            if event.task:
                seen.append(event.task)
            elif event.message:
                seen.append(RemoteMessage(event.message))


async def _events(client: RemoteClient, message: Outgoing, options: dict[str, Any]) -> AsyncGenerator[RemoteEvent]:
    if options["stream"] and client.target.streams and not options["no_wait"]:
        task: RemoteTask | None = None
        async with aclosing(client.stream(message)) as events:
            async for event in events:
                task = event.task
                yield event
        answer: Answer | None = task
    else:
        answer = await client.send(message)
        if isinstance(answer, RemoteMessage):
            yield RemoteEvent("message", message=answer.message)
            return
        yield RemoteEvent("task", task=answer)
    if options["no_wait"] or not isinstance(answer, RemoteTask):
        return
    async with aclosing(client.follow(answer)) as events:
        async for event in events:
            yield event


class Printer:
    """Shows an exchange: live, as JSON, or only how it ended."""

    def __init__(self, *, as_json: bool, live: bool) -> None:
        self._as_json = as_json
        self._live = live
        self._shown = 0

    def show(self, event: RemoteEvent) -> None:
        if not self._live:
            return
        if self._as_json:
            sys.stdout.write(json_text(_event_dict(event)) + "\n")
        elif event.kind == "artifact" and event.artifact:
            self._write("" if event.append else "\n" * bool(self._shown), event.artifact["parts"])
        elif event.kind == "status" and event.message and not (event.task and event.task.is_settled):
            sys.stderr.write(f"… {printable(_text(event.message['parts']))}\n")
        sys.stdout.flush()

    def end(self, answer: Answer) -> None:
        """What is left to say when it is over."""
        if self._as_json:
            if not self._live:
                sys.stdout.write(json_text(_answer_dict(answer), indent=2) + "\n")
            return
        if not self._shown:
            self._write("", answer.parts)
        elif isinstance(answer, RemoteTask) and answer.message and answer.state != "completed":
            self._write("\n", answer.message["parts"])
        if self._shown:
            sys.stdout.write("\n")
        if isinstance(answer, RemoteTask) and answer.state != "completed":
            sys.stderr.write(f"The task {printable(answer.id)} is {answer.state}.\n")

    def _write(self, before: str, parts: list[dict[str, Any]]) -> None:
        text = printable(_text(parts))
        self._shown += len(text)
        sys.stdout.write(before + text)


def _text(parts: list[dict[str, Any]]) -> str:
    return "\n".join(_part(part) for part in parts)


def _part(part: dict[str, Any]) -> str:
    if "text" in part:
        return str(part["text"])
    if "data" in part:
        return json_text(part["data"], indent=2)
    name = part.get("filename", "file")
    return f"[{name}: {part['url']}]" if "url" in part else f"[{name}, {len(part.get('raw', '')) * 3 // 4} bytes]"


def _answer_dict(answer: Answer) -> dict[str, Any]:
    """A task or a message in A2A's shape, with our word for its state."""
    if isinstance(answer, RemoteMessage):
        return {"message": {**answer.message, "contextId": answer.context_id}}
    status: dict[str, Any] = {"state": answer.state}
    if answer.status_at:
        status["timestamp"] = answer.status_at.isoformat()
    if answer.message:
        status["message"] = answer.message
    return {
        "id": answer.id,
        "contextId": answer.context_id,
        "status": status,
        "artifacts": answer.artifacts,
        "history": answer.history,
        "metadata": answer.metadata,
    }


def _event_dict(event: RemoteEvent) -> dict[str, Any]:
    match event.kind:
        case "task" if event.task:
            return {"task": _answer_dict(event.task)}
        case "status" if event.task:
            return {"status": _answer_dict(event.task)["status"], "taskId": event.task.id}
        case "artifact":
            return {"artifact": event.artifact, "append": event.append, "lastChunk": event.last_chunk}
        case _:
            return {"message": event.message}


def _status(answer: Answer) -> int:
    return EXIT_STATUS.get(answer.state, 0) if isinstance(answer, RemoteTask) else 0
