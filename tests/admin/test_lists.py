"""Every model has its pages, and they stay readable and quick."""

import pytest
from django.apps import apps
from django.contrib import admin
from django.urls import reverse
from django.utils import timezone

from agents.models import Budget, Decision, RemoteLeg, Reservation, ToolCall
from directory.admin_base import CappedPaginator, RecordAdmin
from directory.models import Agent, ApiClient
from tasks.content import Incoming
from tasks.files import file_part, store_file
from tasks.models import Event, Stop, SubPlan, Task
from tasks.results import ArtifactDraft
from tests.support.people import end, make_push, start

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]

OURS = [
    *(model for label in ("tasks", "agents") for model in apps.get_app_config(label).get_models()),
    *(Agent, ApiClient),
]
RECORDS = [model for model in OURS if isinstance(admin.site._registry[model], RecordAdmin)]


@pytest.fixture
def rows(alice, agent, claim):
    """One row of everything at least."""
    from directory.services import create_api_client

    create_api_client("nightly", alice)
    stored = store_file(f"user:{alice.pk}", "a.txt", "text/plain", b"a")
    call = ToolCall.objects.create(task_id=claim.task_id, key="1", tool="can", epoch=1)
    decision = Decision.objects.create(task_id=claim.task_id, point="tool", brain="rules", choice={"tool": "can"})
    plan = SubPlan.objects.create(mission_id=claim.task_id, key="a", goal="b", role="c")
    plan.subtasks.create(position=1, instruction="d")
    make_push(claim.task_id)
    budget = Budget.objects.create(mission_id=claim.task_id, calls_limit=1, tokens_limit=1, usd_limit=1)
    Reservation.objects.create(budget=budget, task_id=claim.task_id, epoch=1, tokens=1, usd=1)
    now = timezone.now()
    Stop.objects.create(task_id=claim.task_id, epoch=1, worker="w:1", asked_at=now, lease_until=now)
    RemoteLeg.objects.create(task_id=claim.task_id, progress_at=timezone.now())
    end(claim, "completed", "Done.", ArtifactDraft("out", [file_part(stored)]))
    return call, decision, Incoming


def address(model, page: str, *args) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=args)


@pytest.mark.parametrize("model", OURS, ids=lambda model: model.__name__)
def test_list_search_and_detail_open(as_olga, rows, model):
    found = as_olga.get(address(model, "changelist"))
    assert found.status_code == 200
    assert found.context["cl"].result_count >= 1
    for text in ("something", "00000000-0000-0000-0000-000000000000", "100%"):
        assert as_olga.get(address(model, "changelist"), {"q": text}).status_code == 200
    assert as_olga.get(address(model, "change", model.objects.first().pk)).status_code == 200


@pytest.mark.parametrize("model", RECORDS, ids=lambda model: model.__name__)
def test_what_machines_wrote_cannot_be_changed(as_olga, rows, model):
    row = model.objects.first()
    before = model.objects.filter(pk=row.pk).values().get()
    assert as_olga.get(address(model, "add")).status_code == 403
    assert as_olga.post(address(model, "change", row.pk), {}).status_code == 403
    assert as_olga.post(address(model, "delete", row.pk), {"post": "yes"}).status_code == 403
    assert model.objects.filter(pk=row.pk).values().get() == before


@pytest.mark.parametrize("model", OURS, ids=lambda model: model.__name__)
def test_ordinary_users_see_nothing(as_alice, rows, model):
    assert as_alice.get(address(model, "changelist")).status_code == 302


@pytest.mark.parametrize("model", [Task, Event, Decision], ids=lambda model: model.__name__)
def test_the_number_of_queries_does_not_grow(as_olga, alice, agent, model, django_assert_max_num_queries):
    for number in range(10):
        claim = start(alice, agent, str(number))
        Decision.objects.create(task_id=claim.task_id, point="tool", brain="rules")
        end(claim)
    with django_assert_max_num_queries(9):
        as_olga.get(address(model, "changelist"))


def test_nothing_is_counted_beyond_the_cap(as_olga, alice, agent, monkeypatch):
    monkeypatch.setattr(CappedPaginator, "CAP", 3)
    for number in range(5):
        end(start(alice, agent, str(number)))
    assert as_olga.get("/admin/tasks/task/").context["cl"].result_count == 3


def test_a_row_is_found_by_its_id_and_by_that_of_its_task(as_olga, rows):
    task = Task.objects.get()
    for path in ("tasks/task", "tasks/event", "tasks/message", "agents/decision", "agents/toolcall"):
        assert as_olga.get(f"/admin/{path}/", {"q": str(task.pk)}).context["cl"].result_count >= 1
    assert as_olga.get("/admin/tasks/task/", {"q": str(task.context_id)}).context["cl"].result_count == 1


def test_filters_take_the_words_they_know(as_olga, rows):
    assert as_olga.get("/admin/agents/decision/", {"point": "tool"}).context["cl"].result_count == 1
    assert as_olga.get("/admin/agents/decision/", {"point": "route"}).context["cl"].result_count == 0
    assert as_olga.get("/admin/tasks/task/", {"level": "below"}).context["cl"].result_count == 0


def test_a_task_below_a_mission_is_found_by_its_id_and_listed_on_its_own(as_olga, claim, alice, agent):
    now = timezone.now()
    child = Task.objects.create(
        context_id=claim.context_id, parent_id=claim.task_id, root_id=claim.task_id, agent=agent,
        owner=f"user:{alice.pk}", title="Fill the can", status_at=now, created_at=now,
    )  # fmt: skip
    found = [{"q": str(child.pk)}, {"level": "below"}]
    for asked in found:
        assert list(as_olga.get("/admin/tasks/task/", asked).context["cl"].result_list) == [child]
    assert child not in as_olga.get("/admin/tasks/task/").context["cl"].result_list


def test_a_title_is_looked_for_among_the_newest(as_olga, alice, agent, monkeypatch):
    monkeypatch.setattr("tasks.admin.SEARCH_STRETCH", 1)
    for number in range(3):
        end(start(alice, agent, f"Cat {number}"))
    found = as_olga.get("/admin/tasks/task/", {"q": "cat"}).context["cl"].result_list
    assert [task.title for task in found] == ["Cat 2"]


def test_a_task_leads_to_its_page_and_its_record(as_olga, rows):
    task = Task.objects.get()
    page = as_olga.get(f"/admin/tasks/task/{task.pk}/change/").content.decode()
    assert f'href="/missions/{task.pk}/"' in page
    assert f"/admin/agents/toolcall/?task__id__exact={task.pk}" in page
    assert as_olga.get(f"/admin/agents/toolcall/?task__id__exact={task.pk}").context["cl"].result_count == 1


def test_agents_made_for_one_mission_are_no_filter_of_tasks(as_olga, agent):
    Agent.objects.create(slug="echo", name="Echo")
    Agent.objects.create(slug="critic-634e522cf5d2", name="Critic", options={"mission": "634e522c"})
    page = as_olga.get(address(Task, "changelist")).content.decode()
    assert f"agent__id__exact={agent.pk}" in page
    assert "critic-634e522cf5d2" not in page
