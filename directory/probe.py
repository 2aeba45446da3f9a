"""A small conformance probe of a remote agent, on demand: what its card claims against what it does.

It sends a few short messages, which the agent will answer like any others.
"""

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from typing import Any

from a2a.utils.constants import VERSION_HEADER

from directory import cards, discovery
from directory.calls import target_of
from directory.cards import REST
from directory.enrolment import Source, source_of
from directory.exceptions import (
    OperationNotSupported,
    RemoteError,
    RemoteTaskNotCancelable,
    RemoteTaskNotFound,
)
from directory.http import Answer as HttpAnswer
from directory.http import fetch, open_client
from directory.models import Agent, ProbeResult
from directory.remote import RemoteClient, Target
from directory.untrusted import clean_line
from directory.wire import Answer, Outgoing, RemoteTask

GREETING = "Hello! This is a check of the connection. Please answer with a short text."
CALL_SECONDS = 20.0
MAX_INTERFACES = 4
KEPT = 20
REQUIRED = (
    *("name", "description", "version", "supportedInterfaces"),
    *("defaultInputModes", "defaultOutputModes", "skills"),
)
REQUIRED_OF_SKILL = ("id", "name", "description", "tags")
UNKNOWN_VERSION = "99.0"

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. What is skipped counts for nothing."""

    name: str
    outcome: str
    weight: int
    reason: str


def score(checks: list[Check]) -> int:
    """0 to 100: what passed, of what was tried, by weight."""
    tried = sum(check.weight for check in checks if check.outcome != SKIPPED)
    passed = sum(check.weight for check in checks if check.outcome == PASSED)
    return round(100 * passed / tried) if tried else 0


def probe_agent(agent: Agent) -> ProbeResult:
    """Probe a remote agent and keep the result. It may take a minute, and must not run in an event loop.

    Raises NotRemote, CredentialUnreadable; whatever the agent does wrong is in the result.
    """
    clock = time.monotonic()
    source, target = source_of(agent), target_of(agent)
    checks = asyncio.run(examine(source, target))
    result = ProbeResult.objects.create(
        agent=agent,
        score=score(checks),
        checks=[asdict(check) for check in checks],
        seconds=time.monotonic() - clock,
    )
    forget_old(agent.pk)
    return result


def forget_old(agent_id: int) -> None:
    """Keep the newest results alone."""
    old = ProbeResult.objects.filter(agent=agent_id).order_by("-id").values_list("pk", flat=True)[KEPT:]
    ProbeResult.objects.filter(pk__in=list(old)).delete()


async def examine(source: Source, target: Target) -> list[Check]:
    """All checks, in the order of the report."""
    checks, card = await _examine_card(source)
    card = card or target.card
    spoken: list[Target] = []
    for interface in cards.interfaces(card)[:MAX_INTERFACES]:
        check = await _speaks(replace(target, interface=interface, card=card))
        checks.append(check)
        if check.outcome == PASSED:
            spoken.append(replace(target, interface=interface, card=card))
    best = next((item for interface in cards.usable(card) for item in spoken if item.interface == interface), None)
    if best is None:
        return [*checks, Check("conversation", FAILED, 50, "No interface of its card works, so nothing else could be.")]
    checks.append(await _other_version(best, card))
    async with RemoteClient(best, seconds=CALL_SECONDS) as client:
        checks += await _conversation(client)
    return [*checks, *await _errors(best)]


# --- The card ------------------------------------------------------------------------------------


async def _examine_card(source: Source) -> tuple[list[Check], dict[str, Any] | None]:
    try:
        found = await discovery.read_again(source.url, source.authorizer, is_internal=source.is_internal)
    except RemoteError as error:
        return [Check("card", FAILED, 15, str(error))], None
    assert found is not None, "it was asked for without conditions"
    missing = [name for name in REQUIRED if not found.card.get(name)]
    for skill in found.card.get("skills", []):
        missing += [f"{name} of skill {skill.get('id', '?')}" for name in REQUIRED_OF_SKILL if not skill.get(name)]
    text = f"Missing or empty: {', '.join(missing)}." if missing else "All that the specification requires is there."
    checks = [Check("card", FAILED if missing else PASSED, 15, clean_line(text, 300))]
    match found.signature.state:
        case Agent.Signature.VERIFIED:
            checks.append(Check("signature", PASSED, 5, found.signature.note))
        case Agent.Signature.UNVERIFIED:
            checks.append(Check("signature", FAILED, 5, found.signature.note))
        case _:
            checks.append(Check("signature", SKIPPED, 5, "The card is not signed."))
    return checks, found.card


# --- Versions ------------------------------------------------------------------------------------


async def _speaks(target: Target) -> Check:
    """Whether one interface that the card claims answers a message."""
    interface = target.interface
    name = f"speaks {interface.binding} {interface.claimed}"
    if interface.binding not in cards.BINDINGS or not interface.version:
        return Check(name, SKIPPED, 20, "Not spoken here.")
    try:
        async with RemoteClient(target, seconds=CALL_SECONDS) as client:
            answer = await client.send(_greeting(), wait=True)
    except RemoteError as error:
        return Check(name, FAILED, 20, str(error))
    if isinstance(answer, RemoteTask) and not answer.context_id:
        return Check(name, FAILED, 20, "It answered with a task that has no context id.")
    return Check(name, PASSED, 20, f"It answered with {_what(answer)}.")


def _what(answer: Answer) -> str:
    return f"a task, {answer.state}" if isinstance(answer, RemoteTask) else "a message"


def _greeting() -> Outgoing:
    return Outgoing([{"text": GREETING}], message_id=str(uuid.uuid4()))


async def _other_version(target: Target, card: dict[str, Any]) -> Check:
    """For information: a version that it speaks at the same address and does not claim."""
    interface = target.interface
    other = "0.3" if interface.version == "1.0" else "1.0"
    name = f"speaks {interface.binding} {other}, unclaimed"
    if any((item.binding, item.version) == (interface.binding, other) for item in cards.interfaces(card)):
        return Check(name, SKIPPED, 0, "Claimed, and looked at above.")
    changed = replace(target, interface=replace(interface, version=other))
    try:
        async with RemoteClient(changed, seconds=CALL_SECONDS) as client:
            await client.get(str(uuid.uuid4()))
    except RemoteError as error:
        if isinstance(error, RemoteTaskNotFound) and not error.is_bare:
            return Check(name, PASSED, 0, "It does, although its card does not say so.")
        return Check(name, SKIPPED, 0, f"It does not, as its card says. {error}")
    return Check(name, SKIPPED, 0, "Its answer says neither.")


# --- A conversation ------------------------------------------------------------------------------


async def _conversation(client: RemoteClient) -> list[Check]:
    answer = await _try(client.send(_greeting(), wait=True))
    return [
        await _get(client, answer),
        await _cancel(client),
        await _unknown_task("get of an unknown task", 10, client.get),
        await _unknown_task("cancel of an unknown task", 5, client.cancel),
        await _stream(client),
    ]


async def _try(call: Awaitable[Answer]) -> Answer | RemoteError:
    try:
        return await call
    except RemoteError as error:
        return error


async def _get(client: RemoteClient, answer: Answer | RemoteError) -> Check:
    if not isinstance(answer, RemoteTask):
        return Check("get", SKIPPED, 15, "It answered without a task, so there is nothing to get.")
    found = await _try(client.get(answer.id))
    if isinstance(found, RemoteError):
        return Check("get", FAILED, 15, str(found))
    same = isinstance(found, RemoteTask) and (found.id, found.context_id) == (answer.id, answer.context_id)
    return Check(
        "get", PASSED if same else FAILED, 15, "The same task." if same else "Another task than was asked for."
    )


async def _cancel(client: RemoteClient) -> Check:
    """A task that has ended must be refused; one that goes on may be canceled, or not."""
    answer = await _try(client.send(_greeting()))
    if isinstance(answer, RemoteError):
        return Check("cancel", FAILED, 10, f"A message that need not be waited for was refused. {answer}")
    if not isinstance(answer, RemoteTask):
        return Check("cancel", SKIPPED, 10, "It answered without a task, so there is nothing to cancel.")
    found = await _try(client.cancel(answer.id))
    match found:
        case RemoteTaskNotCancelable():
            return Check("cancel", PASSED, 10, "Refused as the protocol says: it was too late.")
        case RemoteTask(state="canceled"):
            return Check("cancel", PASSED, 10, "Canceled.")
        case RemoteTask(state=state):
            # To cancel is to ask: the end may have been nearer.
            return Check("cancel", PASSED, 10, f"It took the request, and the task is {state}.")
        case _:
            return Check("cancel", FAILED, 10, str(found))


async def _unknown_task(name: str, weight: int, call: Callable[[str], Awaitable[RemoteTask]]) -> Check:
    try:
        await call(str(uuid.uuid4()))
    except RemoteTaskNotFound:
        return Check(name, PASSED, weight, "Refused as the protocol says.")
    except RemoteError as error:
        return Check(name, FAILED, weight, f"“Task not found” was expected. {error}")
    return Check(name, FAILED, weight, "It gave a task that was never made.")


async def _stream(client: RemoteClient) -> Check:
    claims = client.target.streams
    kinds: list[str] = []
    last: RemoteTask | None = None
    try:
        async with asyncio.timeout(CALL_SECONDS), aclosing(client.stream(_greeting())) as events:
            async for event in events:
                kinds.append(event.kind)
                last = event.task
    except OperationNotSupported as error:
        if claims:
            return Check("stream", FAILED, 10, str(error))
        return Check("stream", PASSED, 5, "It claims no streaming, and refuses it as the protocol says.")
    except (RemoteError, TimeoutError) as error:
        return Check("stream", FAILED, 10, str(error) or "It did not end in time.")
    if not claims:
        return Check("stream", SKIPPED, 5, "It streams, although its card does not say so.")
    if kinds[0] not in {"task", "message"}:
        return Check("stream", FAILED, 10, f"It began with an event of kind {kinds[0]}, not with the task.")
    if last and not last.is_settled:
        return Check("stream", FAILED, 10, f"It ended while the task was {last.state}.")
    return Check("stream", PASSED, 10, f"{len(kinds)} events, from the task to its end.")


# --- Errors --------------------------------------------------------------------------------------


async def _errors(target: Target) -> list[Check]:
    """Requests that no client of ours would make, and what must come back."""
    interface = target.interface
    version = {VERSION_HEADER: interface.version}
    if interface.binding == REST:
        wrong = {VERSION_HEADER: UNKNOWN_VERSION}
        url = f"{interface.url.rstrip('/')}/tasks/{uuid.uuid4()}"
        if interface.version != "1.0":
            return []
        return [await _rest_version(target, url, wrong)]
    checks = [
        await _rpc_error(target, "unknown method", _call("NoSuchMethod"), version, -32601),
        await _rpc_error(target, "broken JSON", b'{"jsonrpc": "2.0", "id": 1, ', version, -32700),
    ]
    if interface.version == "1.0":
        method = _call("GetTask", {"id": str(uuid.uuid4())})
        wrong = {VERSION_HEADER: UNKNOWN_VERSION}
        checks.append(await _rpc_error(target, "unknown version", method, wrong, -32009))
    return checks


def _call(method: str, params: dict[str, Any] | None = None) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}).encode()


async def _rpc_error(target: Target, name: str, body: bytes, headers: dict[str, str], expected: int) -> Check:
    answer = await _raw(target, "POST", target.interface.url, body, headers)
    if isinstance(answer, RemoteError):
        return Check(name, FAILED, 5, str(answer))
    try:
        code = answer.json()["error"]["code"]
    except (RemoteError, KeyError, TypeError):
        return Check(name, FAILED, 5, f"HTTP {answer.status} without a JSON-RPC error; {expected} was expected.")
    if code != expected:
        return Check(name, FAILED, 5, clean_line(f"The error code is {code}; {expected} was expected.", 200))
    return Check(name, PASSED, 5, f"Error {expected}, as the protocol says.")


async def _rest_version(target: Target, url: str, headers: dict[str, str]) -> Check:
    answer = await _raw(target, "GET", url, None, headers)
    if isinstance(answer, RemoteError):
        return Check("unknown version", FAILED, 5, str(answer))
    fits = answer.status == 400 and b"VERSION_NOT_SUPPORTED" in answer.body
    text = "HTTP 400 VERSION_NOT_SUPPORTED"
    reason = f"{text}, as the protocol says." if fits else f"HTTP {answer.status}; {text} was expected."
    return Check("unknown version", PASSED if fits else FAILED, 5, reason)


async def _raw(
    target: Target, method: str, url: str, body: bytes | None, headers: dict[str, str]
) -> HttpAnswer | RemoteError:
    headers = {"Content-Type": "application/json", **headers}
    try:
        async with open_client(authorizer=target.authorizer, public_only=not target.is_internal) as client:
            return await fetch(client, method, url, content=body, headers=headers)
    except RemoteError as error:
        return error
