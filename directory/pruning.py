"""Deletes what is old of what looking after remote agents leaves behind."""

from datetime import datetime, timedelta

from django.db.models import F, Max, OuterRef, Q, Subquery
from django.utils import timezone

from directory import memory
from directory.health import RATE_DAYS
from directory.models import CardRevision, DelegationCount

# Of each agent, however new they are: one that says something else each time must not fill the database.
MOST_REVISIONS = 100


def prune(before: datetime) -> dict[str, int]:
    """What is older than that; returns how many rows of each kind went."""
    return {
        "delegation counts": _counts(before),
        "card revisions": _revisions(before),
        "remembered requests": memory.forget_old(),
    }


def _counts(before: datetime) -> int:
    """Never those that success rates are made of."""
    first = timezone.now().date() - timedelta(days=RATE_DAYS)
    return DelegationCount.objects.filter(day__lte=min(first, before.date())).delete()[0]


def _revisions(before: datetime) -> int:
    """Never the newest of an agent, which the next card is compared with, nor one that waits for an operator."""
    newest = (
        CardRevision.objects.filter(agent=OuterRef("agent")).order_by().values("agent").annotate(last=Max("number"))
    )
    rows = CardRevision.objects.annotate(last=Subquery(newest.values("last"))).exclude(state=CardRevision.State.PENDING)
    old = Q(found_at__lt=before) | Q(number__lte=F("last") - MOST_REVISIONS)
    return rows.filter(old, number__lt=F("last")).delete()[0]
