"""Tasks at remote agents that are heard by their streams: real servers of the SDK, and our event loop."""

import asyncio
import json
import threading
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from agents import following, legs, runtime, streams
from agents.following import follow_due
from agents.models import RemoteLeg
from directory.enrolment import add_remote_agent
from directory.models import Agent
from directory.services import forget_agents
from tasks.background import Background
from tasks.content import Incoming
from tasks.models import Event, Task
from tasks.services import cancel_task, send_message
from tests.support.cast import ALICE, snapshot
from tests.support.remote_agents import REST, RPC, V03, V1, Asker, Slow, Teller, remote_agent, serve
from tests.support.waiting import PATIENCE, UntilStopped, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]

EVERY = [(RPC, V1), (REST, V1), (RPC, V03), (REST, V03)]


@pytest.fixture(autouse=True)
def loopback_allowed(settings):
    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8", "::1")
    forget_agents()


@pytest.fixture
def follower(settings):
    """The event loop of a worker process, in this one; a nudge has it look."""
    settings.BUREAU_LEASE_SECONDS = 15.0
    found = Background("follower", lambda news: streams.Follower(news).run())
    yield found
    found.stop(PATIENCE)


def send(agent: Agent, text: str = "Hello", task=None) -> Task:
    sent = send_message(ALICE, agent, Incoming([{"text": text}]), task_id=task)
    runtime.drain("default")
    return Task.objects.get(pk=sent.task_id)


def heard(task: Task, follower: Background) -> RemoteLeg:
    """Its leg, once the follower hears it."""
    follower.nudge()
    wait_until(lambda: RemoteLeg.objects.filter(task=task).exclude(stream_by="").exists())
    return RemoteLeg.objects.get(task=task)


def turned(task: Task) -> Task:
    """The task after the turns that are due: nobody polls here."""
    runtime.drain("default")
    task.refresh_from_db()
    return task


def settled(task: Task) -> Task:
    wait_until(lambda: turned(task).state not in Task.RUNNING)
    return task


def told(task: Task) -> str:
    """What is there of its story."""
    turned(task)
    story = task.artifacts.filter(name="story").first()
    return "".join(part["text"] for part in story.parts) if story else ""


def unheard(leg_id) -> bool:
    return not RemoteLeg.objects.get(pk=leg_id).stream_by


@pytest.mark.parametrize("interface", EVERY)
def test_it_is_ours_as_it_comes(interface, follower):
    teller = Teller()
    with remote_agent(teller, interfaces=(interface,)) as remote:
        task = send(add_remote_agent(remote.url))
        heard(task, follower)
        teller.words.put("Once ")
        wait_until(lambda: told(task) == "Once ")
        assert (task.state, task.lease_owner) == ("working", "")
        teller.words.put("upon a time")
        wait_until(lambda: told(task) == "Once upon a time")
        teller.words.put(None)
        assert settled(task).state == "completed"
        leg = RemoteLeg.objects.get()
        assert (leg.phase, leg.stream_by, leg.stream_failures) == ("ended", "", 0)


def test_nobody_asks_meanwhile(follower):
    teller = Teller()
    with remote_agent(teller, interfaces=((REST, V1),)) as remote:
        task = send(add_remote_agent(remote.url))
        leg = heard(task, follower)
        teller.words.put("Once")
        wait_until(lambda: told(task) == "Once")
        assert follow_due() == 0
        # Not even when its time has come.
        RemoteLeg.objects.update(due_at=timezone.now())
        assert follow_due() == 0
        teller.words.put(None)
        assert settled(task).state == "completed"
        there = f"/rest/tasks/{leg.remote_task_id}"
        assert [path.split()[1] for path in remote.paths if there in path] == [f"{there}:subscribe"]


def test_what_grows_is_logged_once(follower):
    teller = Teller()
    with remote_agent(teller) as remote:
        task = send(add_remote_agent(remote.url))
        heard(task, follower)
        for word, text in (("Once ", "Once "), ("upon ", "Once upon "), ("a time", "Once upon a time")):
            teller.words.put(word)
            wait_until(lambda text=text: told(task) == text)
        teller.words.put(None)
        settled(task)
        chunks = Event.objects.filter(task=task, kind="artifact").order_by("seq").values_list("payload", flat=True)
        assert [(one["parts"][0]["text"], one["append"], one["lastChunk"]) for one in chunks] == [
            ("Once ", False, False),
            ("upon ", True, False),
            ("a time", True, False),
            # Only the end of the task says that nothing more comes.
            ("", True, True),
        ]
        assert [one.parts for one in task.artifacts.all()] == [[{"text": "Once upon a time"}]]


def test_a_question_ends_the_stream_and_the_answer_begins_another(follower):
    with remote_agent(Asker()) as remote:
        agent = add_remote_agent(remote.url)
        task = send(agent)
        follower.nudge()
        assert settled(task).state == "input-required"
        there = RemoteLeg.objects.get().remote_task_id
        send(agent, "Ada", task=task.pk)
        follower.nudge()
        assert settled(task).state == "completed"
        assert task.artifacts.get().parts == [{"text": "Hello, Ada!"}]
        assert RemoteLeg.objects.get().remote_task_id == there


def test_each_leg_is_heard_by_one():
    with remote_agent(Slow()) as remote:
        send(add_remote_agent(remote.url))
        (leg,) = streams.claim("first", 5)
        before = RemoteLeg.objects.values().get()
        assert streams.claim("second", 5) == []
        assert streams.renew("second", [leg.pk]) == set()
        assert streams.hear("second", leg.pk, legs.task_of(leg)) is None
        streams.let_go("second", [leg.pk])
        streams.broken("second", leg.pk, seconds=0, is_final=True)
        assert RemoteLeg.objects.values().get() == before
        assert streams.renew("first", [leg.pk]) == {leg.pk}


def test_a_claim_that_runs_out_is_asked_about_and_heard_by_another():
    with remote_agent(Slow()) as remote:
        send(add_remote_agent(remote.url))
        (leg,) = streams.claim("killed", 5)
        past = timezone.now() - timedelta(seconds=1)
        RemoteLeg.objects.update(stream_until=past, due_at=past)
        assert follow_due() == 1
        assert [one.pk for one in streams.claim("second", 5)] == [leg.pk]
        assert streams.renew("killed", [leg.pk]) == set()


def test_the_loser_of_two_claims_gets_none():
    with remote_agent(Slow()) as remote:
        send(add_remote_agent(remote.url))
        original = streams._candidates

        def raced(most: int) -> list[RemoteLeg]:
            found = original(most)
            assert found
            RemoteLeg.objects.update(stream_by="other", stream_until=timezone.now() + timedelta(seconds=9))
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(streams, "_candidates", raced)
            assert streams.claim("late", 5) == []
        assert RemoteLeg.objects.get().stream_by == "other"


@pytest.mark.parametrize("why", ["no stream", "told by push", "asking", "ended here", "none wanted", "just broken"])
def test_what_is_not_to_be_heard(why, settings):
    streaming = why != "no stream"
    capabilities = {"streaming": streaming, "pushNotifications": why == "told by push"}
    with remote_agent(Slow(), capabilities=capabilities) as remote:
        task = send(add_remote_agent(remote.url))
        if why == "asking":
            RemoteLeg.objects.update(phase="asking")
        elif why == "ended here":
            cancel_task(ALICE, task.pk)
        elif why == "none wanted":
            settings.BUREAU_REMOTE_STREAMS = 0
        elif why == "just broken":
            (leg,) = streams.claim("one", 1)
            streams.broken("one", leg.pk, seconds=0.1, is_final=False)
        assert not streams.is_any_unheard()
        assert streams.claim("one", settings.BUREAU_REMOTE_STREAMS) == []


def test_one_that_was_to_push_and_does_not_is_heard():
    """Whether it can reach us shows when it does; the time that an answer takes to come is not known before."""
    with remote_agent(Slow(), capabilities={"pushNotifications": True}) as remote:
        task = send(add_remote_agent(remote.url))
        RemoteLeg.objects.update(created_at=timezone.now() - timedelta(seconds=16))
        with_push = RemoteLeg.objects.filter(task=task)
        with_push.update(pushed_at=timezone.now())
        assert not streams.is_any_unheard()
        with_push.update(pushed_at=None)
        assert len(streams.claim("one", 1)) == 1


def test_streams_are_bounded():
    with remote_agent(Slow()) as remote:
        agent = add_remote_agent(remote.url)
        for _ in range(3):
            send(agent)
        assert len(streams.claim("one", 2)) == 2
        assert len(streams.claim("one", 0)) == 0
        assert streams.is_any_unheard()


def test_where_subscribing_fails_it_is_asked(follower):
    """Its card says that it streams."""
    slow = Slow()
    with remote_agent(slow, interfaces=((REST, V1),), capabilities={"streaming": False}) as remote:
        agent = add_remote_agent(remote.url)
        agent.card["capabilities"]["streaming"] = True
        agent.save()
        task = send(agent)
        follower.nudge()
        wait_until(lambda: RemoteLeg.objects.filter(stream_failures=1, stream_by="").exists())
        leg = RemoteLeg.objects.get()
        # For good, as good as that is.
        assert leg.stream_until > timezone.now() + timedelta(seconds=300)
        slow.release.set()

        def is_over() -> bool:
            follow_due()
            return turned(task).state == "completed"

        wait_until(is_over)


def test_a_stream_that_breaks_is_taken_up_again(follower, monkeypatch):
    monkeypatch.setattr(streams, "FIRST_PAUSE", 0.05)
    teller = Teller()
    with remote_agent(teller) as remote:
        agent = add_remote_agent(remote.url)
        task = send(agent)
        remote.failures = 1
        follower.nudge()
        wait_until(lambda: RemoteLeg.objects.get().stream_failures == 1)
        teller.words.put("Once")

        def is_told() -> bool:
            follower.nudge()
            return told(task) == "Once"

        wait_until(is_told)
        teller.words.put(None)
        assert settled(task).state == "completed"


def test_a_cancel_here_ends_the_stream_and_is_sent_on(follower):
    with remote_agent(Slow()) as remote:
        task = send(add_remote_agent(remote.url))
        leg = heard(task, follower)
        cancel_task(ALICE, task.pk)
        before = snapshot(task.pk)
        follow_due()
        leg.refresh_from_db()
        assert (leg.phase, leg.answer["state"], leg.stream_by) == ("ended", "canceled", "")
        assert leg.late_at is not None
        assert snapshot(task.pk) == before


def test_what_a_stream_says_after_the_end_changes_nothing():
    slow = Slow()
    with remote_agent(slow) as remote:
        task = send(add_remote_agent(remote.url))
        (leg,) = streams.claim("one", 1)
        Task.objects.filter(pk=task.pk).update(state="failed")
        before = snapshot(task.pk)
        said = legs.task_of(leg)
        assert streams.hear("one", leg.pk, replace(said, state="completed")) is None
        assert snapshot(task.pk) == before
        assert RemoteLeg.objects.get().late_at is not None
        slow.release.set()


def test_while_a_message_goes_out_what_is_heard_waits():
    """The row says that the message may have arrived; only who sends it may say more."""
    with remote_agent(Slow()) as remote:
        send(add_remote_agent(remote.url))
        (leg,) = streams.claim("one", 1)
        RemoteLeg.objects.update(phase="sending", sent=2)
        before = RemoteLeg.objects.values().get()
        assert streams.hear("one", leg.pk, legs.task_of(leg)) == 0.0
        assert RemoteLeg.objects.values().get() == before
        assert streams.renew("one", [leg.pk]) == {leg.pk}
        assert RemoteLeg.objects.get().due_at == before["due_at"]


def test_silence_beyond_the_deadline_fails_and_cancels(follower):
    with remote_agent(Slow()) as remote:
        agent = add_remote_agent(remote.url)
        task = send(agent)
        # Not before: on a slow machine it would be over before it is heard.
        agent.options = {"deadline_seconds": 0.7}
        agent.save()
        forget_agents()
        heard(task, follower)
        assert settled(task).state == "failed"
        assert task.status_message["metadata"]["errorClass"] == "timed_out"

        def is_ended() -> bool:
            follow_due()
            return RemoteLeg.objects.get().phase == "ended"

        wait_until(is_ended)
        assert RemoteLeg.objects.get().answer["state"] == "canceled"


def test_a_process_that_ends_lets_go_at_once(follower):
    with remote_agent(Slow()) as remote:
        leg = heard(send(add_remote_agent(remote.url)), follower)
        follower.stop(PATIENCE)
        assert unheard(leg.pk)
        assert [one.pk for one in streams.claim("next", 1)] == [leg.pk]


@pytest.mark.parametrize("moment", ["claim", "hear"])
def test_a_process_that_ends_lets_go_of_what_is_just_being_written(follower, monkeypatch, moment):
    with remote_agent(Slow()) as remote:
        send(add_remote_agent(remote.url))
        late = UntilStopped(follower)
        monkeypatch.setattr(streams, moment, late.hold(getattr(streams, moment)))
        follower.nudge()
        assert late.begun.wait(PATIENCE)
        follower.stop(PATIENCE)
        leg = RemoteLeg.objects.get()
        assert (leg.stream_by, leg.stream_until, leg.due_at <= timezone.now()) == ("", None, True)


def test_what_is_heard_while_the_leg_is_let_go_leaves_it_let_go(monkeypatch):
    with remote_agent(Slow()) as remote:
        send(add_remote_agent(remote.url))
        (leg,) = streams.claim("one", 1)
        original, before = following.apply, []

        def too_late(*args, **more):
            streams.let_go("one", [leg.pk])
            before.append(RemoteLeg.objects.values().get())
            return original(*args, **more)

        monkeypatch.setattr(following, "apply", too_late)
        assert streams.hear("one", leg.pk, legs.task_of(leg)) == 0.0
        assert [RemoteLeg.objects.values().get()] == before
        assert streams.hear("one", leg.pk, legs.task_of(leg)) is None


# --- A stream as 0.3 has it: it begins in the middle ---------------------------------------------


@contextmanager
def in_the_middle():
    """An agent of 0.3 whose stream tells only what is new; by the time we listen, the beginning has been missed."""
    go_on, is_done = threading.Event(), threading.Event()
    story = [{"artifactId": "a", "name": "story", "parts": [{"kind": "text", "text": "Once upon a time"}]}]

    def task():
        state = "completed" if is_done.is_set() else "working"
        artifacts = story if is_done.is_set() else []
        return {"kind": "task", "id": "t", "contextId": "c", "status": {"state": state}, "artifacts": artifacts}

    async def chunks(number):
        while not go_on.is_set():  # noqa: ASYNC110 - set from the test's thread
            await asyncio.sleep(0.01)
        is_done.set()
        same = {"taskId": "t", "contextId": "c"}
        piece = {"artifactId": "a", "name": "story", "parts": [{"kind": "text", "text": " a time"}]}
        for event in (
            {"kind": "artifact-update", "artifact": piece, "append": True, **same},
            {"kind": "status-update", "status": {"state": "completed"}, "final": True, **same},
        ):
            yield f"data: {json.dumps({'jsonrpc': '2.0', 'id': number, 'result': event})}\n\n"

    async def rpc(request):
        body = await request.json()
        if body["method"] == "tasks/resubscribe":
            return StreamingResponse(chunks(body["id"]), media_type="text/event-stream")
        return JSONResponse({"jsonrpc": "2.0", "id": body["id"], "result": task()})

    async def card(request):
        return JSONResponse(
            {
                "protocolVersion": "0.3.0",
                "name": "Middle",
                "description": "",
                "version": "1",
                "url": f"http://{request.url.netloc}/rpc",
                "preferredTransport": "JSONRPC",
                "capabilities": {"streaming": True},
                "defaultInputModes": [],
                "defaultOutputModes": [],
                "skills": [],
            }
        )

    routes = [Route("/.well-known/agent-card.json", card), Route("/rpc", rpc, methods=["POST"])]
    with serve(Starlette(routes=routes)) as url:
        yield url, go_on


def test_what_was_missed_is_asked_for(follower):
    with in_the_middle() as (url, go_on):
        task = send(add_remote_agent(url))
        heard(task, follower)
        go_on.set()
        assert settled(task).state == "completed"
        assert told(task) == "Once upon a time"
