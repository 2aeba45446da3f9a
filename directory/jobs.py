"""Celery jobs of this app. (A *task* is A2A's here; what Celery runs is a job.)"""

from celery import shared_task


@shared_task(name="directory.tend", ignore_result=True)
def tend() -> None:
    """Look after remote agents that are due. Safe to run at any time, any number of times."""
    from directory import probing, upkeep

    probing.ring_due()
    upkeep.tend()


@shared_task(name="directory.probe", ignore_result=True)
def probe(result_id: int) -> None:
    """Make a conformance probe that was asked for. Safe to run any number of times."""
    from directory import probing

    probing.run_probe(result_id)
