"""What remote agents ask: for input or for authentication, and what happens there while a person thinks about it."""

import asyncio
from datetime import timedelta

import pytest
from a2a.helpers.proto_helpers import new_text_part
from django.utils import timezone

from agents import runtime
from agents.following import follow_due
from agents.models import RemoteLeg
from directory import calls
from directory.enrolment import add_remote_agent
from directory.models import Agent
from directory.services import forget_agents
from directory.wire import Outgoing
from tasks import delegation
from tasks.content import Incoming
from tasks.models import Event, Task
from tasks.services import send_message
from tests.support.cast import ALICE, snapshot
from tests.support.remote_agents import REST, RPC, V03, V1, Asker, Executor, Guard, Slow, remote_agent
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]


@pytest.fixture(autouse=True)
def loopback_allowed(settings):
    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8", "::1")
    forget_agents()


def send(agent: Agent, text: str = "Hello", task=None) -> Task:
    sent = send_message(ALICE, agent, Incoming([{"text": text}]), task_id=task)
    runtime.drain("default")
    return Task.objects.get(pk=sent.task_id)


def go_on(task: Task) -> Task:
    """One round of the follower, whatever is due when, and the turns it causes."""
    RemoteLeg.objects.filter(due_at__isnull=False).update(due_at=timezone.now())
    follow_due()
    runtime.drain("default")
    return Task.objects.get(pk=task.pk)


def settled(task: Task) -> Task:
    wait_until(lambda: go_on(task).state not in Task.RUNNING)
    return Task.objects.get(pk=task.pk)


def text(task: Task) -> str:
    return task.status_message["parts"][0]["text"]


@pytest.mark.parametrize("interface", [(RPC, V1), (REST, V1), (RPC, V03), (REST, V03)])
def test_it_wants_authentication_and_the_answer_goes_to_the_same_task(interface):
    with remote_agent(Guard(), interfaces=(interface,)) as remote:
        agent = add_remote_agent(remote.url)
        task = settled(send(agent))
        assert (task.state, text(task)) == ("auth-required", "Show your badge.")
        assert task.status_message["metadata"]["untrusted"] == agent.slug
        there = RemoteLeg.objects.get().remote_task_id
        task = settled(send(agent, "Badge 7", task=task.pk))
        assert (task.state, task.artifacts.get().parts) == ("completed", [{"text": "Badge 7"}])
        assert RemoteLeg.objects.get().remote_task_id == there


def test_it_says_nothing_and_still_we_ask():
    class Silent(Executor):
        async def run(self, text, updater, *, is_first):
            await updater.requires_auth()

    with remote_agent(Silent()) as remote:
        task = settled(send(add_remote_agent(remote.url)))
        assert (task.state, text(task)) == ("auth-required", "Echo wants you to authenticate.")


def test_it_was_let_in_elsewhere_and_goes_on_by_itself():
    """As A2A means `auth-required`: the person signs in at the service, and nobody answers."""

    class Elsewhere(Slow):
        async def run(self, text, updater, *, is_first):
            await updater.requires_auth(updater.new_agent_message([new_text_part("Sign in over there.")]))
            while not self.release.is_set():  # noqa: ASYNC110 - set from the test's thread
                await asyncio.sleep(0.02)
            await Executor.run(self, text, updater, is_first=is_first)

    with remote_agent(there := Elsewhere()) as remote:
        task = settled(send(add_remote_agent(remote.url)))
        assert task.state == "auth-required"
        there.release.set()
        wait_until(lambda: go_on(task).state == "completed")
        assert Task.objects.get().artifacts.get().parts == [{"text": "Hello"}]


def test_it_ends_while_the_question_is_open():
    with remote_agent(Asker()) as remote:
        agent = add_remote_agent(remote.url)
        task = settled(send(agent))
        leg = RemoteLeg.objects.get()
        # Not by anything that is asked of us: seldom, by itself.
        assert timezone.now() < leg.due_at < timezone.now() + timedelta(seconds=61)
        calls.cancel_task(agent, leg.remote_task_id)
        task = settled(go_on(task))
        assert (task.state, task.status_message["metadata"]["errorClass"]) == ("failed", "remote_canceled")
        states = Event.objects.filter(task=task, kind="status").order_by("seq").values_list("payload", flat=True)
        assert [one["state"] for one in states][-4:] == ["input-required", "submitted", "working", "failed"]
        assert RemoteLeg.objects.get().phase == "ended"


def test_it_was_answered_by_another_and_is_done():
    with remote_agent(Asker()) as remote:
        agent = add_remote_agent(remote.url)
        task = settled(send(agent))
        leg = RemoteLeg.objects.get()
        answer = Outgoing([{"text": "Grace"}], "other", leg.remote_context_id, leg.remote_task_id)
        calls.send(agent, answer, wait=True)
        task = settled(go_on(task))
        assert (task.state, task.artifacts.get().parts) == ("completed", [{"text": "Hello, Grace!"}])


class Curious(Executor):
    """Asks one question after the other."""

    async def run(self, text, updater, *, is_first):
        question = "First?" if is_first else f"After {text}?"
        await updater.requires_input(updater.new_agent_message([new_text_part(question)]))


def test_it_asks_something_else_meanwhile():
    with remote_agent(Curious()) as remote:
        agent = add_remote_agent(remote.url)
        task = settled(send(agent))
        assert text(task) == "First?"
        leg = RemoteLeg.objects.get()
        answer = Outgoing([{"text": "that"}], "other", leg.remote_context_id, leg.remote_task_id)
        calls.send(agent, answer, wait=True)
        task = settled(go_on(task))
        assert (task.state, text(task)) == ("input-required", "After that?")


def test_the_same_question_at_another_time_is_not_asked_again():
    class Ticking(Executor):
        """Says the same anew whenever somebody looks."""

        async def run(self, text, updater, *, is_first):
            await updater.requires_input(updater.new_agent_message([new_text_part("Name?")]))

    with remote_agent(Ticking()) as remote:
        agent = add_remote_agent(remote.url)
        task = settled(send(agent))
        leg = RemoteLeg.objects.get()
        answer = Outgoing([{"text": "x"}], "other", leg.remote_context_id, leg.remote_task_id)
        calls.send(agent, answer, wait=True)
        before = snapshot(task.pk)
        go_on(task)
        assert snapshot(task.pk) == before
        leg.refresh_from_db()
        assert (leg.phase, leg.answer["history"][-1]["parts"]) == ("asking", [{"text": "x"}])


def test_it_is_away_while_a_person_thinks():
    with remote_agent(Asker()) as remote:
        agent = add_remote_agent(remote.url)
        task = settled(send(agent))
        before = snapshot(task.pk)
        remote.failures = 12
        for _ in range(12):
            go_on(task)
        assert (remote.failures, snapshot(task.pk)) == (0, before)
        go_on(task)
        agent.health.refresh_from_db()
        assert agent.health.opened_at is None
        assert settled(send(agent, "Ada", task=task.pk)).state == "completed"


def test_the_answer_and_the_end_come_together():
    """Our person answers in the moment in which it ends by itself: the end is the end, and comes once."""
    with remote_agent(Asker()) as remote:
        agent = add_remote_agent(remote.url)
        task = settled(send(agent))
        leg = RemoteLeg.objects.get()
        calls.cancel_task(agent, leg.remote_task_id)
        send_message(ALICE, agent, Incoming([{"text": "Ada"}]), task_id=task.pk)
        task = settled(go_on(task))
        assert task.state == "failed"
        assert Event.objects.filter(task=task, payload__state="failed").count() == 1


def test_who_answers_first_hands_it_in_once(monkeypatch):
    """The loser is the follower: it has read the question, and then our person answers it."""
    with remote_agent(Asker()) as remote:
        agent = add_remote_agent(remote.url)
        task = settled(send(agent))
        calls.cancel_task(agent, RemoteLeg.objects.get().remote_task_id)
        original = delegation._asked_through

        def answered_meanwhile(task_id):
            found = original(task_id)
            if found:
                send_message(ALICE, agent, Incoming([{"text": "Ada"}]), task_id=task_id)
            return found

        monkeypatch.setattr(delegation, "_asked_through", answered_meanwhile)
        RemoteLeg.objects.update(due_at=timezone.now())
        follow_due()
        states = Event.objects.filter(task=task, kind="status").order_by("seq").values_list("payload", flat=True)
        assert [one["state"] for one in states][-2:] == ["input-required", "submitted"]
        assert settled(task).state == "failed"
