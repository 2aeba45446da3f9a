"""Celery jobs of this app. (A *task* is A2A's here; what Celery runs is a job.)"""

import sys

from celery import shared_task
from celery.signals import worker_shutting_down

from tasks.doorbell import PUSH


@shared_task(name=PUSH, ignore_result=True)
def push(queue: str) -> None:
    """Have this process deliver whatever pushes are due. The message says only that somebody rang."""
    from bureau.a2a.courier import courier

    courier().nudge()


@shared_task(name="bureau.prune", ignore_result=True)
def prune() -> None:
    """Delete what has been kept for long enough. Safe to run any number of times."""
    from bureau import pruning

    pruning.prune()


@worker_shutting_down.connect
def let_go_of_pushes(**_: object) -> None:
    """What this process was delivering is due again at once."""
    courier = sys.modules.get("bureau.a2a.courier")
    if courier is not None:
        courier.courier().stop()
