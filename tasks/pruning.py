"""Deletes what is old of what pushes leave behind. A round is short; what it leaves, the next one takes."""

from datetime import datetime

from django.db.models import Q

from tasks.models import PushAttempt, PushEndpoint

BATCH = 1000
MOST_BATCHES = 50


def prune(before: datetime) -> dict[str, int]:
    """Attempts made before then, and places that nothing was sent to since; returns how many of each."""
    idle = Q(retry_at__lt=before) | Q(retry_at=None, failing_since__lt=before)
    return {"push attempts": _attempts(before), "push endpoints": PushEndpoint.objects.filter(idle).delete()[0]}


def _attempts(before: datetime) -> int:
    """From the oldest on, by their key: they come in the order of their time, and need no index for it."""
    count = 0
    for _ in range(MOST_BATCHES):
        oldest = PushAttempt.objects.order_by("pk").values_list("pk", "created_at")[:BATCH]
        old = [pk for pk, created_at in oldest if created_at < before]
        count += PushAttempt.objects.filter(pk__in=old).delete()[0]
        if len(old) < BATCH:
            break
    return count
