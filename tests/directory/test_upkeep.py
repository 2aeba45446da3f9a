"""Rounds of upkeep: cards are read again and agents probed when they are due, and only then."""

import asyncio
from datetime import timedelta

import pytest
from django.conf import settings as django_settings
from django.utils import timezone
from starlette.applications import Starlette
from starlette.routing import Route

from directory import health, upkeep
from directory.credentials import Secret
from directory.enrolment import add_remote_agent
from directory.exceptions import CircuitOpen
from directory.health import check_available
from directory.jobs import tend
from directory.models import Agent, Health
from tests.support.remote_agents import REST, RPC, V03, V1, remote_agent, serve

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


def due(*columns):
    Health.objects.update(**{f"{column}_due_at": timezone.now() - timedelta(seconds=1) for column in columns})


def test_nothing_is_asked_before_its_time(remote, agent):
    remote.requests.clear()
    assert upkeep.tend() == 0
    assert not remote.requests


def test_a_card_that_is_due_is_read_again(remote, agent):
    remote.card["description"] = "Something new."
    due("refresh")
    tend()
    agent.refresh_from_db()
    assert agent.description == "Something new."
    assert agent.health.refresh_due_at > timezone.now()
    remote.requests.clear()
    due("refresh")
    assert upkeep.tend() == 1
    assert upkeep.tend() == 0
    assert remote.paths == ["GET /.well-known/agent-card.json"]
    assert "if-none-match" in remote.requests[0]["headers"]


def test_a_changed_card_puts_it_in_quarantine(remote, agent):
    remote.card["skills"] = []
    due("refresh")
    upkeep.tend()
    agent.refresh_from_db()
    assert agent.quarantined_at


@pytest.mark.parametrize("interface", [(RPC, V1), (REST, V1), (RPC, V03), (REST, V03)])
def test_a_probe_asks_for_a_task_that_is_not_there(interface):
    with remote_agent(interfaces=(interface,)) as remote:
        agent = add_remote_agent(remote.url)
        Health.objects.update(last_seen_at=None)
        due("probe")
        assert upkeep.tend() == 1
        assert upkeep.tend() == 0
    row = Health.objects.get(agent=agent)
    assert row.last_seen_at
    assert row.latency > 0
    assert (row.failures, row.last_error) == (0, "")


def test_probes_open_the_circuit_and_close_it_again(remote, agent):
    remote.failures = health.FAILURES_TO_OPEN
    for _ in range(health.FAILURES_TO_OPEN):
        due("probe")
        upkeep.tend()
    with pytest.raises(CircuitOpen):
        check_available(agent)
    assert upkeep.tend() == 0
    past = timezone.now() - timedelta(seconds=1)
    Health.objects.update(probe_due_at=past, retry_at=past, opened_at=past)
    assert upkeep.tend() == 1
    check_available(agent)


def test_an_agent_that_refuses_our_credential_lives(remote):
    with remote_agent(key="secret") as guarded:
        agent = add_remote_agent(guarded.url)
        due("probe")
        upkeep.tend()
    assert agent.health.circuit == "closed"
    assert Health.objects.get(agent=agent).failures == 0


def test_disabled_agents_are_let_be(remote, agent):
    Agent.objects.update(is_enabled=False)
    due("probe", "refresh")
    assert upkeep.tend() == 0


def test_one_that_cannot_be_asked_holds_nobody_back(remote, agent, settings):
    with remote_agent(name="Other") as other:
        locked = add_remote_agent(other.url, secret=Secret("bearer", "x"))
        settings.SECRET_KEY = "another"
        Health.objects.update(last_seen_at=None)
        due("probe", "refresh")
        assert upkeep.tend() == 2
    assert Health.objects.get(agent=agent).last_seen_at
    assert not Health.objects.get(agent=locked).last_seen_at


def test_a_silent_agent_does_not_take_long(agent, monkeypatch):
    async def silent(request):
        await asyncio.sleep(60)

    monkeypatch.setattr(upkeep, "PROBE_SECONDS", 0.2)
    with serve(Starlette(routes=[Route("/{path:path}", silent, methods=["GET", "POST"])])) as url:
        Agent.objects.update(url=url)
        due("probe")
        assert upkeep.tend() == 1
    assert "0.2 seconds" in Health.objects.get().last_error


def test_the_scheduler_knows_the_job():
    assert any(entry["task"] == "directory.tend" for entry in django_settings.CELERY_BEAT_SCHEDULE.values())
