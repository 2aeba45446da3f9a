import uuid
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from agents.models import Decision, ToolCall
from bureau.dashboard import graph
from bureau.dashboard.plan import read_parts, signature_of
from tasks.models import Event, SubPlan, Task
from tasks.results import ArtifactDraft, note, plain, say, stream_chunk
from tests.support.people import end, start

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


def page(client, claim) -> str:
    return client.get(f"/missions/{claim.task_id}/").content.decode()


def test_it_shows_what_was_asked_and_what_came_of_it(as_alice, claim):
    say(claim, plain("On my way."))
    end(claim, "completed", "All **green** again.", ArtifactDraft("report.md", [{"text": "# Report\n\nSoil: **wet**"}]))
    text = page(as_alice, claim)
    assert "Water the plants" in text
    assert "On my way." in text
    assert "All <strong>green</strong> again." in text
    assert "<h3>Report</h3>" in text
    assert "<strong>wet</strong>" in text


def test_it_says_whose_words_and_works_are_a_strangers(as_alice, claim):
    link = {"url": "https://evil.example/", "filename": "https://bank.example/"}
    say(claim, plain("Type your password.") | {"metadata": {"untrusted": "far"}})
    end(claim, "completed", "Done.", ArtifactDraft("a.md", [{"text": "x"}, link], metadata={"untrusted": "far"}))
    text = page(as_alice, claim)
    assert text.count("words of far, from elsewhere") == 1
    assert "made by far, elsewhere" in text
    # A link says where it leads, whatever it is called.
    assert ">https://evil.example/</span>" in text


def test_it_shows_decisions_with_why(as_alice, claim):
    row = Decision.objects.create(
        task_id=claim.task_id,
        point="tool",
        brain="claude",
        model="claude-small",
        choice={"tool": "watering_can", "params": {"litres": 2}},
        candidates=[{"tool": "hose", "score": 0.31}, {"tool": "watering_can", "score": 0.92}],
        confidence=0.92,
        rationale="A few pots need no hose.",
        is_fallback=True,
        error="timeout: no answer in time",
        input_tokens=812,
        output_tokens=31,
        cost_usd="0.001230",
        attempts=1,
        latency_ms=640,
    )
    note(claim, Event.Kind.DECISION, row.pk)
    text = page(as_alice, claim)
    for said in ("A few pots need no hose.", "watering_can", "92 % sure", "claude-small", "640 ms", "$0.00123"):
        assert said in text
    for said in ("812 tokens in, 31 out", "fallback", "timeout: no answer in time", "<dt>Litres</dt>"):
        assert said in text
    assert text.index('class="chosen"') < text.index("<td>hose</td>")


def test_it_shows_tool_calls(as_alice, claim):
    call = ToolCall.objects.create(
        task_id=claim.task_id,
        key="1",
        tool="watering_can",
        params={"litres": 2},
        state="failed",
        error="The can is empty.",
        error_class="empty",
        epoch=1,
    )
    ToolCall.objects.filter(pk=call.pk).update(ended_at=call.started_at + timedelta(milliseconds=12))
    note(claim, Event.Kind.TOOL, call.pk)
    text = page(as_alice, claim)
    for said in ("watering_can", "&quot;litres&quot;: 2", "The can is empty.", "failed", "12 ms"):
        assert said in text


def test_it_shows_an_artifact_while_it_grows(as_alice, claim):
    stream_chunk(claim, "poem.txt", "Roses are ", is_first=True)
    stream_chunk(claim, "poem.txt", "red", is_first=False)
    text = page(as_alice, claim)
    assert "Roses are red" in text
    assert "being written" in text
    assert f'data-stream="/missions/{claim.task_id}/stream/" data-seq="4"' in text


def test_an_ended_mission_opens_no_stream(as_alice, claim):
    end(claim)
    assert "data-stream" not in page(as_alice, claim)


def test_nothing_that_was_said_becomes_markup(as_alice, alice, agent):
    evil = "<img src=x onerror=alert(1)>[go](javascript:alert(2))"
    claim = start(alice, agent, evil)
    end(claim, "completed", evil, ArtifactDraft("<b>.md", [{"text": evil + "\n\n![spy](https://evil.example/x.png)"}]))
    text = page(as_alice, claim)
    assert "<img src=x" not in text
    assert 'href="javascript' not in text
    assert 'evil.example/x.png"' not in text
    assert "[image: spy]" in text


def test_the_log_is_numbered_and_folds_chunks(as_alice, claim):
    for number in range(3):
        stream_chunk(claim, "a.txt", "xx", is_first=number == 0)
    end(claim)
    text = page(as_alice, claim)
    assert "3\u20135" in text
    assert "a.txt: 6 characters." in text


def test_a_long_log_has_pages_of_its_own(as_alice, claim, monkeypatch):
    monkeypatch.setattr("bureau.dashboard.mission.EVENT_BATCH", 2)
    end(claim)
    text = as_alice.get(f"/missions/{claim.task_id}/log/").content.decode()
    assert "?after=2" in text
    assert "completed" not in text
    assert "completed" in as_alice.get(f"/missions/{claim.task_id}/log/?after=2").content.decode()
    assert as_alice.get(f"/missions/{claim.task_id}/log/?after=x").status_code == 404


@pytest.mark.parametrize("path", ["", "log/", "stream/"])
def test_other_peoples_missions_are_not_found(as_bob, claim, path):
    assert as_bob.get(f"/missions/{claim.task_id}/{path}").status_code == 404
    assert as_bob.get(f"/missions/{uuid.uuid4()}/{path}").status_code == 404


def test_an_operator_sees_it_with_its_owner_and_without_a_form(as_olga, claim):
    text = page(as_olga, claim)
    assert "alice" in text
    assert "/messages/" not in text
    assert "Open in the admin" in text


def test_it_shows_the_parts_of_a_plan(as_alice, alice, agent, claim):
    now = timezone.now()
    child = Task.objects.create(
        context_id=claim.context_id,
        parent_id=claim.task_id,
        root_id=claim.task_id,
        agent=agent,
        owner=f"user:{alice.pk}",
        title="Fill the can",
        status_at=now,
        created_at=now,
    )
    plan = SubPlan.objects.create(mission_id=claim.task_id, key="fill", goal="A full can", role="carrier", task=child)
    plan.subtasks.create(position=1, instruction="Open the tap")
    after = SubPlan.objects.create(mission_id=claim.task_id, key="pour", goal="Wet soil", role="carrier")
    after.depends_on.add(plan)
    text = page(as_alice, claim)
    # Drawn twice: for wide windows and for narrow ones.
    assert text.count('class="edge"') == 2
    assert text.count('aria-label="pour (carrier): not started, after fill"') == 2
    assert f'href="#plan-{plan.pk}"' in text
    for said in ("A full can", "carrier", "Open the tap", f"/missions/{child.pk}/"):
        assert said in text
    below = as_alice.get(f"/missions/{child.pk}/").content.decode()
    assert f'<a href="/missions/{claim.task_id}/">Water the plants</a>' in below


def test_a_part_was_asked_by_its_mission_not_by_its_owner(as_alice, alice, agent, claim):
    part = start(alice, agent, "Fill the can").task_id
    assert "<b>You</b>" in as_alice.get(f"/missions/{part}/").content.decode()
    Task.objects.filter(pk=part).update(parent_id=claim.task_id, root_id=claim.task_id)
    assert "<b>The mission</b>" in as_alice.get(f"/missions/{part}/").content.decode()


def test_a_part_that_the_coordinator_did_is_completed_like_any_other(as_alice, claim):
    plan = SubPlan.objects.create(mission_id=claim.task_id, key="fill", goal="A full can", role="carrier")
    plan.subtasks.create(position=1, instruction="Open the tap", state="done")
    text = page(as_alice, claim)
    assert '<span class="badge good">completed</span> <span class="quiet fine">carrier' in text
    assert text.count("fill (carrier): completed") == 4


def test_a_part_given_out_while_the_plan_is_read_is_no_earlier_attempt(alice, agent, claim):
    plan = SubPlan.objects.create(mission_id=claim.task_id, key="fill", goal="A full can", role="carrier")
    given = []

    def give_out(execute, sql, params, many, context):
        found = execute(sql, params, many, context)
        if 'FROM "tasks_subplan"' in sql and not given:
            given.append(start(alice, agent, "Fill the can").task_id)
            Task.objects.filter(pk=given[0]).update(parent_id=claim.task_id, root_id=claim.task_id)
            SubPlan.objects.filter(pk=plan.pk).update(task_id=given[0])
        return found

    with connection.execute_wrapper(give_out):
        parts = read_parts(Task.objects.get(pk=claim.task_id))
    assert given
    assert list(parts.others) == []


def test_what_happens_while_the_plan_is_read_is_asked_for_again(monkeypatch, claim):
    SubPlan.objects.create(mission_id=claim.task_id, key="fill", goal="A full can", role="carrier")

    def draw(plans):
        say(claim, plain("Filling the can."))

    monkeypatch.setattr("bureau.dashboard.plan.draw", draw)
    task = Task.objects.get(pk=claim.task_id)
    assert read_parts(task).signature != signature_of(task)


@pytest.mark.parametrize(("scores", "has_column"), [([0.3, 0.9], True), ([None, None], False)])
def test_candidates_have_a_column_of_scores_where_there_are_any(as_alice, claim, scores, has_column):
    candidates = [{"tool": tool, "score": score} for tool, score in zip(("hose", "can"), scores, strict=True)]
    row = Decision.objects.create(
        task_id=claim.task_id, point="tool", brain="rules", choice={"tool": "can"}, candidates=candidates
    )
    note(claim, Event.Kind.DECISION, row.pk)
    text = page(as_alice, claim)
    assert "<td>hose</td>" in text
    assert ('<th scope="col">Score</th>' in text) is has_column


def test_reading_changes_nothing(as_alice, claim):
    before = Task.objects.values().get(), Event.objects.count()
    page(as_alice, claim)
    as_alice.get(f"/missions/{claim.task_id}/log/")
    assert (Task.objects.values().get(), Event.objects.count()) == before
    for verb in ("cancel", "messages"):
        assert as_alice.get(f"/missions/{claim.task_id}/{verb}/").status_code == 405


@pytest.mark.parametrize(("state", "shown"), [("completed", "researcher"), ("input required", "researc…")])
def test_state_and_role_fit_into_their_box(state, shown):
    box = graph.Box(1, "left", "researcher", state, "ask", (), 0, 0, graph.WIDTH)
    assert box.shown_role == shown
    assert graph.Box(1, "left", "researcher", state, "ask", (), 0, 0, graph.NARROW_WIDTH).shown_role == "researcher"
