"""Push notifications: kept like tasks, delivered from the log, in order, at least once."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from tasks import outbox
from tasks.models import PushAttempt, PushConfig, PushEndpoint, Task
from tasks.sql import fetch_one
from tests.a2a.peer import message, old_message
from tests.support.receivers import receiver
from tests.support.waiting import PATIENCE, UntilStopped, wait_until

pytestmark = pytest.mark.both_databases
# With a database of its own address, a process does not trust loopback by itself.
ALLOW = {"BUREAU_OUTBOUND_ALLOW": "127.0.0.0/8"}
WHOLE = ["working", "artifact", "completed"]


@pytest.fixture(autouse=True)
def no_time_runs_out(monkeypatch):
    """However slow the machine is: what is under way stays so, and what failed is due again when the test says so."""
    from bureau.a2a import courier

    monkeypatch.setattr(courier, "TIMEOUT_SECONDS", 10 * PATIENCE)
    monkeypatch.setattr(outbox, "LEASE_SECONDS", 20 * PATIENCE)
    monkeypatch.setattr(outbox, "FIRST_PAUSE_SECONDS", 10 * PATIENCE)


@pytest.fixture
def hook(settings):
    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8",)
    with receiver() as found:
        yield found


@pytest.fixture
def deliver():
    from bureau.a2a.courier import deliver_due

    return lambda: asyncio.run(deliver_due())


def configured(hook, **fields):
    return {"taskPushNotificationConfig": {"url": hook.url, **fields}}


def due_now():
    PushConfig.objects.exclude(due_at=None).update(due_at=timezone.now())
    PushEndpoint.objects.exclude(retry_at=None).update(retry_at=timezone.now())


def test_every_event_of_a_task_is_delivered_in_order(alice, worker, hook, deliver):
    secret = {"scheme": "Bearer", "credentials": "s3cret"}
    task = alice.send("Hello", configuration=configured(hook, token="tok", authentication=secret))
    deliver()

    assert hook.states() == WHOLE
    first = hook.received[0]
    assert first.json["statusUpdate"]["taskId"] == task["id"]
    assert first.headers["content-type"] == "application/a2a+json"
    assert int(first.headers["content-length"]) == len(first.body)
    assert first.headers["authorization"] == "Bearer s3cret"
    assert first.headers["x-a2a-notification-token"] == "tok"
    config = PushConfig.objects.get()
    assert (config.is_over, config.due_at, config.attempts.count()) == (True, None, 3)
    assert "s3cret" not in config.credentials
    assert deliver() == 0


def test_a_worker_process_delivers_by_itself(alice, worker_process, hook):
    worker_process(**ALLOW)
    alice.submit("Hello", configuration=configured(hook))

    wait_until(lambda: len(hook.received) == 3, what="three pushes")
    assert hook.states() == WHOLE


def test_0_3_is_told_of_the_whole_task(as_peer, worker, hook, deliver):
    old = as_peer("old", version="0.3", slug="echo")
    config = {"pushNotificationConfig": {"url": hook.url, "token": "tok"}}
    task = old.result("message/send", old_message("Hello", configuration=config))
    deliver()

    assert hook.received[-1].json == task
    assert hook.received[-1].headers["x-a2a-notification-token"] == "tok"


def test_what_happened_before_is_not_told(alice, take, hook, deliver):
    task = alice.submit("x")
    take()
    alice.result("CreateTaskPushNotificationConfig", {"taskId": task["id"], "url": hook.url})
    alice.result("CancelTask", {"id": task["id"]})
    deliver()

    assert hook.states() == ["canceled"]


def test_create_get_list_delete(alice, hook):
    task = alice.submit("x")
    asked = {"taskId": task["id"], "id": "mine", "url": hook.url, "token": "t"}
    secret = {"authentication": {"scheme": "Bearer", "credentials": "s"}}
    made = alice.result("CreateTaskPushNotificationConfig", asked | secret)

    assert made == asked | {"authentication": {"scheme": "Bearer"}}
    named = {"taskId": task["id"], "id": "mine"}
    assert alice.result("GetTaskPushNotificationConfig", named) == made
    other = alice.result("CreateTaskPushNotificationConfig", {"taskId": task["id"], "url": hook.url})
    assert alice.result("ListTaskPushNotificationConfigs", {"taskId": task["id"]}) == {"configs": [made, other]}
    assert alice.result("DeleteTaskPushNotificationConfig", named) == {}
    assert alice.error("GetTaskPushNotificationConfig", named)["code"] == -32001
    assert alice.result("DeleteTaskPushNotificationConfig", named) == {}


def test_an_id_is_unique_per_task_only_and_says_the_last_word(alice, hook):
    first, second = alice.submit("x"), alice.submit("y")
    for task in (first, second, second):
        config = {"taskId": task["id"], "id": "mine", "url": hook.url}
        alice.result("CreateTaskPushNotificationConfig", config)

    assert PushConfig.objects.count() == 2


def test_a_task_of_somebody_else_is_not_there(alice, bob, hook):
    task = alice.submit("x")
    alice.result("CreateTaskPushNotificationConfig", {"taskId": task["id"], "id": "mine", "url": hook.url})
    named = {"taskId": task["id"], "id": "mine"}

    for verb, params in [("Create", {**named, "url": hook.url}), ("Get", named), ("Delete", named)]:
        assert bob.error(f"{verb}TaskPushNotificationConfig", params)["code"] == -32001
    assert bob.error("ListTaskPushNotificationConfigs", named)["code"] == -32001
    assert PushConfig.objects.count() == 1


@pytest.mark.parametrize(
    "config",
    [
        {"url": "http://169.254.169.254/latest"},
        {"url": "http://10.0.0.1/"},
        {"url": "file:///etc/passwd"},
        {"url": "nonsense"},
        {"token": "with\nnewline"},
        {"authentication": {"scheme": "two words", "credentials": "x"}},
        {"id": "x" * 256},
    ],
)
def test_what_cannot_be_used_is_refused(alice, hook, config):
    config = {"url": hook.url, **config}
    error = alice.error("SendMessage", message("x", configuration={"taskPushNotificationConfig": config}))

    assert error["code"] == -32602
    assert not Task.objects.exists()
    task = alice.submit("x")
    assert alice.error("CreateTaskPushNotificationConfig", {"taskId": task["id"], **config})["code"] == -32602
    assert not PushConfig.objects.exists()


def test_an_address_is_judged_again_when_it_is_contacted(alice, worker, hook, deliver, settings):
    alice.send("x", configuration=configured(hook))
    settings.BUREAU_OUTBOUND_ALLOW = ()
    deliver()

    assert not hook.received
    assert "may not be contacted" in PushAttempt.objects.get().error


def test_what_failed_is_tried_again_and_nothing_overtakes_it(alice, worker, hook, deliver):
    hook.answers = [500, 302, 404]
    alice.send("x", configuration=configured(hook))
    for number in range(1, 4):
        deliver()
        config = PushConfig.objects.get()
        assert (len(hook.received), config.failures, config.cursor) == (number, number, 1)
        assert config.due_at > timezone.now()
        due_now()
    deliver()

    assert hook.states() == ["working"] * 3 + WHOLE
    assert [attempt.status for attempt in PushAttempt.objects.order_by("id")] == [500, 302, 404, 200, 200, 200]
    assert PushConfig.objects.get().failures == 0
    assert not PushEndpoint.objects.exists()


def test_after_a_day_it_is_given_up_until_an_operator_redelivers(alice, worker, hook, deliver):
    hook.answers = [500]
    alice.send("x", configuration=configured(hook))
    PushConfig.objects.update(failing_since=timezone.now() - timedelta(days=1), failures=9)
    deliver()
    config = PushConfig.objects.get()
    assert config.disabled_at is not None and config.due_at is None
    outbox.sweep()
    assert deliver() == 0

    outbox.redeliver(PushConfig.objects.all())
    deliver()
    assert hook.states() == ["working", *WHOLE]
    outbox.redeliver(PushConfig.objects.all(), after=1)
    deliver()
    assert hook.states() == ["working", *WHOLE, *WHOLE]


def test_a_place_that_fails_is_left_alone_and_then_tried_by_one(alice, worker, hook, deliver):
    hook.answers = [500] * 6
    for _ in range(6):
        alice.send("x", configuration=configured(hook))
    PushConfig.objects.update(due_at=None)
    for config in PushConfig.objects.order_by("id"):
        PushConfig.objects.filter(pk=config.pk).update(due_at=timezone.now())
        deliver()

    assert len(hook.received) == outbox.FAILURES_TO_OPEN
    assert PushAttempt.objects.count() == outbox.FAILURES_TO_OPEN
    due_now()
    deliver()
    assert len(hook.received) == outbox.FAILURES_TO_OPEN + 1
    due_now()
    hook.answers.clear()
    deliver()
    due_now()
    deliver()
    assert not PushEndpoint.objects.exists()
    assert hook.states()[-18:].count("completed") == 6


def test_who_names_wrong_addresses_at_a_place_holds_back_nobody_else(alice, bob, worker, hook, deliver):
    hook.answers = [404] * outbox.FAILURES_TO_OPEN
    for _ in range(outbox.FAILURES_TO_OPEN):
        bob.send("x", configuration=configured(hook))
    deliver()
    assert PushEndpoint.objects.get().retry_at
    PushEndpoint.objects.update(failing_since=timezone.now() - timedelta(days=2))
    hook.received.clear()
    alice.send("y", configuration=configured(hook))
    deliver()

    assert hook.states() == WHOLE
    assert PushConfig.objects.filter(disabled_at=None).count() == outbox.FAILURES_TO_OPEN + 1


def test_what_a_dead_process_did_not_announce_is_found_by_the_sweep(alice, worker, hook, deliver):
    alice.send("x", configuration=configured(hook))
    PushConfig.objects.update(due_at=None)
    assert deliver() == 0
    outbox.sweep()
    deliver()

    assert hook.states() == WHOLE


def test_a_claim_that_was_overtaken_moves_nothing(alice, worker, hook, deliver):
    alice.send("x", configuration=configured(hook))
    (late,) = outbox.claim_due(10)
    delivery = outbox.next_delivery(late)
    assert outbox.claim_due(10) == []
    due_now()
    deliver()
    before = list(PushConfig.objects.values())

    assert not outbox.record(late, delivery, status=200, error="", seconds=0.1)
    assert not outbox.record(late, delivery, status=None, error="x", seconds=0.1)
    assert outbox.next_delivery(late) is None
    assert list(PushConfig.objects.values()) == before
    assert PushAttempt.objects.count() == 3


def test_killing_the_worker_between_two_deliveries_loses_none(alice, worker_process, hook):
    victim = worker_process(**ALLOW)
    hook.go_on.clear()
    alice.submit("Hello", configuration=configured(hook))
    wait_until(lambda: len(hook.received) == 1, what="the first push")
    wait_until(lambda: Task.objects.get().is_terminal, what="the end of the task")
    victim.kill()
    hook.go_on.set()
    # Its lease runs out.
    due_now()
    worker_process(**ALLOW)

    def is_over():
        outbox.sweep()  # what the scheduler does every few seconds
        return hook.states()[-1:] == ["completed"]

    wait_until(is_over, what="the last push")
    # The first was not acknowledged, so it may have come twice.
    assert hook.states() in (WHOLE, ["working", *WHOLE])


def test_tasks_that_nobody_is_told_of_write_nothing_more(alice, worker, hook, monkeypatch):
    from tasks import state

    noticed = []
    monkeypatch.setattr(state, "notice_push", noticed.append)
    alice.send("x")

    assert not noticed
    assert not Task.objects.get().has_push


@pytest.fixture
def courier():
    from bureau.a2a.courier import deliver_due
    from tasks.background import Background

    found = Background("courier", deliver_due)
    yield found
    found.stop(PATIENCE)


def test_a_slow_receiver_holds_back_nobody_else(alice, worker, hook, courier):
    hook.go_on.clear()
    alice.send("x", configuration=configured(hook))
    courier.nudge()
    wait_until(lambda: hook.received, what="the slow one")
    with receiver() as quick:
        alice.send("y", configuration=configured(quick))
        courier.nudge()
        wait_until(lambda: quick.states() == WHOLE, what="the quick one")

    assert len(hook.received) == 1
    hook.go_on.set()
    wait_until(lambda: hook.states() == WHOLE, what="the rest")


def test_a_worker_that_stops_lets_go(alice, worker, hook, courier):
    hook.go_on.clear()
    alice.send("x", configuration=configured(hook))
    courier.nudge()
    wait_until(lambda: hook.received, what="the first push")
    courier.stop(PATIENCE)

    config = PushConfig.objects.get()
    assert (config.cursor, config.failures) == (1, 0)
    assert config.due_at <= timezone.now()
    assert not PushAttempt.objects.exists()


@pytest.mark.parametrize("moment", ["claim_due", "record"])
def test_a_worker_that_stops_lets_go_of_what_is_just_being_written(alice, worker, hook, courier, monkeypatch, moment):
    from bureau.a2a import courier as module

    late = UntilStopped(courier)
    monkeypatch.setattr(module, moment, late.hold(getattr(module, moment)))
    alice.send("x", configuration=configured(hook))
    courier.nudge()
    assert late.begun.wait(PATIENCE)
    courier.stop(PATIENCE)

    config = PushConfig.objects.get()
    assert config.cursor == (2 if moment == "record" else 1)
    assert config.due_at <= timezone.now()


def test_a_configuration_that_is_set_again_while_it_is_served_is_not_served_twice(
    alice, worker, hook, courier, deliver
):
    hook.go_on.clear()
    task = alice.send("x", configuration=configured(hook, id="mine"))
    courier.nudge()
    wait_until(lambda: hook.received, what="the first push")
    alice.result(
        "CreateTaskPushNotificationConfig", {"taskId": task["id"], "id": "mine", "url": hook.url, "token": "t"}
    )
    assert deliver() == 0
    hook.go_on.set()

    wait_until(lambda: hook.states() == WHOLE, what="the rest")
    assert [each.headers.get("x-a2a-notification-token") for each in hook.received] == [None, "t", "t"]


def test_to_redeliver_does_not_overtake_what_is_under_way(alice, worker, hook, courier, deliver):
    hook.go_on.clear()
    alice.send("x", configuration=configured(hook))
    courier.nudge()
    wait_until(lambda: hook.received, what="the first push")
    outbox.redeliver(PushConfig.objects.all(), after=1)
    assert deliver() == 0
    hook.go_on.set()
    courier.stop(PATIENCE)
    assert PushConfig.objects.get().cursor == 1
    due_now()
    deliver()

    assert hook.states() == ["working", *WHOLE]


def test_a_failure_counts_also_where_another_push_arrives_at_that_moment(alice, worker, hook):
    alice.send("x", configuration=configured(hook))
    (claim,) = outbox.claim_due(10)
    delivery = outbox.next_delivery(claim)
    row = {"owner": delivery.config.task.owner, "origin": hook.url.removesuffix("/hook")}
    PushEndpoint.objects.create(**row, failing_since=timezone.now(), failures=3)

    def fail():
        try:
            outbox.record(claim, delivery, status=500, error="No.", seconds=0.1)
        finally:
            connection.close()

    with ThreadPoolExecutor() as pool:
        with transaction.atomic():
            PushEndpoint.objects.all().delete()
            recording = pool.submit(fail)
            if connection.vendor == "postgresql":
                blocked = "SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
                wait_until(lambda: fetch_one(blocked, []), what="the failure")
        recording.result(PATIENCE)
    assert PushEndpoint.objects.values("owner", "origin", "failures").get() == row | {"failures": 1}
    assert PushAttempt.objects.get().status == 500


def test_several_couriers_lose_double_and_reorder_nothing(alice, worker, hook, monkeypatch):
    monkeypatch.setattr(outbox, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(outbox, "FAILURES_TO_OPEN", 10**6)
    hook.answers = [500, 200, 200, 503, 200] * 12
    tasks = {alice.send("x", configuration=configured(hook))["id"] for _ in range(15)}
    is_over = threading.Event()

    def serve():
        from bureau.a2a.courier import deliver_due

        while not is_over.is_set():
            asyncio.run(deliver_due())

    couriers = [threading.Thread(target=serve) for _ in range(3)]
    for thread in couriers:
        thread.start()
    try:
        wait_until(lambda: PushConfig.objects.filter(is_over=True).count() == len(tasks), what="all pushes")
    finally:
        is_over.set()
        for thread in couriers:
            thread.join(PATIENCE)

    taken = list(PushAttempt.objects.filter(status=200).order_by("id").values_list("config__task_id", "seq"))
    assert len(taken) == len(set(taken)) == 3 * len(tasks)
    for key in tasks:
        heard = [state for state, each in zip(hook.states(), hook.received, strict=True) if key in each.body.decode()]
        assert [state for number, state in enumerate(heard) if heard[number - 1 : number] != [state]] == WHOLE
        assert [seq for task, seq in taken if str(task) == key] == [2, 3, 4]
