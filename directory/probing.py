"""Conformance probes that somebody asked for on a page: a row first, then a job that works on it.

The row is the truth. The job's message is a hint; `ring_due` sends it again, and gives up what breaks every job.
"""

import asyncio
import logging
import time
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import partial

import redis
from celery import current_app
from django.db import IntegrityError, transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone
from kombu.exceptions import OperationalError

from directory.calls import target_of
from directory.enrolment import source_of
from directory.exceptions import DirectoryError, NotRemote
from directory.models import Agent, ProbeResult
from directory.probe import examine, forget_old, score

logger = logging.getLogger(__name__)

JOB = "directory.probe"
State = ProbeResult.State
# Longer than any probe takes.
CLAIM = timedelta(minutes=5)
MOST_ATTEMPTS = 2
# What is not taken up by then has been sent for again.
EXPIRES_SECONDS = 60
BROKE_OFF = "The probe broke off, more than once."


def request_probe(agent: Agent) -> ProbeResult:
    """Have this remote agent probed soon; where that was asked for already, it is the same probe. Raises NotRemote."""
    if not agent.is_remote or not agent.binding:
        raise NotRemote(f"{agent.slug} is not a remote agent with an accepted card.")
    try:
        with transaction.atomic():
            result = ProbeResult.objects.create(agent=agent, state=State.WAITING)
    except IntegrityError:
        found = ProbeResult.objects.filter(agent=agent, state__in=ProbeResult.OPEN).first()
        # It may have ended between the two looks: then its result is as good as new.
        return found or ProbeResult.objects.filter(agent=agent).latest("pk")
    transaction.on_commit(partial(_ring, result.pk))
    return result


def run_probe(result_id: int) -> bool:
    """Make this probe, if it is to be made. False when somebody else does it, or has. Takes up to a minute."""
    now = timezone.now()
    due = _due(now).filter(pk=result_id)
    if not due.update(state=State.RUNNING, claimed_at=now, attempts=F("attempts") + 1):
        return False
    agent = Agent.objects.filter(probe_results=result_id).first()
    if agent is None:
        return False
    clock = time.monotonic()
    mine = ProbeResult.objects.filter(pk=result_id, state=State.RUNNING, claimed_at=now)
    try:
        checks = asyncio.run(examine(source_of(agent), target_of(agent)))
    except DirectoryError as error:
        mine.update(state=State.FAILED, error=str(error)[:300])
        return True
    found = {"checks": [asdict(check) for check in checks], "score": score(checks)}
    mine.update(state=State.DONE, seconds=time.monotonic() - clock, **found)
    forget_old(agent.pk)
    return True


def ring_due() -> int:
    """Send for what waits, or was left behind; returns how much that was."""
    now = timezone.now()
    hopeless = ProbeResult.objects.filter(state=State.RUNNING, claimed_at__lt=now - CLAIM, attempts__gte=MOST_ATTEMPTS)
    hopeless.update(state=State.FAILED, error=BROKE_OFF)
    due = list(_due(now).values_list("pk", flat=True)[:20])
    for result_id in due:
        _ring(result_id)
    return len(due)


def _due(now: datetime) -> QuerySet[ProbeResult]:
    left_behind = Q(state=State.RUNNING, claimed_at__lt=now - CLAIM, attempts__lt=MOST_ATTEMPTS)
    return ProbeResult.objects.filter(Q(state=State.WAITING) | left_behind)


def _ring(result_id: int) -> None:
    """Never raises: whatever is not heard is sent for again."""
    try:
        current_app.send_task(JOB, args=[result_id], retry=False, ignore_result=True, expires=EXPIRES_SECONDS)
    except (redis.RedisError, OperationalError, OSError) as error:
        logger.warning("Could not send for a probe, the next round will: %s", error, extra={"action": "probe.unsent"})
