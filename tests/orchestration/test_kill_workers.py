"""Real workers that are killed at random while many missions run, and one worker with one slot."""

import random

import pytest

from agents.models import ToolCall
from directory.models import Agent
from tasks.content import Incoming
from tasks.jobs import sweep
from tasks.models import Event, SubPlan, Subtask, Task
from tasks.services import send_message
from tests.support.cast import ALICE
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]

MISSIONS = 40
REQUEST = "List the files, read README.md, write it to copy-{0}.md, and write a summary of it to summary-{0}.md"


@pytest.fixture
def env(seeded, tmp_path):
    (tmp_path / "README.md").write_text("Bureau runs agents for people. It keeps a record of all they do.\n")
    return {"BUREAU_PROJECT_ROOT": str(tmp_path), "BUREAU_LEASE_SECONDS": "1", "BUREAU_MAX_ATTEMPTS": "50"}


def send(count: int) -> list:
    agent = Agent.objects.get(slug="assistant")
    return [send_message(ALICE, agent, Incoming.from_text(REQUEST.format(number))).task_id for number in range(count)]


def ended() -> bool:
    sweep()
    return not Task.objects.exclude(state__in=Task.TERMINAL).exists()


def test_one_worker_with_one_slot_finishes_any_plan(worker_process, env, tmp_path):
    send(3)
    worker_process("--threads", "1", **env)
    wait_until(ended, 180, "three missions")
    assert set(Task.objects.values_list("state", flat=True)) == {"completed"}
    assert len(list((tmp_path / "output").iterdir())) == 6


def test_missions_survive_the_death_of_their_workers(worker_process, env, tmp_path):
    draw = random.Random(4)
    missions = send(MISSIONS)
    workers = [worker_process("--threads", "2", **env) for _ in range(2)]
    for _ in range(3):
        before = Subtask.objects.filter(state="done").count()
        wait_until(lambda before=before: ended() or Subtask.objects.filter(state="done").count() > before + 6, 120)
        victim = workers.pop(draw.randrange(len(workers)))
        victim.kill()
        workers.append(worker_process("--threads", "2", **env))
    wait_until(ended, 300, "forty missions")

    assert set(Task.objects.filter(pk__in=missions).values_list("state", flat=True)) == {"completed"}
    assert not Subtask.objects.exclude(state="done").exists()
    # Each act once: no file has a second version, no sub-plan a second task, no tool call a twin.
    assert len(list((tmp_path / "output").iterdir())) == 2 * MISSIONS
    assert Task.objects.filter(parent__isnull=False).count() == SubPlan.objects.exclude(task=None).count()
    assert ToolCall.objects.count() == Subtask.objects.count()
    for task in Task.objects.all():
        numbers = list(Event.objects.filter(task=task).order_by("seq").values_list("seq", flat=True))
        assert numbers == list(range(1, task.last_seq + 1))
