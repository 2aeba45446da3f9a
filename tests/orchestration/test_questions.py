"""Questions of several sub-plans, and what goes on while a mission waits for an answer."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from agents import runtime
from agents.models import Decision, ToolCall
from directory.models import Agent
from tasks.claims import claim_next, sweep
from tasks.content import Incoming
from tasks.exceptions import Superseded
from tasks.models import SubPlan, Task
from tasks.results import finish, plain
from tasks.services import cancel_task, send_message
from tests.orchestration.script import answer, part, plan, says, step, triage, writes
from tests.support.cast import ALICE

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]

GOAL = "Find out all about it and write a report"
HANDLE = {"decision": "handle"}


def said(mission) -> str:
    return mission.status_message["parts"][0]["text"]


def planned(model, *parts) -> None:
    model.add(triage(needs_plan=True), plan(*parts))


def asks(key: str, **more):
    """A sub-plan whose first step asks for a file."""
    return part(key, step(f"Read for {key}", "read_file"), step(f"Work on {key}"), **more)


def of(key: str) -> Task | None:
    return SubPlan.objects.select_related("task").get(key=key).task


def begin() -> Task:
    sent = send_message(ALICE, Agent.objects.get(slug="assistant"), Incoming.from_text(GOAL))
    return Task.objects.get(pk=sent.task_id)


def turn():
    """The next due turn, whatever it is."""
    claim = claim_next("default", "w")
    assert claim is not None
    runtime.run_turn(claim)
    return claim


@pytest.fixture
def asking(settle, model):
    """A mission that asks for the file of `asker`, while `slow` is still to be done and `later` waits for it."""
    planned(model, asks("asker"), part("slow"), part("later", needs=("slow",)))
    model.add(writes("slow"), writes("later"), writes("asker"), answer())
    mission = begin()
    assert turn().task_id == mission.pk
    # The one that asks comes first, and the mission hears of it before the other one is done.
    first = turn()
    assert first.task_id == of("asker").pk
    Task.objects.filter(pk=of("slow").pk).update(due_at=None)
    assert turn().task_id == mission.pk
    mission.refresh_from_db()
    assert mission.state == "input-required"
    return mission


def go_on(key: str) -> None:
    Task.objects.filter(pk=of(key).pk).update(due_at="2026-01-01T00:00:00Z")


def test_what_becomes_ready_is_given_out_while_the_mission_asks(asking, model, settle, project):
    question, events = asking.status_message, asking.last_seq
    go_on("slow")
    turn()
    claim = turn()
    assert (claim.task_id, claim.is_aside) == (asking.pk, True)
    asking.refresh_from_db()
    assert (asking.state, asking.status_message, asking.lease_owner, asking.due_at) == (
        "input-required",
        question,
        "",
        None,
    )
    assert not asking.events.filter(seq__gt=events, kind="status").exists()
    runtime.drain("default")
    assert of("later").state == "completed"
    asking.refresh_from_db()
    assert (asking.state, asking.status_message) == ("input-required", question)
    model.add(says("follow-up", HANDLE))
    assert settle("main.py", task=asking.pk).state == "completed"
    numbers = list(asking.events.order_by("seq").values_list("seq", flat=True))
    assert numbers == list(range(1, len(numbers) + 1))


def test_an_answer_in_the_middle_of_a_turn_aside_wins(asking, model, settle):
    go_on("slow")
    turn()
    aside = claim_next("default", "w")
    assert aside.is_aside
    model.add(says("follow-up", HANDLE))
    send_message(ALICE, asking.agent, Incoming.from_text("main.py"), task_id=asking.pk)
    with pytest.raises(Superseded):
        finish(aside, Task.State.INPUT_REQUIRED, message=plain("Too late"))
    runtime.run_turn(aside)
    assert Task.objects.get(pk=asking.pk).state == "submitted"
    assert of("later") is None
    runtime.drain("default")
    assert Task.objects.get(pk=asking.pk).state == "completed"
    assert ToolCall.objects.get().params["path"] == "main.py"


def test_a_worker_that_dies_in_a_turn_aside_loses_nothing(asking, model):
    go_on("slow")
    turn()
    claim_next("default", "dead")
    Task.objects.filter(pk=asking.pk).update(due_at="2026-01-01T00:00:00Z")
    sweep()
    runtime.drain("default")
    assert of("later").state == "completed"
    assert Task.objects.get(pk=asking.pk).state == "input-required"


def test_a_cancel_ends_a_turn_aside(asking):
    go_on("slow")
    turn()
    aside = claim_next("default", "w")
    cancel_task(ALICE, asking.pk)
    runtime.run_turn(aside)
    assert set(Task.objects.values_list("state", flat=True)) <= {"canceled", "completed"}
    assert of("later") is None


def test_when_the_asker_ends_the_question_is_closed(asking, model, settle):
    """The operator stops the part that asks: nobody is left to answer to, and the mission works again."""
    model.add(says("recover", {"strategy": "abandon"}))
    cancel_task(ALICE, of("asker").pk)
    go_on("slow")
    runtime.drain("default")
    asking.refresh_from_db()
    assert asking.state == "completed"
    assert SubPlan.objects.get(key="asker").is_dropped


def test_an_answer_to_a_question_that_is_closed_goes_to_nobody(asking, model):
    model.add(says("recover", {"strategy": "abandon"}))
    asker = of("asker")
    cancel_task(ALICE, asker.pk)
    before = asker.messages.count()
    send_message(ALICE, asking.agent, Incoming.from_text("main.py"), task_id=asking.pk)
    go_on("slow")
    runtime.drain("default")
    assert Task.objects.get(pk=asking.pk).state == "completed"
    assert asker.messages.count() == before
    assert not Decision.objects.filter(point="follow-up").exists()


def test_questions_are_asked_one_after_the_other_and_each_gets_its_own_answer(settle, model, project):
    planned(model, asks("first"), asks("second"), part("free"))
    model.add(writes("free"), writes("first"), writes("second"), answer())
    mission = settle(GOAL)
    assert mission.state == "input-required"
    assert "for “The first”" in said(mission)
    assert "(1 more question will follow.)" in said(mission)
    assert [of(key).state for key in ("first", "second", "free")] == ["input-required", "input-required", "completed"]
    model.add(says("follow-up", HANDLE, times=2))
    mission = settle("main.py", task=mission.pk)
    assert mission.state == "input-required"
    assert "for “The second”" in said(mission)
    assert "more question" not in said(mission)
    assert of("first").state == "completed"
    mission = settle("README.md", task=mission.pk)
    assert mission.state == "completed"
    paths = {call.task_id: call.params["path"] for call in ToolCall.objects.all()}
    assert paths == {of("first").pk: "main.py", of("second").pk: "README.md"}


def test_a_second_question_leaves_the_first_one_standing(asking, model, project):
    question = asking.status_message
    slow = of("slow")
    go_on("slow")
    claim = claim_next("default", "w")
    finish(claim, Task.State.INPUT_REQUIRED, message={**plain("Which?"), "metadata": {"questions": ["Which?"]}})
    runtime.drain("default")
    asking.refresh_from_db()
    assert (asking.state, asking.status_message) == ("input-required", question)
    model.add(says("follow-up", HANDLE))
    send_message(ALICE, asking.agent, Incoming.from_text("main.py"), task_id=asking.pk)
    runtime.drain("default")
    asking.refresh_from_db()
    assert "for “The slow”" in said(asking)
    assert Task.objects.get(pk=slow.pk).messages.filter(role="user").count() == 1


def test_an_answer_never_goes_to_a_question_that_came_after_it(asking, model):
    """The part was answered directly and has asked again, before the answer to its old question was read."""
    asker = of("asker")
    send_message(ALICE, asker.agent, Incoming.from_text("it is somewhere"), task_id=asker.pk)
    send_message(ALICE, asking.agent, Incoming.from_text("main.py"), task_id=asking.pk)
    claim = next(c for c in (claim_next("default", "w"), claim_next("default", "w")) if c.task_id == asker.pk)
    finish(claim, Task.State.INPUT_REQUIRED, message={**plain("Really?"), "metadata": {"questions": ["Really?"]}})
    Task.objects.filter(pk=asking.pk).update(due_at="2026-01-01T00:00:00Z", lease_owner="")
    runtime.drain("default")
    asking.refresh_from_db()
    assert (asking.state, "Really?" in said(asking)) == ("input-required", True)
    assert asker.messages.filter(role="user").count() == 2


def test_who_uses_one_message_id_for_two_answers_is_heard_twice(asking, model):
    model.add(says("follow-up", HANDLE, times=2))
    asker = of("asker")
    for text in ("it is somewhere", "main.py"):
        send_message(ALICE, asking.agent, Incoming([{"text": text}], message_id="m-1"), task_id=asking.pk)
        assert turn().task_id == asking.pk
        claim = claim_next("default", "w")
        assert claim.task_id == asker.pk
        finish(claim, Task.State.INPUT_REQUIRED, message={**plain("Really?"), "metadata": {"questions": ["Really?"]}})
        assert turn().task_id == asking.pk
    heard = asker.messages.filter(role="user", message_id="m-1").values_list("parts", flat=True)
    assert list(heard) == [[{"text": "it is somewhere"}], [{"text": "main.py"}]]


def test_an_answer_in_two_messages_is_one(asking, model):
    model.add(says("follow-up", HANDLE, about="main.py.*please"))
    for text in ("main.py", "please"):
        send_message(ALICE, asking.agent, Incoming.from_text(text), task_id=asking.pk)
    go_on("slow")
    runtime.drain("default")
    assert Task.objects.get(pk=asking.pk).state == "completed"
    assert [part["text"] for part in of("asker").messages.filter(role="user").last().parts] == ["main.py", "please"]


def test_what_rests_is_tried_again_while_the_mission_asks(settle, model, project, monkeypatch):
    from agents.orchestration import flow

    monkeypatch.setattr(flow, "backoff", lambda attempt: 3600.0)
    planned(model, asks("asker"), part("shaky"))
    model.add(writes("shaky", status=529, times=4), writes("shaky"), writes("asker"), answer())
    mission = settle(GOAL)
    resting = SubPlan.objects.get(key="shaky")
    assert (mission.state, mission.due_at) == ("input-required", resting.retry_at)
    SubPlan.objects.filter(key="shaky").update(retry_at="2026-01-01T00:00:00Z")
    Task.objects.filter(pk=mission.pk).update(due_at="2026-01-01T00:00:00Z")
    runtime.drain("default")
    mission.refresh_from_db()
    assert (of("shaky").state, mission.state, mission.due_at) == ("completed", "input-required", None)


def test_a_failure_that_is_asked_about_holds_nothing_back(settle, model):
    planned(model, part("facts"), part("maps"), part("atlas", needs=("maps",)))
    model.add(writes("facts", status=401), writes("maps"), writes("atlas"), answer())
    mission = settle(GOAL)
    assert (mission.state, mission.status_message["metadata"]["asks"]["kind"]) == ("input-required", "recover")
    assert of("atlas").state == "completed"
    question = mission.status_message["metadata"]["asks"]
    mission = settle("Don't leave it out, try it again", task=mission.pk)
    assert (mission.state, mission.status_message["metadata"]["asks"]) == ("input-required", question)
    assert SubPlan.objects.filter(is_dropped=False, attempt=0).count() == 3
    model.add(writes("facts"))
    mission = settle("Try again", task=mission.pk)
    assert mission.state == "completed"


@pytest.mark.parametrize("words", ["skip it", "Leave this part out", "no"])
def test_a_part_that_failed_may_be_left_out(settle, model, words):
    planned(model, part("facts"), part("maps"))
    model.add(writes("facts", status=401), writes("maps"), answer())
    mission = settle(words, task=settle(GOAL).pk)
    assert mission.state == "completed"
    assert [(one.key, one.attempt) for one in SubPlan.objects.filter(is_dropped=True)] == [("facts", 0)]


@pytest.mark.parametrize("fault", [{"status": 400}, {"fault": "hang"}, {"text": "no json"}, {"stop_reason": "refusal"}])
def test_what_nobody_can_judge_is_not_passed_on(asking, model, settings, fault):
    patience = settings.BUREAU_MODEL_TIMEOUT
    if "fault" in fault:
        settings.BUREAU_MODEL_TIMEOUT = 0.3
    model.add(says("follow-up", times=9, **fault))
    before = of("asker").messages.count()
    send_message(ALICE, asking.agent, Incoming.from_text("main.py"), task_id=asking.pk)
    turn()
    # What answers at all may take its time.
    settings.BUREAU_MODEL_TIMEOUT = patience
    asking.refresh_from_db()
    assert (asking.state, of("asker").messages.count()) == ("input-required", before)
    assert "I could not tell whether “main.py” answers" in said(asking)
    assert Decision.objects.get(point="follow-up").is_fallback
    # Its question stands while other things go on, and yes passes on what was held back.
    question = asking.status_message
    go_on("slow")
    runtime.drain("default")
    asking.refresh_from_db()
    assert (asking.state, asking.status_message) == ("input-required", question)
    send_message(ALICE, asking.agent, Incoming.from_text("yes"), task_id=asking.pk)
    runtime.drain("default")
    assert Task.objects.get(pk=asking.pk).state == "completed"
    assert ToolCall.objects.get().params["path"] == "main.py"


def test_without_a_model_an_answer_is_passed_on(asking, settings, model):
    settings.BUREAU_POINTS_OFF = ("follow-up",)
    send_message(ALICE, asking.agent, Incoming.from_text("main.py"), task_id=asking.pk)
    go_on("slow")
    runtime.drain("default")
    assert Task.objects.get(pk=asking.pk).state == "completed"


def at_once(*acts) -> None:
    """Each in a thread with a connection of its own, all begun together."""
    together = threading.Barrier(len(acts))

    def run(act) -> None:
        try:
            together.wait(60)
            act()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(acts)) as pool:
        for done in [pool.submit(run, act) for act in acts]:
            done.result()


@pytest.mark.parametrize("number", range(4))
def test_one_asks_one_ends_and_one_is_answered_at_once(settle, model, project, number):
    planned(model, asks("first"), asks("second"), part("slow"), part("later", needs=("slow",)))
    model.add(*(writes(key) for key in ("first", "second", "slow", "later")), answer())
    model.add(says("follow-up", HANDLE, times=0))
    mission = begin()
    turn()
    assert turn().task_id == of("first").pk
    others = Task.objects.filter(pk__in=[of("second").pk, of("slow").pk])
    others.update(due_at=None)
    assert turn().task_id == mission.pk
    others.update(due_at="2026-01-01T00:00:00Z")
    claims = [claim_next("default", "w") for _ in range(2)]
    mission.refresh_from_db()
    assert mission.state == "input-required"
    acts = [lambda claim=claim: runtime.run_turn(claim) for claim in claims]
    given = Incoming.from_text("main.py")
    acts.append(lambda: send_message(ALICE, mission.agent, given, task_id=mission.pk))
    at_once(*acts, lambda: runtime.drain("default"))
    runtime.drain("default")
    mission.refresh_from_db()
    assert (mission.state, "for “The second”" in said(mission)) == ("input-required", True)
    assert (of("first").state, of("later").state) == ("completed", "completed")
    assert settle("README.md", task=mission.pk).state == "completed"
    paths = {call.task_id: call.params["path"] for call in ToolCall.objects.all()}
    assert paths == {of("first").pk: "main.py", of("second").pk: "README.md"}
    for task in Task.objects.all():
        numbers = list(task.events.order_by("seq").values_list("seq", flat=True))
        assert numbers == list(range(1, task.last_seq + 1))
