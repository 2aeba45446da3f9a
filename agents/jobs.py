"""Celery jobs of this app. (A *task* is A2A's here; what Celery runs is a job.)"""

import sys
import threading

from celery import shared_task
from celery.signals import worker_ready, worker_shutting_down

from tasks.doorbell import DRAIN, FOLLOW, clear


@shared_task(name=DRAIN, ignore_result=True)
def drain(queue: str) -> None:
    """Take whatever is due in this queue. The message says only that somebody rang."""
    from agents import runtime

    runtime.attend(queue)


@shared_task(name=FOLLOW, ignore_result=True)
def follow(queue: str = "") -> None:
    """Look after tasks at remote agents: hear the streams there are, ask about what is due. Safe to run at any time."""
    from agents import following, streams

    # Before the look: who commits a row after that rings anew.
    clear(FOLLOW)
    if streams.is_any_unheard():
        streams.follower().nudge()
    following.follow_due()


@shared_task(name="agents.tidy", ignore_result=True)
def tidy() -> None:
    """Dismiss what ended missions have left behind. Safe to run at any time, any number of times."""
    from agents.orchestration import allocation

    allocation.dismiss_left()


@worker_shutting_down.connect
def hand_back_turns(**_: object) -> None:
    """A warm shutdown does not wait for a model's long answer: turns stop and their tasks go back."""
    from agents.watch import watch

    watch.shut_down()


@worker_shutting_down.connect
def let_go_of_streams(**_: object) -> None:
    """What this process was hearing is free for another at once."""
    streams = sys.modules.get("agents.streams")
    if streams is not None:
        streams.follower().stop()


@worker_ready.connect
def warm_up_beside(**_: object) -> None:
    """The first mission would wait seconds for imports; beside the start of the worker nobody waits for them."""
    from agents.warmup import warm_up

    threading.Thread(target=warm_up, name="bureau-warm-up", daemon=True).start()
