"""Keeps what is known of remote agents true: reads their cards again, and asks for signs of life.

The rows say what is due. A round claims some of it, asks all of those agents at once, and writes down
what they said; a round that dies leaves claims that run out.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from django.utils import timezone

from directory.calls import target_of
from directory.enrolment import Reading, Source, apply_reading, read, source_of
from directory.exceptions import CredentialUnreadable, NotRemote, RemoteError
from directory.health import claim_due, record_probe
from directory.models import Agent
from directory.remote import RemoteClient, Target

logger = logging.getLogger(__name__)

T = TypeVar("T")

BATCH = 100
# Of one sign of life; a card has the client's own limits.
PROBE_SECONDS = 10.0
# Longer than any round takes.
CLAIM_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Sign:
    """What came of asking one agent for a sign of life."""

    agent_id: int
    started_at: datetime
    seconds: float
    error: RemoteError | None


def tend() -> int:
    """One round; returns how many agents it looked at. Safe to run at any time, in any number of processes."""
    sources = _loaded(claim_due("refresh_due_at", CLAIM_SECONDS, BATCH), source_of)
    targets = _loaded(claim_due("probe_due_at", CLAIM_SECONDS, BATCH), target_of)
    if not sources and not targets:
        return 0
    readings, signs = asyncio.run(_ask_all(sources, targets))
    for source, reading in zip(sources, readings, strict=True):
        apply_reading(source.agent_id, reading)
    for sign in signs:
        record_probe(sign.agent_id, sign.started_at, sign.seconds, sign.error)
    return len(sources) + len(targets)


def _loaded(agent_ids: list[int], load: Callable[[Agent], T]) -> list[T]:
    """What is needed of each agent, but for those whose credential cannot be read: it has to be entered again."""
    found = []
    for agent in Agent.objects.filter(pk__in=agent_ids):
        try:
            found.append(load(agent))
        except (CredentialUnreadable, NotRemote) as error:
            logger.warning("Agent %s is not looked after: %s", agent.slug, error, extra={"action": "upkeep.skipped"})
    return found


async def _ask_all(sources: Sequence[Source], targets: Sequence[Target]) -> tuple[list[Reading], list[Sign]]:
    readings, signs = await asyncio.gather(
        asyncio.gather(*(read(source) for source in sources)),
        asyncio.gather(*(ask_for_sign(target) for target in targets)),
    )
    return list(readings), list(signs)


async def ask_for_sign(target: Target) -> Sign:
    """Ask for a task that is not there: "no such task" shows that the protocol is spoken, and changes nothing."""
    assert target.agent_id is not None
    started_at, clock = timezone.now(), time.monotonic()
    error: RemoteError | None = None
    try:
        async with RemoteClient(target, seconds=PROBE_SECONDS) as client:
            await client.get(str(uuid.uuid4()))
    except RemoteError as raised:
        error = raised if raised.is_fault else None
    return Sign(target.agent_id, started_at, time.monotonic() - clock, error)
