"""Deletes what machines write without end, once it has been kept for `BUREAU_KEEP_DAYS`.

Missions are the record, and are not touched: their tasks, messages, events, decisions, tool calls.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from django.conf import settings
from django.contrib.sessions.models import Session
from django.utils import timezone

from directory import pruning as directory_pruning
from tasks import pruning as tasks_pruning

logger = logging.getLogger(__name__)


def prune() -> dict[str, int]:
    """One round; returns how many rows of each kind went."""
    before = timezone.now() - timedelta(days=settings.BUREAU_KEEP_DAYS)
    gone = {
        **tasks_pruning.prune(before),
        **directory_pruning.prune(before),
        "sessions": Session.objects.filter(expire_date__lt=timezone.now()).delete()[0],
    }
    if any(gone.values()):
        said = ", ".join(f"{count} {kind}" for kind, count in gone.items() if count)
        logger.info("Deleted what is old: %s", said, extra={"action": "pruned"})
    return gone
