"""Probes that somebody asked for: one at a time, made by a job, taken over when that died, given up in the end."""

from datetime import timedelta

import pytest
from django.utils import timezone

from directory import probing
from directory.credentials import Secret, set_credential
from directory.exceptions import NotRemote
from directory.models import Agent, Credential, ProbeResult
from directory.probe import KEPT
from directory.probing import CLAIM, request_probe, ring_due, run_probe

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


@pytest.fixture
def rung(monkeypatch):
    """The probes that were sent for."""
    found = []
    monkeypatch.setattr(probing, "_ring", found.append)
    return found


def test_it_is_asked_for_once_and_sent_for_after_the_commit(agent, rung, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        first = request_probe(agent)
        assert rung == []
    assert request_probe(agent) == first
    assert rung == [first.pk]
    assert ProbeResult.objects.count() == 1


def test_it_is_made_once(agent, remote):
    result = request_probe(agent)
    assert run_probe(result.pk)
    result.refresh_from_db()
    assert (result.state, result.score, result.attempts) == ("done", 100, 1)
    before = len(remote.requests)
    assert not run_probe(result.pk)
    assert len(remote.requests) == before
    assert request_probe(agent) != result


def test_who_comes_second_leaves_it_alone(agent, remote):
    result = request_probe(agent)
    ProbeResult.objects.update(state="running", claimed_at=timezone.now(), attempts=1)
    before = len(remote.requests)
    assert not run_probe(result.pk)
    assert len(remote.requests) == before
    assert ring_due() == 0


def test_one_that_was_left_behind_is_taken_over(agent, rung):
    result = request_probe(agent)
    ProbeResult.objects.update(state="running", claimed_at=timezone.now() - CLAIM - timedelta(seconds=1), attempts=1)
    assert ring_due() == 1
    assert rung == [result.pk]
    assert run_probe(result.pk)
    result.refresh_from_db()
    assert (result.state, result.attempts) == ("done", 2)


def test_the_loser_of_a_take_over_writes_nothing(agent, monkeypatch):
    result = request_probe(agent)

    def lost(source):
        ProbeResult.objects.update(claimed_at=timezone.now() + timedelta(seconds=1), score=7)
        return source_of(source)

    source_of = probing.source_of
    monkeypatch.setattr(probing, "source_of", lost)
    run_probe(result.pk)
    result.refresh_from_db()
    assert (result.state, result.score) == ("running", 7)


def test_one_that_breaks_every_job_is_given_up(agent, rung):
    result = request_probe(agent)
    ProbeResult.objects.update(state="running", claimed_at=timezone.now() - 2 * CLAIM, attempts=2)
    assert ring_due() == 0
    result.refresh_from_db()
    assert (result.state, result.error, rung) == ("failed", probing.BROKE_OFF, [])
    assert not run_probe(result.pk)


def test_without_a_readable_credential_it_says_why(agent):
    set_credential(agent, Secret("bearer", "x"))
    Credential.objects.update(secret="broken")
    result = request_probe(agent)
    assert run_probe(result.pk)
    result.refresh_from_db()
    assert (result.state, result.score) == ("failed", None)
    assert result.error.startswith("The stored credential cannot be decrypted")


def test_an_agent_of_ours_is_not_probed():
    with pytest.raises(NotRemote):
        request_probe(Agent.objects.create(slug="here", name="Here", handler="echo"))
    assert not ProbeResult.objects.exists()


def test_one_that_is_gone_is_no_trouble(agent):
    result = request_probe(agent)
    agent.delete()
    assert not run_probe(result.pk)


def test_old_results_are_forgotten(agent):
    ProbeResult.objects.bulk_create(ProbeResult(agent=agent, score=1) for _ in range(KEPT))
    run_probe(request_probe(agent).pk)
    assert ProbeResult.objects.count() == KEPT


def test_without_a_queue_it_waits_for_the_next_round(agent, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        result = request_probe(agent)
    result.refresh_from_db()
    assert result.state == "waiting"
