"""Conversations with remote agents: what belongs together here belongs together there."""

import pytest
from a2a.types import InvalidParamsError
from django.utils import timezone

from agents import runtime
from agents.following import follow_due
from agents.models import RemoteLeg
from directory.enrolment import add_remote_agent
from directory.models import Agent
from directory.services import forget_agents
from tasks.content import Incoming
from tasks.models import Task
from tasks.services import send_message
from tests.support.cast import ALICE, BOB
from tests.support.remote_agents import RPC, V03, V1, Executor, Talker, remote_agent
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]


@pytest.fixture(autouse=True)
def loopback_allowed(settings):
    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8", "::1")
    forget_agents()


class Listener(Executor):
    """Notes which conversation each message belongs to, and which tasks it refers to."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, list[str]]] = []

    async def execute(self, context, event_queue):
        assert context.message is not None
        self.heard.append((context.message.context_id, list(context.message.reference_task_ids)))
        await super().execute(context, event_queue)


def done(agent: Agent, text: str, context: str = "", caller=ALICE, references=()) -> Task:
    incoming = Incoming([{"text": text}], references=[str(one.pk) for one in references])
    task_id = send_message(caller, agent, incoming, context_key=context).task_id

    def is_over() -> bool:
        runtime.drain("default")
        RemoteLeg.objects.filter(due_at__isnull=False).update(due_at=timezone.now())
        follow_due()
        return Task.objects.get(pk=task_id).is_terminal

    wait_until(is_over)
    task = Task.objects.get(pk=task_id)
    assert task.state == "completed", task.status_message
    return task


@pytest.mark.parametrize("interface", [(RPC, V1), (RPC, V03)])
def test_the_next_task_goes_on_in_the_same_context(interface):
    with remote_agent(listener := Listener(), interfaces=(interface,)) as remote:
        agent = add_remote_agent(remote.url)
        first = done(agent, "One", "talk")
        second = done(agent, "Two", "talk", references=[first])
        legs = {leg.task_id: leg for leg in RemoteLeg.objects.all()}
        there = legs[first.pk].remote_context_id
        assert there
        assert legs[second.pk].remote_context_id == there
        assert legs[second.pk].remote_task_id != legs[first.pk].remote_task_id
        assert listener.heard[1] == (there, [legs[first.pk].remote_task_id])


def test_another_context_or_person_begins_anew():
    with remote_agent(listener := Listener()) as remote:
        agent = add_remote_agent(remote.url)
        done(agent, "One", "talk")
        done(agent, "Two", "other")
        done(agent, "Three", "talk", caller=BOB)
        assert len({context for context, _ in listener.heard}) == 3


def test_another_agent_is_told_nothing_of_it():
    with remote_agent(listener := Listener()) as remote, remote_agent(name="Other") as other:
        first = done(add_remote_agent(other.url), "One", "talk")
        done(add_remote_agent(remote.url), "Two", "talk", references=[first])
        theirs = RemoteLeg.objects.get(task=first)
        assert listener.heard[0][0] != theirs.remote_context_id
        assert listener.heard[0][1] == []


def test_a_bare_answer_has_a_context_too():
    class Remembering(Talker):
        def __init__(self) -> None:
            self.heard: list[str] = []

        async def execute(self, context, event_queue):
            from a2a.helpers.proto_helpers import new_text_message

            assert context.message is not None
            self.heard.append(context.message.context_id)
            await event_queue.enqueue_event(new_text_message("Yes.", context_id="ours"))

    with remote_agent(talker := Remembering()) as remote:
        agent = add_remote_agent(remote.url)
        done(agent, "One", "talk")
        done(agent, "Two", "talk")
        assert talker.heard[1] == "ours"


def test_what_it_has_forgotten_is_left_out():
    class Forgetful(Listener):
        async def execute(self, context, event_queue):
            if context.message.reference_task_ids:
                self.heard.append(("refused", []))
                raise InvalidParamsError(message="I know no such task.")
            await super().execute(context, event_queue)

    with remote_agent(listener := Forgetful()) as remote:
        agent = add_remote_agent(remote.url)
        first = done(agent, "One", "talk")
        second = done(agent, "Two", "talk", references=[first])
        assert second.artifacts.get().parts == [{"text": "Two"}]
        assert [references for _, references in listener.heard] == [[], [], []]
        assert listener.heard[1][0] == "refused"
        assert len(RemoteLeg.objects.exclude(remote_task_id="")) == 2
