"""A mission's page changes by itself. The test plays the worker, so each step is seen before the next."""

import pytest
from playwright.sync_api import expect

from agents.models import Decision
from tasks.models import Event, Task
from tasks.results import ArtifactDraft, finish, note, plain, say, stream_chunk
from tests.support.people import end


@pytest.fixture
def page(open_page, alice, claim):
    page = open_page(f"/missions/{claim.task_id}/", alice)
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    return page


def test_it_shows_everything_as_it_happens(page, claim):
    say(claim, plain("Filling the can."))
    expect(page.locator("#talk")).to_contain_text("Filling the can.")
    row = Decision.objects.create(
        task_id=claim.task_id, point="tool", brain="rules", choice={"tool": "can"}, rationale="It is near."
    )
    note(claim, Event.Kind.DECISION, row.pk)
    expect(page.locator("#decisions")).to_contain_text("It is near.")
    stream_chunk(claim, "report.md", "Soil: ", is_first=True)
    expect(page.get_by_role("heading", name="report.md")).to_be_visible()
    expect(page.locator("#deliverables")).to_contain_text("being written")
    stream_chunk(claim, "report.md", "**wet**", is_first=False)
    expect(page.locator("#deliverables strong")).to_have_text("wet")
    draft = ArtifactDraft("report.md", [{"text": "Soil: **wet**"}], is_streamed=True)
    finish(claim, Task.State.COMPLETED, message=plain("All green."), artifacts=[draft])
    expect(page.locator("#state")).to_contain_text("completed")
    expect(page.locator("#talk")).to_contain_text("All green.")
    expect(page.get_by_label("Ask for a change")).to_be_visible()
    page.locator("#log-box > summary").click()
    numbers = page.locator("#log .number").all_inner_texts()
    assert numbers == ["1", "2", "3", "4", "5", "6", "7", "8"]


def test_a_question_is_answered_on_the_page(page, claim):
    from tasks.claims import claim_next

    end(claim, "input-required", "Which can?")
    answer = page.get_by_label("Your answer")
    answer.fill("The green one")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#state")).to_contain_text("submitted")
    again = claim_next("default", "test-worker")
    end(again, "completed", "Done with the green one.")
    expect(page.locator("#state")).to_contain_text("completed")


def test_what_is_being_written_survives_the_news(page, claim):
    box = page.locator("#say")
    box.fill("Not the fer")
    end(claim, "input-required", "Which ones?")
    expect(page.get_by_text("The mission goes on with it.")).to_be_visible()
    page.keyboard.type("ns")
    expect(box).to_have_value("Not the ferns")


def test_what_was_opened_stays_open(page, claim):
    for number in range(2):
        row = Decision.objects.create(
            task_id=claim.task_id, point=f"point {number}", brain="rules", choice={"tool": f"choice {number}"}
        )
        note(claim, Event.Kind.DECISION, row.pk)
        expect(page.get_by_text(f"choice {number}", exact=True).first).to_be_visible()
        if number == 0:
            page.locator("#decisions summary").click()
    opened = page.locator("#decisions details").first
    expect(opened).to_have_attribute("open", "")


def test_it_is_canceled_after_a_second_thought(page, claim):
    page.get_by_text("Cancel…").click()
    page.keyboard.press("Escape")
    button = page.get_by_role("button", name="Yes, cancel this mission")
    expect(button).to_be_hidden()
    page.get_by_text("Cancel…").click()
    button.click()
    expect(page.get_by_text("The mission was canceled.")).to_be_visible()
    assert Task.objects.get().state == Task.State.CANCELED


def test_it_goes_on_after_the_web_process_was_killed(web_process, web, open_page, alice, claim):
    page = open_page(f"/missions/{claim.task_id}/", alice, tolerant=True)
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    web.kill()
    expect(page.get_by_text("Connection lost")).to_be_visible()
    say(claim, plain("Said while away."))
    web_process(BUREAU_PORT=web.url.rpartition(":")[2])
    expect(page.locator("#talk")).to_contain_text("Said while away.")
    end(claim)
    expect(page.locator("#state")).to_contain_text("completed")
    page.locator("#log-box > summary").click()
    assert page.locator("#log .number").all_inner_texts() == ["1", "2", "3", "4"]
