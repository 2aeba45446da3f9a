"""Delivers pushes: one thread with an event loop per worker process, so that a slow receiver holds no slot.

A delivery is claimed in the database (`tasks.outbox`) and made through the guarded HTTP client. The thread
may be killed at any line: what it had claimed is due again when the lease runs out.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import lru_cache

from bureau.a2a.notifications import pack
from directory.exceptions import CredentialUnreadable, RemoteError
from directory.http import Client, fetch, open_client
from tasks import doorbell
from tasks.aio import in_db
from tasks.background import Background
from tasks.outbox import TIMEOUT_SECONDS, Delivery, PushClaim, claim_due, next_delivery, record, release

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 50
# A receiver has nothing to tell us but its status.
MAX_ANSWER_BYTES = 64 * 1024


async def deliver_due(news: asyncio.Event | None = None) -> int:
    """Deliver what is due until nothing is; returns how many configurations were served.

    `news` says that more may have become due while others are still being served.
    """
    news = news or asyncio.Event()
    count = 0
    running: set[asyncio.Task[None]] = set()
    held: set[PushClaim] = set()
    async with open_client(read_seconds=TIMEOUT_SECONDS, max_bytes=MAX_ANSWER_BYTES) as client:
        try:
            while True:
                news.clear()
                # Before the look: who commits a row after that rings anew.
                await in_db(doorbell.clear, doorbell.PUSH)
                claims = await _claim(MOST_AT_ONCE - len(running), held)
                count += len(claims)
                running |= {asyncio.create_task(_serve(client, claim, held)) for claim in claims}
                if not running:
                    return count
                running = await _wait(running, news)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            for claim in held:
                await in_db(release, claim)


async def _claim(most: int, held: set[PushClaim]) -> list[PushClaim]:
    """Up to this many, which are `held` from now on."""
    claiming = asyncio.ensure_future(in_db(claim_due, most))
    try:
        claims = await asyncio.shield(claiming)
    except asyncio.CancelledError:
        # The rows are ours all the same.
        held.update(await claiming)
        raise
    held.update(claims)
    return claims


async def _wait(running: set[asyncio.Task[None]], news: asyncio.Event) -> set[asyncio.Task[None]]:
    """Until one is served or there is news; those that are still running."""
    told = asyncio.create_task(news.wait())
    try:
        await asyncio.wait({*running, told}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        told.cancel()
    return {task for task in running if not task.done()}


async def _serve(client: Client, claim: PushClaim, held: set[PushClaim]) -> None:
    """Deliver to one configuration, in order, as far as it goes. Never raises but for a cancel."""
    try:
        while (delivery := await in_db(next_delivery, claim)) is not None:
            if not await _deliver(client, claim, delivery):
                break
    except asyncio.CancelledError:
        raise
    except Exception:
        # Its lease runs out, and then it is tried again.
        logger.exception("A push could not be made", extra={"action": "push.crashed"})
    held.discard(claim)


async def _deliver(client: Client, claim: PushClaim, delivery: Delivery) -> bool:
    """One attempt, recorded; whether to go on."""
    started = time.monotonic()
    status: int | None = None
    error = ""
    try:
        parcel = await in_db(pack, delivery)
        answer = await fetch(
            client, "POST", parcel.url, headers=parcel.headers, content=parcel.body, seconds=TIMEOUT_SECONDS
        )
        status = answer.status
        error = "" if 200 <= status < 300 else f"The receiver answered with HTTP {status}."
    except (RemoteError, CredentialUnreadable) as failure:
        error = str(failure)
    recording = asyncio.ensure_future(
        in_db(record, claim, delivery, status=status, error=error, seconds=time.monotonic() - started)
    )
    try:
        return await asyncio.shield(recording)
    except asyncio.CancelledError:
        # It is written all the same; what comes before that would be undone by it.
        await recording
        raise


@lru_cache(maxsize=1)
def courier() -> Background:
    """The one of this process."""
    return Background("courier", deliver_due)
