"""Celery jobs of this app. (A *task* is A2A's here; what Celery runs is a job.)"""

from celery import shared_task

from tasks import claims, outbox


@shared_task(name="tasks.sweep", ignore_result=True)
def sweep() -> None:
    """Ring for overdue work and pushes, and clear expired leases. Safe to run at any time, any number of times."""
    claims.sweep()
    outbox.sweep()
