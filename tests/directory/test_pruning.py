"""What machines write without end goes when it is old; what somebody still needs stays."""

from datetime import timedelta

import pytest
from django.contrib.sessions.models import Session
from django.utils import timezone

from bureau.pruning import prune
from directory import pruning
from directory.enrolment import refresh_agent
from directory.health import record_delegation, success_rate
from directory.memory import remember
from directory.models import CardRevision, DelegationCount, OutgoingRequest
from directory.wire import Outgoing
from tasks import pruning as tasks_pruning
from tasks.content import Incoming
from tasks.models import Event, Message, PushAttempt, PushConfig, PushEndpoint, Task
from tasks.services import send_message
from tests.support.cast import ALICE
from tests.support.people import make_push
from tests.support.remote_agents import skill

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]

NOW = timezone.now()
OLD = NOW - timedelta(days=31)


def test_old_push_attempts_and_idle_places_go_and_the_configuration_stays(agent, settings):
    config = make_push(send_message(ALICE, agent, Incoming.from_text("Hello")).task_id)
    config.attempts.update(created_at=OLD)
    new = config.attempts.create(seq=3, status=200, seconds=0.1, created_at=NOW)
    PushEndpoint.objects.update(failing_since=OLD)
    PushEndpoint.objects.create(origin="https://still", failures=9, failing_since=OLD, retry_at=NOW)
    gone = prune()
    assert (gone["push attempts"], gone["push endpoints"]) == (1, 1)
    assert list(PushAttempt.objects.all()) == [new]
    assert PushEndpoint.objects.get().origin == "https://still"
    assert PushConfig.objects.count() == 1
    settings.BUREAU_KEEP_DAYS = 3650
    new.delete()
    config.attempts.create(seq=4, seconds=0.1, created_at=OLD)
    assert not any(prune().values())


def test_a_round_ends_and_the_next_goes_on(agent, monkeypatch):
    monkeypatch.setattr(tasks_pruning, "BATCH", 2)
    monkeypatch.setattr(tasks_pruning, "MOST_BATCHES", 2)
    config = make_push(send_message(ALICE, agent, Incoming.from_text("Hello")).task_id)
    for number in range(5):
        config.attempts.create(seq=number, seconds=0.1, created_at=OLD)
    config.attempts.filter(created_at__gt=OLD).delete()
    assert [prune()["push attempts"] for _ in range(3)] == [4, 1, 0]


def test_counts_stay_as_long_as_rates_are_made_of_them(agent, settings):
    for days in (29, 30, 31, 40):
        record_delegation(agent, "", ok=True, seconds=1)
        today = timezone.now().date()
        DelegationCount.objects.filter(day=today).update(day=today - timedelta(days=days))
    settings.BUREAU_KEEP_DAYS = 1
    before = success_rate(agent)
    assert prune()["delegation counts"] == 3
    assert success_rate(agent) == before
    assert before.count == 1


def test_old_revisions_go_but_for_the_newest_and_what_waits(agent, remote):
    for number in (2, 3):
        remote.card["description"] = f"Says {number}."
        refresh_agent(agent)
    remote.card["skills"] = [skill(2)]
    refresh_agent(agent)
    CardRevision.objects.update(found_at=OLD)
    assert prune()["card revisions"] == 3
    waiting = CardRevision.objects.get()
    assert (waiting.number, waiting.state) == (4, "pending")
    # The card that waits is still what the next one is compared with.
    assert refresh_agent(agent) is None


def test_one_that_changes_its_mind_all_the_time_keeps_a_number_of_revisions(agent, remote, monkeypatch):
    monkeypatch.setattr(pruning, "MOST_REVISIONS", 2)
    for number in range(2, 6):
        remote.card["description"] = f"Says {number}."
        refresh_agent(agent)
    prune()
    assert sorted(CardRevision.objects.values_list("number", flat=True)) == [4, 5]


def test_sessions_that_ended_and_old_requests_go(agent):
    for key, at in (("over", NOW - timedelta(minutes=1)), ("good", NOW + timedelta(days=1))):
        Session.objects.create(session_key=key, session_data="x", expire_date=at)
    remember(Outgoing([{"text": "hi"}], message_id="m"), url="https://x/", name="Echo")
    OutgoingRequest.objects.update(created_at=OLD)
    gone = prune()
    assert (gone["sessions"], gone["remembered requests"]) == (1, 1)
    assert Session.objects.get().session_key == "good"


def test_missions_are_the_record_however_old(agent):
    send_message(ALICE, agent, Incoming.from_text("Hello"))
    Task.objects.update(created_at=OLD, status_at=OLD)
    Event.objects.update(created_at=OLD)
    Message.objects.update(created_at=OLD)
    before = [model.objects.count() for model in (Task, Event, Message)]
    prune()
    assert [model.objects.count() for model in (Task, Event, Message)] == before
