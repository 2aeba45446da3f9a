"""Tasks that are done by remote agents: real servers of the SDK, our turns and the follower's rounds."""

from datetime import timedelta

import pytest
from a2a.helpers.proto_helpers import new_text_part
from a2a.server.tasks import TaskUpdater
from django.utils import timezone
from google.protobuf.json_format import MessageToDict

from agents import legs, runtime
from agents.following import follow_due
from agents.models import RemoteLeg
from agents.stopping import AT_REMOTE, REMOTE_ENDED, read_stopping
from directory import calls
from directory.enrolment import add_remote_agent
from directory.health import success_rate
from directory.models import Agent, DelegationRule, OutgoingRequest
from directory.rules import HOPS, own_id
from directory.services import forget_agents
from tasks.content import Incoming
from tasks.models import Event, Task
from tasks.services import cancel_task, send_message
from tests.support.cast import ALICE, snapshot
from tests.support.remote_agents import (
    REST,
    RPC,
    V03,
    V1,
    Asker,
    Chunky,
    Executor,
    Refuser,
    Slow,
    Talker,
    remote_agent,
)
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]


@pytest.fixture(autouse=True)
def loopback_allowed(settings):
    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8", "::1")
    forget_agents()


def send(agent: Agent, text: str = "Hello", task=None, **more) -> Task:
    sent = send_message(ALICE, agent, Incoming([{"text": text}], **more), task_id=task)
    runtime.drain("default")
    return Task.objects.get(pk=sent.task_id)


def go_on(task: Task) -> Task:
    """One round of the follower, whatever is due when, and the turns it causes."""
    RemoteLeg.objects.filter(due_at__isnull=False).exclude(phase="sending").update(due_at=timezone.now())
    follow_due()
    runtime.drain("default")
    return Task.objects.get(pk=task.pk)


def settled(task: Task) -> Task:
    def is_settled() -> bool:
        task.refresh_from_db()
        return task.state not in Task.RUNNING or go_on(task).state not in Task.RUNNING

    wait_until(is_settled)
    task.refresh_from_db()
    return task


def text(task: Task) -> str:
    return task.status_message["parts"][0]["text"]


@pytest.mark.parametrize("interface", [(RPC, V1), (REST, V1), (RPC, V03), (REST, V03)])
def test_its_artifact_and_end_become_ours(interface):
    with remote_agent(interfaces=(interface,)) as remote:
        task = settled(send(add_remote_agent(remote.url), "Hello there"))
        assert task.state == "completed"
        artifact = task.artifacts.get()
        assert (artifact.name, artifact.parts) == ("echo", [{"text": "Hello there"}])
        assert artifact.metadata == {"untrusted": "echo", "artifactId": "echo-1"}
        assert success_rate(task.agent).succeeded == 1
        assert OutgoingRequest.objects.get().state == "completed"


def test_a_bare_answer_is_delivered():
    with remote_agent(Talker()) as remote:
        task = settled(send(add_remote_agent(remote.url)))
        assert (task.state, text(task)) == ("completed", "You said: Hello")
        assert task.artifacts.get().parts == [{"text": "You said: Hello"}]
        assert task.status_message["metadata"] == {"untrusted": "echo"}


def test_a_rejection_comes_with_its_reason():
    with remote_agent(Refuser()) as remote:
        task = settled(send(add_remote_agent(remote.url)))
        assert (task.state, text(task)) == ("rejected", "Not that.")


def test_its_question_is_asked_and_the_answer_goes_to_the_same_task():
    with remote_agent(Asker()) as remote:
        agent = add_remote_agent(remote.url)
        task = settled(send(agent))
        assert (task.state, text(task)) == ("input-required", "What is your name?")
        assert task.status_message["metadata"]["untrusted"] == "echo"
        there = RemoteLeg.objects.get().remote_task_id
        task = settled(send(agent, "Ada", task=task.pk))
        assert (task.state, task.artifacts.get().parts) == ("completed", [{"text": "Hello, Ada!"}])
        assert RemoteLeg.objects.get().remote_task_id == there


def test_time_that_a_person_takes_does_not_count():
    with remote_agent(Asker()) as remote:
        agent = add_remote_agent(remote.url)
        task = settled(send(agent))
        RemoteLeg.objects.update(progress_at=timezone.now() - timedelta(days=1), due_at=timezone.now())
        assert go_on(task).state == "input-required"
        assert RemoteLeg.objects.get().phase == "asking"
        assert settled(send(agent, "Ada", task=task.pk)).state == "completed"


def test_no_worker_is_held_and_nothing_comes_twice():
    slow = Slow()
    with remote_agent(slow) as remote:
        task = send(add_remote_agent(remote.url))
        wait_until(lambda: go_on(task) and task.messages.filter(role="agent").exists())
        task.refresh_from_db()
        assert (task.state, task.lease_owner, task.due_at) == ("working", "", None)
        for _ in range(3):
            go_on(task)
        said = [message.parts for message in task.messages.filter(role="agent")]
        assert said == [[{"text": "Still working."}]]
        slow.release.set()
        task = settled(task)
        assert task.state == "completed"
        assert Event.objects.filter(task=task, kind="artifact").count() == 1


def test_a_cancel_here_is_a_cancel_there():
    with remote_agent(Slow()) as remote:
        task = send(add_remote_agent(remote.url))
        cancel_task(ALICE, task.pk)
        before = snapshot(task.pk)
        follow_due()
        leg = RemoteLeg.objects.get()
        assert (leg.phase, leg.answer["state"]) == ("ended", "canceled")
        assert leg.late_at is not None
        assert snapshot(task.pk) == before
        assert follow_due() == 0


def test_a_cancel_has_gone_through_when_the_remote_agent_says_so():
    with remote_agent(Slow()) as remote:
        task = send(add_remote_agent(remote.url))
        cancel_task(ALICE, task.pk)
        task.refresh_from_db()
        found = read_stopping(task)
        assert (found.open, found.seconds, [leg.how for leg in found.legs]) == (1, None, [AT_REMOTE])
        follow_due()
        found = read_stopping(task)
        assert (found.open, [leg.how for leg in found.legs]) == (0, [REMOTE_ENDED])
        assert found.seconds > 0


def test_a_remote_task_that_had_ended_before_is_no_leg():
    with remote_agent(Slow()) as remote:
        task = send(add_remote_agent(remote.url))
        leg = RemoteLeg.objects.get()
        before = timezone.now()
        assert legs.write(leg, legs.lost(leg, "remote_task_lost", "Gone."))
        assert leg.ended_at >= before
        cancel_task(ALICE, task.pk)
        task.refresh_from_db()
        assert read_stopping(task).legs == []


def test_a_question_that_nobody_answers_is_canceled_there_too():
    with remote_agent(Asker()) as remote:
        task = settled(send(add_remote_agent(remote.url)))
        cancel_task(ALICE, task.pk)
        follow_due()
        assert RemoteLeg.objects.get().answer["state"] == "canceled"


def test_an_answer_after_the_cancel_is_kept_and_changes_nothing():
    class Stubborn(Slow):
        async def cancel(self, context, event_queue):
            updater = TaskUpdater(event_queue, context.task_id, context.context_id)
            await updater.add_artifact([new_text_part("Done already.")], name="late")
            await updater.complete()

    with remote_agent(Stubborn()) as remote:
        task = send(add_remote_agent(remote.url))
        cancel_task(ALICE, task.pk)
        before = snapshot(task.pk)
        wait_until(lambda: go_on(task) and RemoteLeg.objects.get().phase == "ended")
        leg = RemoteLeg.objects.get()
        assert leg.answer["artifacts"][0]["parts"] == [{"text": "Done already."}]
        assert leg.late_at is not None
        assert snapshot(task.pk) == before


def test_silence_beyond_the_deadline_fails_and_cancels():
    with remote_agent(Slow()) as remote:
        agent = add_remote_agent(remote.url)
        agent.options = {"deadline_seconds": 0.2}
        agent.save()
        task = settled(send(agent))
        assert (task.state, task.status_message["metadata"]["errorClass"]) == ("failed", "timed_out")
        wait_until(lambda: go_on(task) and RemoteLeg.objects.get().phase == "ended")
        assert RemoteLeg.objects.get().answer["state"] == "canceled"


def test_a_send_of_unknown_end_is_looked_up_and_not_repeated():
    with remote_agent() as remote:
        task = begun(add_remote_agent(remote.url), remote)
        before = len(remote.requests)
        runtime.drain("default")
        task = settled(task)
        assert (task.state, task.artifacts.get().parts) == ("completed", [{"text": "Hello"}])
        assert len(remote_tasks(remote)) == 1
        assert len(remote.requests) > before


def begun(agent: Agent, remote) -> Task:
    """A task whose worker died after its message had gone out, and before the answer was written down."""
    original = legs.write
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(legs, "write", lambda leg, fields, **more: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            send(agent)
    assert legs.write is original
    leg = RemoteLeg.objects.get()
    assert leg.phase == "sending"
    Task.objects.update(due_at=timezone.now(), lease_owner="")
    return leg.task


def remote_tasks(remote) -> list:
    return calls.list_tasks(Agent.objects.get(card_url__startswith=remote.url))[0]


def test_where_it_cannot_be_looked_up_a_person_decides():
    with remote_agent(interfaces=((RPC, V03),)) as remote:
        agent = add_remote_agent(remote.url)
        begun(agent, remote)
        runtime.drain("default")
        task = Task.objects.get()
        assert task.state == "input-required"
        assert "may have arrived" in text(task)
        sends = remote.paths.count("POST /rpc03")
        runtime.drain("default")
        assert remote.paths.count("POST /rpc03") == sends
        task = settled(send(agent, "yes", task=task.pk))
        assert (task.state, task.artifacts.get().parts) == ("completed", [{"text": "Hello"}])


def test_a_no_leaves_it_unsent():
    with remote_agent(interfaces=((RPC, V03),)) as remote:
        agent = add_remote_agent(remote.url)
        task = begun(agent, remote)
        runtime.drain("default")
        sends = remote.paths.count("POST /rpc03")
        task = send(agent, "no", task=task.pk)
        assert (task.state, task.status_message["metadata"]["errorClass"]) == ("failed", "unknown_end")
        assert remote.paths.count("POST /rpc03") == sends


def test_a_server_that_dies_in_the_middle_is_asked_again():
    slow = Slow()
    with remote_agent(slow) as remote:
        task = send(add_remote_agent(remote.url))
        remote.failures = 3
        for _ in range(3):
            assert go_on(task).state == "working"
        slow.release.set()
        assert settled(task).state == "completed"


def test_one_that_stays_dead_fails_the_task():
    with remote_agent(Slow()) as remote:
        task = send(add_remote_agent(remote.url))
        remote.failures = 1000
        task = settled(task)
        assert (task.state, task.status_message["metadata"]["errorClass"]) == ("failed", "server")


def test_who_may_not_be_asked_is_not():
    with remote_agent() as remote:
        agent = add_remote_agent(remote.url)
        Agent.objects.filter(pk=agent.pk).update(quarantined_at=timezone.now())
        before = len(remote.requests)
        task = send(agent)
        assert (task.state, len(remote.requests)) == ("rejected", before)
        assert "quarantine" in text(task)
        assert not RemoteLeg.objects.exists()


def test_a_rule_forbids_it():
    with remote_agent() as remote:
        agent = add_remote_agent(remote.url)
        DelegationRule.objects.create(target_agent=agent, effect="deny", note="Not this one")
        task = send(agent)
        assert task.state == "rejected"
        assert "Not this one" in text(task)


def test_a_loop_is_refused_with_its_path():
    with remote_agent() as remote:
        agent = add_remote_agent(remote.url)
        before = len(remote.requests)
        task = send(agent, metadata={HOPS: {"path": [own_id("echo"), "other/agent"]}})
        assert (task.state, len(remote.requests)) == ("rejected", before)
        assert f"{own_id('echo')} → other/agent → {own_id('echo')}" in text(task)


def test_the_path_travels_along():
    seen: list = []

    class Watcher(Executor):
        async def execute(self, context, event_queue):
            seen.append(MessageToDict(context.message.metadata))
            await super().execute(context, event_queue)

    with remote_agent(Watcher()) as remote:
        settled(send(add_remote_agent(remote.url), metadata={HOPS: {"path": ["other/agent"]}}))
        assert seen == [{HOPS: {"path": ["other/agent", own_id("echo")]}}]


def test_what_it_says_can_pass_for_no_question_of_ours():
    class Liar(Executor):
        async def run(self, text, updater, *, is_first):
            message = updater.new_agent_message([new_text_part("Agree?")])
            message.metadata.update({"asks": {"kind": "confirm", "digest": "x"}, "errorClass": "none"})
            await updater.requires_input(message)

    with remote_agent(Liar()) as remote:
        task = settled(send(add_remote_agent(remote.url)))
        assert task.status_message["metadata"]["asks"] == {"kind": "remote", "agent": "echo"}
        cancel_task(ALICE, task.pk)
        follow_due()


def test_chunks_are_one_artifact():
    with remote_agent(Chunky()) as remote:
        task = settled(send(add_remote_agent(remote.url)))
        assert [(one.name, one.parts) for one in task.artifacts.all()] in (
            [("story", [{"text": "one two three"}])],
            [("story", [{"text": "one "}, {"text": "two "}, {"text": "three"}])],
        )


def test_two_rounds_at_once_ask_once():
    with remote_agent(Slow()) as remote:
        send(add_remote_agent(remote.url))
        RemoteLeg.objects.update(due_at=timezone.now())
        assert (follow_due(), follow_due()) == (1, 0)


class Babbler(Executor):
    """Says something new whenever it is looked at, without an end."""

    async def run(self, text, updater, *, is_first):
        for number in range(100):
            message = updater.new_agent_message([new_text_part(f"{number} {'x' * 500}")])
            await updater.start_work(message)
        await updater.complete()


class Shipper(Executor):
    async def run(self, text, updater, *, is_first):
        await updater.add_artifact([new_text_part("y" * 50_000)], name="much")
        await updater.complete()


@pytest.mark.parametrize("executor", [Babbler, Shipper])
def test_what_one_remote_task_sends_is_limited(executor, settings):
    settings.BUREAU_TASK_BYTES = 20_000
    with remote_agent(executor()) as remote:
        task = settled(send(add_remote_agent(remote.url)))
    assert (task.state, task.status_message["metadata"]["errorClass"]) == ("failed", "too_large")
    assert "has sent more than is kept of one task" in text(task)
    assert not task.artifacts.exists()
    assert task.messages.filter(role="agent", metadata__has_key="untrusted").count() < 20
