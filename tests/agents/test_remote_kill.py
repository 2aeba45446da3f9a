"""A worker that is killed while its task is at a remote agent: nothing is lost, and nothing is done twice."""

import asyncio
import threading

import pytest

from agents.following import follow_due
from agents.models import RemoteLeg
from directory import calls
from directory.enrolment import add_remote_agent
from tasks import doorbell
from tasks.content import Incoming
from tasks.jobs import sweep
from tasks.models import Event, Task
from tasks.services import send_message
from tests.support.cast import ALICE
from tests.support.remote_agents import Executor, Slow, Teller, remote_agent
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]

# A turn may be taken several times where a lease is shorter than the machine is busy.
ENV = {"BUREAU_LEASE_SECONDS": "1", "BUREAU_MAX_ATTEMPTS": "50", "BUREAU_OUTBOUND_ALLOW": "127.0.0.0/8"}


@pytest.fixture(autouse=True)
def loopback_allowed(settings):
    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8",)


def is_ended() -> bool:
    sweep()
    follow_due()
    return Task.objects.get().is_terminal


def test_between_send_and_poll(worker_process):
    slow = Slow()
    with remote_agent(slow) as remote:
        agent = add_remote_agent(remote.url)
        first = worker_process("--threads", "1", **ENV)
        send_message(ALICE, agent, Incoming.from_text("Once only"))
        wait_until(lambda: RemoteLeg.objects.filter(phase="following").exists())
        first.kill()
        slow.release.set()
        worker_process("--threads", "1", **ENV)
        wait_until(is_ended)
        task = Task.objects.get()
        assert (task.state, task.artifacts.get().parts) == ("completed", [{"text": "Once only"}])
        assert len(calls.list_tasks(agent)[0]) == 1


def test_while_it_is_heard_by_its_stream(worker_process):
    teller = Teller()
    with remote_agent(teller) as remote:
        agent = add_remote_agent(remote.url)
        task_id = send_message(ALICE, agent, Incoming.from_text("A story")).task_id
        first = worker_process("--threads", "1", **ENV)

        def heard_by(pid: int) -> bool:
            doorbell.ring_follow()
            return f":{pid}:" in RemoteLeg.objects.values_list("stream_by", flat=True).get()

        def told() -> str:
            # The worker may have been killed in a turn.
            sweep()
            story = Task.objects.get(pk=task_id).artifacts.first()
            return "".join(part["text"] for part in story.parts) if story else ""

        wait_until(lambda: RemoteLeg.objects.filter(phase="following").exists())
        wait_until(lambda: heard_by(first.pid))
        teller.words.put("Once ")
        wait_until(lambda: told() == "Once ")
        first.kill()
        teller.words.put("upon ")
        second = worker_process("--threads", "1", **ENV)
        wait_until(lambda: heard_by(second.pid))
        wait_until(lambda: told() == "Once upon ")
        teller.words.put("a time")
        teller.words.put(None)
        wait_until(lambda: told() and Task.objects.get(pk=task_id).state == "completed")
        assert told() == "Once upon a time"
        events = Event.objects.filter(task=task_id, kind="artifact").order_by("seq")
        assert "".join(one.payload["parts"][0]["text"] for one in events) == "Once upon a time"
        assert len(calls.list_tasks(agent)[0]) == 1


def test_a_worker_that_ends_hands_its_streams_on(worker_process):
    with remote_agent(Slow()) as remote:
        agent = add_remote_agent(remote.url)
        worker = worker_process("--threads", "1", **(ENV | {"BUREAU_LEASE_SECONDS": "60"}))
        send_message(ALICE, agent, Incoming.from_text("Slowly"))
        # Nobody asks for it here: the send itself rings.
        wait_until(lambda: RemoteLeg.objects.exclude(stream_by="").exists())
        assert worker.stop() == 0
        leg = RemoteLeg.objects.get()
        assert (leg.stream_by, leg.stream_until, leg.phase) == ("", None, "following"), worker.output


def test_while_the_message_is_on_its_way(worker_process):
    arrived, let_go = threading.Event(), threading.Event()

    class Hesitant(Executor):
        """Takes the message, and does not answer before it is let go."""

        async def execute(self, context, event_queue):
            arrived.set()
            while not let_go.is_set():  # noqa: ASYNC110 - set from the test's thread
                await asyncio.sleep(0.02)
            await super().execute(context, event_queue)

    with remote_agent(Hesitant()) as remote:
        agent = add_remote_agent(remote.url)
        first = worker_process("--threads", "1", **ENV)
        send_message(ALICE, agent, Incoming.from_text("Once only"))
        assert arrived.wait(90)
        first.kill()
        assert RemoteLeg.objects.get().phase == "sending"
        let_go.set()
        wait_until(lambda: calls.list_tasks(agent)[0])
        worker_process("--threads", "1", **ENV)
        wait_until(is_ended)
        task = Task.objects.get()
        assert (task.state, task.artifacts.get().parts) == ("completed", [{"text": "Once only"}])
        assert len(calls.list_tasks(agent)[0]) == 1
