"""Bureau as the client of servers that each do one thing: made of `a2a-sdk`, over real sockets, followed both ways."""

from datetime import timedelta

import pytest
from a2a.helpers.proto_helpers import new_text_part
from a2a.server.tasks import TaskUpdater
from a2a.utils.errors import PushNotificationNotSupportedError
from django.utils import timezone

from agents import runtime, streams
from agents.following import follow_due
from agents.models import RemoteLeg
from directory.credentials import Secret
from directory.enrolment import add_remote_agent, refresh_agent
from directory.models import Agent
from directory.services import forget_agents
from tasks.background import Background
from tasks.content import Incoming
from tasks.models import Task
from tasks.services import cancel_task, send_message
from tests.support.cast import ALICE, snapshot
from tests.support.receivers import receiver
from tests.support.remote_agents import REST, RPC, V03, V1, Asker, Slow, remote_agent, skill
from tests.support.servers import free_port
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]


@pytest.fixture(autouse=True)
def loopback_allowed(settings):
    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8", "::1")
    forget_agents()


class Follower:
    """What the scheduler and the event loop of a worker do, one step at a time."""

    def __init__(self, *, by_stream: bool) -> None:
        self.by_stream = by_stream
        self.background = Background("follower", lambda news: streams.Follower(news).run())

    def step(self) -> None:
        if self.by_stream:
            # A stream that broke is not waited for.
            RemoteLeg.objects.filter(stream_by="").update(stream_until=None)
            self.background.nudge()
        else:
            RemoteLeg.objects.filter(due_at__isnull=False).update(due_at=timezone.now())
        follow_due()
        runtime.drain("default")

    def is_hearing(self) -> bool:
        return RemoteLeg.objects.exclude(stream_by="").exists()

    def settled(self, task: Task) -> Task:
        def is_settled() -> bool:
            self.step()
            task.refresh_from_db()
            return task.state not in Task.RUNNING

        wait_until(is_settled)
        return task

    def ended(self) -> RemoteLeg:
        """The leg, when nothing more happens there."""

        def is_ended() -> bool:
            self.step()
            return RemoteLeg.objects.get().phase == "ended"

        wait_until(is_ended)
        return RemoteLeg.objects.get()


@pytest.fixture(params=["by asking", "by stream"])
def follower(request, settings):
    settings.BUREAU_LEASE_SECONDS = 15.0
    settings.BUREAU_REMOTE_STREAMS = 50 if request.param == "by stream" else 0
    found = Follower(by_stream=request.param == "by stream")
    yield found
    found.background.stop(PATIENCE)


def send(agent: Agent, text: str = "Hello", task=None) -> Task:
    sent = send_message(ALICE, agent, Incoming([{"text": text}]), task_id=task)
    runtime.drain("default")
    return Task.objects.get(pk=sent.task_id)


def text(task: Task) -> str:
    return task.status_message["parts"][0]["text"]


def error_class(task: Task) -> str:
    return task.status_message["metadata"]["errorClass"]


@pytest.mark.parametrize(
    "interface", [(RPC, V1), (RPC, V03), (REST, V1), (REST, V03)], ids=["1.0 only", "0.3 only", "REST 1.0", "REST 0.3"]
)
def test_it_speaks_one_language(follower, interface):
    with remote_agent(slow := Slow(), interfaces=(interface,)) as remote:
        agent = add_remote_agent(remote.url)
        assert (agent.binding, agent.protocol_version) == interface
        task = send(agent)
        slow.release.set()
        follower.settled(task)
        assert (task.state, task.artifacts.get().parts) == ("completed", [{"text": "Hello"}])


def test_it_needs_a_key(follower):
    with remote_agent(slow := Slow(), key="s3cret") as remote:
        agent = add_remote_agent(remote.url, secret=Secret("api_key", "s3cret"))
        task = send(agent)
        slow.release.set()
        assert follower.settled(task).state == "completed"
        ours = [one for one in remote.requests if one["path"] == "/rpc"]
        assert {one["headers"].get("x-api-key") for one in ours} == {"s3cret"}


def test_it_needs_a_key_that_we_lack(follower):
    with remote_agent(key="s3cret") as remote:
        task = follower.settled(send(add_remote_agent(remote.url)))
        assert (task.state, error_class(task)) == ("failed", "auth")


def test_it_asks_a_question(follower):
    with remote_agent(Asker()) as remote:
        agent = add_remote_agent(remote.url)
        task = follower.settled(send(agent))
        assert (task.state, text(task)) == ("input-required", "What is your name?")
        send(agent, "Ada", task=task.pk)
        follower.settled(task)
        assert (task.state, task.artifacts.get().parts) == ("completed", [{"text": "Hello, Ada!"}])


def test_it_is_slow(follower):
    with remote_agent(slow := Slow()) as remote:
        task = send(add_remote_agent(remote.url))

        def is_said() -> bool:
            follower.step()
            return task.messages.filter(role="agent").exists()

        def is_at_rest() -> bool:
            """Nobody holds it, and nobody is to take it; what the stream tells may wake it once more."""
            runtime.drain("default")
            task.refresh_from_db()
            return (task.state, task.lease_owner, task.due_at) == ("working", "", None)

        wait_until(is_said)
        for _ in range(5):
            follower.step()
            wait_until(is_at_rest)
        assert [one.parts for one in task.messages.filter(role="agent")] == [[{"text": "Still working."}]]
        slow.release.set()
        assert follower.settled(task).state == "completed"


def test_it_dies_in_the_middle_and_comes_back(follower):
    with remote_agent(slow := Slow()) as remote:
        task = send(add_remote_agent(remote.url))
        follower.step()
        if follower.by_stream:
            wait_until(follower.is_hearing)
        remote.die()

        def is_missed() -> bool:
            follower.step()
            leg = RemoteLeg.objects.get()
            return leg.failures > 0 or leg.stream_failures > 0

        wait_until(is_missed)
        slow.release.set()
        remote.come_back()
        follower.settled(task)
        assert (task.state, task.artifacts.get().parts) == ("completed", [{"text": "Hello"}])


def test_it_dies_in_the_middle_and_remembers_nothing(follower):
    port = free_port()
    with remote_agent(Slow(), port=port) as remote:
        task = send(add_remote_agent(remote.url))
        follower.step()
    with remote_agent(port=port):
        follower.settled(task)
        assert (task.state, error_class(task)) == ("failed", "remote_task_lost")


def test_it_dies_for_good(follower):
    with remote_agent(Slow()) as remote:
        task = send(add_remote_agent(remote.url))
        follower.step()
        remote.die()
        RemoteLeg.objects.update(failures=6)

        def is_over() -> bool:
            RemoteLeg.objects.filter(stream_by="").update(due_at=timezone.now())
            follower.step()
            task.refresh_from_db()
            return task.is_terminal

        wait_until(is_over)
        assert (task.state, error_class(task)) == ("failed", "unreachable")


class Stubborn(Slow):
    """Delivers although it was canceled."""

    async def cancel(self, context, event_queue):
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.add_artifact([new_text_part("Done already.")], name="late")
        await updater.complete()


def test_it_answers_after_the_cancel(follower):
    with remote_agent(Stubborn()) as remote:
        task = send(add_remote_agent(remote.url))
        follower.step()
        cancel_task(ALICE, task.pk)
        before = snapshot(task.pk)
        leg = follower.ended()
        assert leg.answer["artifacts"][0]["parts"] == [{"text": "Done already."}]
        assert leg.late_at is not None
        assert snapshot(task.pk) == before


def test_it_sends_a_changed_card(follower):
    """What it was given goes on; it is given nothing more before somebody has looked."""
    with remote_agent(slow := Slow()) as remote:
        agent = add_remote_agent(remote.url)
        task = send(agent)
        remote.card["skills"] = [skill(1), skill(2, name="Delete all")]
        assert refresh_agent(agent).grounds == ["skills"]
        slow.release.set()
        assert follower.settled(task).state == "completed"
        calls = len(remote.requests)
        refused = send(agent)
        assert (refused.state, len(remote.requests)) == ("rejected", calls)
        assert "quarantine" in text(refused)


@pytest.mark.parametrize("where", ["another port", "metadata", "private"])
def test_it_redirects_inside(follower, where):
    with receiver() as inside, remote_agent() as remote:
        agent = add_remote_agent(remote.url)
        addresses = {"metadata": "http://169.254.169.254/latest/", "private": "http://10.0.0.1/"}
        remote.redirect = addresses.get(where, inside.url)
        task = follower.settled(send(agent))
        assert (task.state, error_class(task)) == ("failed", "remote_error")
        assert "another place" in text(task)
        assert inside.received == []


def test_it_redirects_inside_later(follower):
    """While its task is followed: that is a look that failed, and no news."""
    with receiver() as inside, remote_agent(slow := Slow()) as remote:
        task = send(add_remote_agent(remote.url))
        remote.redirect = inside.url
        for _ in range(3):
            follower.step()
        wait_until(lambda: follower.step() or RemoteLeg.objects.get().failures)
        remote.redirect = ""
        slow.release.set()
        assert follower.settled(task).state == "completed"
        assert inside.received == []


# --- It pushes: whole processes, because it calls us ---------------------------------------------

ENV = {"BUREAU_OUTBOUND_ALLOW": "127.0.0.0/8"}


@pytest.mark.parametrize("interface", [(RPC, V1), (RPC, V03), (REST, V1)])
def test_it_only_pushes(web_process, worker_process, interface):
    port = str(free_port())
    web = web_process(BUREAU_PORT=port, **ENV)
    worker_process("--threads", "2", BUREAU_PUBLIC_URL=web.url, **ENV)
    capabilities = {"streaming": False, "pushNotifications": True}
    with remote_agent(slow := Slow(), interfaces=(interface,), capabilities=capabilities) as remote:
        agent = add_remote_agent(remote.url)
        task_id = send_message(ALICE, agent, Incoming([{"text": "Hello"}])).task_id
        wait_until(lambda: RemoteLeg.objects.filter(phase="following").exists())
        # Nobody asks by himself any more.
        RemoteLeg.objects.update(due_at=timezone.now() + timedelta(hours=1))
        slow.release.set()
        wait_until(lambda: Task.objects.get(pk=task_id).is_terminal)
        task = Task.objects.get(pk=task_id)
        assert (task.state, task.artifacts.get().parts) == ("completed", [{"text": "Hello"}])


class Quiet(Slow):
    """Calls nobody, whatever its card says."""

    async def execute(self, context, event_queue):
        if context.configuration.HasField("task_push_notification_config"):
            raise PushNotificationNotSupportedError
        await super().execute(context, event_queue)


def test_it_says_that_it_pushes_and_refuses(follower):
    with remote_agent(slow := Quiet(), capabilities={"pushNotifications": True}) as remote:
        task = send(add_remote_agent(remote.url))
        assert RemoteLeg.objects.get().callback_hash == ""
        slow.release.set()
        assert follower.settled(task).state == "completed"


def test_an_address_of_this_machine_is_offered_to_nobody_else(settings):
    from agents.handlers.remote import can_reach_us

    far, near = Agent(url="https://agent.example/a2a"), Agent(url="http://[::1]:9000/")
    settings.BUREAU_PUBLIC_URL = "http://localhost:8000"
    assert (can_reach_us(far), can_reach_us(near)) == (False, True)
    settings.BUREAU_PUBLIC_URL = "https://bureau.example"
    assert (can_reach_us(far), can_reach_us(near)) == (True, True)
