"""The thread beside the turns of a process: it ends when it is told to."""

import asyncio
import threading

from tasks.background import Background
from tests.support.waiting import PATIENCE


def test_work_that_fails_as_it_is_stopped_ends_all_the_same():
    begun = threading.Event()

    async def work(news):
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("the database is away") from None

    background = Background("worker", work)
    background.nudge()
    assert begun.wait(PATIENCE)
    thread = background._thread
    background.stop(PATIENCE)
    assert not thread.is_alive()
