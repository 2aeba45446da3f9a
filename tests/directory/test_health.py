"""Health: the circuit opens, waits, is probed, and closes; success rates are counted, from several threads too."""

import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from directory import health
from directory.exceptions import (
    AccessDenied,
    AddressRefused,
    AgentDisabled,
    AgentQuarantined,
    CircuitOpen,
    RemoteTaskNotFound,
    ServerFailed,
    TimedOut,
)
from directory.health import (
    check_available,
    claim_due,
    rates,
    record_call,
    record_delegation,
    record_probe,
    success_rate,
)
from directory.models import Agent, DelegationCount, Health

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


@pytest.fixture
def agent():
    agent = Agent.objects.create(slug="remote", name="Remote", kind="remote", url="https://agent.example/")
    Health.objects.create(agent=agent)
    return agent


def fail(agent, times=1, error=None):
    for _ in range(times):
        record_call(agent.pk, timezone.now(), 0.1, error or ServerFailed("It burns."))


def succeed(agent, seconds=0.1):
    record_call(agent.pk, timezone.now(), seconds, None)


def state(agent):
    return Health.objects.get(agent=agent)


def wait_out(agent):
    """As if the time that the circuit stays open had passed."""
    past = timezone.now() - timedelta(seconds=1)
    Health.objects.filter(agent=agent).update(retry_at=past, probe_due_at=past, opened_at=past - timedelta(minutes=1))


def test_a_call_shows_that_it_lives(agent):
    succeed(agent, 1.0)
    succeed(agent, 2.0)
    row = state(agent)
    assert row.last_seen_at
    assert row.latency == pytest.approx(1.2)
    assert row.circuit == "closed"
    check_available(agent)


def test_the_circuit_opens_after_enough_failures_in_a_row(agent):
    fail(agent, health.FAILURES_TO_OPEN - 1)
    succeed(agent)
    fail(agent, health.FAILURES_TO_OPEN - 1)
    check_available(agent)
    fail(agent)
    row = state(agent)
    assert row.circuit == "open"
    assert row.retry_at == row.probe_due_at
    assert 20 < (row.retry_at - row.opened_at).total_seconds() < 40
    with pytest.raises(CircuitOpen, match=r"tried again at .* UTC\. It burns\.") as caught:
        check_available(agent)
    assert caught.value.retry_at == row.retry_at


@pytest.mark.parametrize("error", [RemoteTaskNotFound(), AccessDenied()])
def test_an_answer_that_says_no_is_a_sign_of_life(agent, error):
    fail(agent, 2)
    fail(agent, 20, error)
    row = state(agent)
    assert (row.circuit, row.failures) == ("closed", 0)
    assert row.last_error == str(error)


def test_what_we_refuse_ourselves_says_nothing(agent):
    before = Health.objects.values().get()
    fail(agent, 20, AddressRefused())
    assert Health.objects.values().get() == before


def test_it_opens_once_and_late_failures_move_nothing(agent):
    fail(agent, health.FAILURES_TO_OPEN)
    opened = state(agent)
    fail(agent, 3)
    row = state(agent)
    assert (row.opened_at, row.retry_at, row.trips) == (opened.opened_at, opened.retry_at, 1)
    assert row.failures == health.FAILURES_TO_OPEN + 3


def test_a_late_answer_to_an_early_call_does_not_close_it(agent):
    early = timezone.now()
    fail(agent, health.FAILURES_TO_OPEN)
    record_call(agent.pk, early, 9.0, None)
    assert state(agent).circuit == "open"


def test_half_open_lets_nobody_but_the_probe_through(agent):
    fail(agent, health.FAILURES_TO_OPEN)
    wait_out(agent)
    assert state(agent).circuit == "half-open"
    with pytest.raises(CircuitOpen):
        check_available(agent)
    assert claim_due("probe_due_at", 30, 10) == [agent.pk]
    assert claim_due("probe_due_at", 30, 10) == []
    record_probe(agent.pk, timezone.now(), 0.1, None)
    row = state(agent)
    assert (row.circuit, row.failures, row.trips) == ("closed", 0, 0)
    assert row.probe_due_at > timezone.now()
    check_available(agent)


def test_a_probe_that_fails_waits_twice_as_long_each_time(agent):
    fail(agent, health.FAILURES_TO_OPEN)
    for factor in (2, 4, 8):
        wait_out(agent)
        before = timezone.now()
        record_probe(agent.pk, before, 0.1, TimedOut())
        row = state(agent)
        about = timedelta(seconds=health.OPEN_SECONDS * factor)
        assert before + 0.75 * about < row.retry_at < timezone.now() + 1.25 * about
        assert row.probe_due_at == row.retry_at
    Health.objects.update(trips=30)
    wait_out(agent)
    record_probe(agent.pk, timezone.now(), 0.1, TimedOut())
    assert (state(agent).retry_at - timezone.now()).total_seconds() < health.MAX_OPEN_SECONDS * 1.25


def test_a_probe_while_closed_comes_again_in_time(agent, settings):
    settings.BUREAU_PROBE_SECONDS = 100.0
    record_probe(agent.pk, timezone.now(), 0.1, TimedOut())
    row = state(agent)
    assert 75 < (row.probe_due_at - timezone.now()).total_seconds() < 125
    assert (row.circuit, row.failures) == ("closed", 1)


def test_disabled_and_quarantined_agents_are_not_available(agent):
    Agent.objects.update(quarantined_at=timezone.now(), quarantine_reason="Its card changed.")
    agent.refresh_from_db()
    with pytest.raises(AgentQuarantined, match="Its card changed"):
        check_available(agent)
    Agent.objects.update(is_enabled=False)
    agent.refresh_from_db()
    with pytest.raises(AgentDisabled):
        check_available(agent)
    assert claim_due("probe_due_at", 30, 10) == []


def test_a_claim_that_is_not_kept_comes_due_again(agent):
    assert claim_due("refresh_due_at", -1, 10) == [agent.pk]
    assert claim_due("refresh_due_at", 30, 10) == [agent.pk]


def test_an_agent_that_is_gone_is_let_be(agent):
    Agent.objects.all().delete()
    fail(agent)
    succeed(agent)
    record_probe(agent.pk, timezone.now(), 0.1, None)
    assert not Health.objects.exists()


def test_delegations_are_counted_by_skill(agent):
    record_delegation(agent, "echo", ok=True, seconds=1.0)
    record_delegation(agent, "echo", ok=False, seconds=3.0)
    record_delegation(agent, "", ok=True, seconds=5.0)
    assert success_rate(agent, "echo").share == 0.5
    assert success_rate(agent, "echo").seconds == 2.0
    assert success_rate(agent).succeeded == 2
    assert success_rate(agent).share == pytest.approx(2 / 3)
    assert success_rate(agent, "other").share is None
    assert set(rates([agent])) == {(agent.pk, "echo"), (agent.pk, "")}


def test_old_delegations_do_not_count(agent):
    record_delegation(agent, "echo", ok=False, seconds=1.0)
    DelegationCount.objects.update(day=timezone.now().date() - timedelta(days=40))
    record_delegation(agent, "echo", ok=True, seconds=1.0)
    assert success_rate(agent, "echo").share == 1.0


# --- From several threads ------------------------------------------------------------------------


def in_threads(count, act):
    barrier = threading.Barrier(count)

    def run():
        try:
            barrier.wait()
            act()
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.django_db(transaction=True)
def test_no_delegation_is_lost(agent):
    in_threads(8, lambda: [record_delegation(agent, "echo", ok=True, seconds=0.5) for _ in range(10)])
    row = DelegationCount.objects.get()
    assert (row.succeeded, row.seconds) == (80, pytest.approx(40.0))


@pytest.mark.django_db(transaction=True)
def test_of_many_failures_at_once_one_opens_it(agent, caplog):
    in_threads(8, lambda: fail(agent, 3))
    row = state(agent)
    assert (row.failures, row.trips, row.circuit) == (24, 1, "open")
    assert len([record for record in caplog.records if getattr(record, "action", "") == "circuit.opened"]) == 1


@pytest.mark.django_db(transaction=True)
def test_of_many_who_look_one_gets_the_probe(agent):
    got = []
    in_threads(8, lambda: got.extend(claim_due("probe_due_at", 30, 10)))
    assert got == [agent.pk]
