"""A mission of five sub-plans, run by a real worker with a scripted model, as its page draws it."""

import pytest
from django.db.models import Sum
from playwright.sync_api import expect

from agents.models import Decision
from directory.identity import Caller
from directory.models import Agent
from tasks.content import Incoming
from tasks.models import Task
from tasks.services import send_message
from tests.agents.conftest import messages_api, model, seeded
from tests.orchestration.script import DIAMOND, answer, plan, triage, writes
from tests.support.messages_api import Reply
from tests.support.waiting import wait_until

__all__ = ["messages_api", "model", "seeded"]

WAIT = Reply(match="Work on (left|right|middle)", fault="hang", times=0)
KEYS = ("facts", "left", "right", "middle", "report")


@pytest.fixture
def mission(seeded, model, worker_process, alice):
    """The diamond, at the moment when its three middle parts wait for the model."""
    why = {"rationale": "Three views of the same facts make a report.", "confidence": 0.9}
    model.add(triage(needs_plan=True), plan(*DIAMOND), writes("facts"), WAIT)
    model.script[1].json |= why
    worker_process("--threads", "4", ANTHROPIC_BASE_URL=model.url)
    sent = send_message(
        Caller.from_user(alice), Agent.objects.get(slug="assistant"), Incoming.from_text("Write a report on bees")
    )
    wait_until(lambda: len(model.requests) == 6, what="three calls at once")
    return Task.objects.get(pk=sent.task_id)


def go_on(model):
    model.reset(*(writes(key) for key in KEYS), answer("The report on bees."))


def box(page, key, size="wide"):
    return page.locator(f".plan .{size} a[aria-label^='{key} ']")


def test_the_plan_changes_while_one_looks_and_opens_by_keyboard(open_page, alice, model, mission):
    page = open_page(f"/missions/{mission.pk}/", alice)
    expect(box(page, "facts")).to_have_attribute("aria-label", "facts (researcher): completed")
    for key in ("left", "right", "middle"):
        expect(box(page, key)).to_contain_text("working")
    expect(box(page, "report")).to_have_attribute(
        "aria-label", "report (writer): not started, after left, right, middle"
    )
    expect(page.locator("#cost")).to_contain_text("3 calls to the model")

    box(page, "facts").focus()
    page.keyboard.press("Tab")
    expect(box(page, "left")).to_be_focused()
    page.keyboard.press("Enter")
    opened = page.locator("details.entry[open]")
    expect(opened).to_contain_text("Work on left")
    expect(opened.locator("summary")).to_be_focused()

    go_on(model)
    # No reload: what happens below the mission is asked for, and what was opened stays open.
    expect(box(page, "report")).to_contain_text("completed")
    expect(page.locator("#state")).to_contain_text("completed")
    expect(page.locator("#deliverables")).to_contain_text("The report on bees.")
    expect(opened).to_contain_text("Work on left")
    calls = Decision.objects.aggregate(calls=Sum("attempts"))["calls"]
    expect(page.locator("#cost")).to_contain_text(f"{calls} calls to the model")
    expect(page.locator("#cost")).to_contain_text("of it for coordinating, the rest for its parts")


def test_every_decision_tells_what_was_asked_considered_chosen_and_spent(open_page, alice, model, mission):
    page = open_page(f"/missions/{mission.pk}/", alice)
    decision = page.locator("#decisions details").filter(has_text="5 parts")
    decision.locator("summary").first.click()
    for said in (
        "Which parts does it have, who should do them, and in which order?",
        "Write a report on bees",
        "The middle",
        "Three views of the same facts make a report.",
        "What was considered",
        "1 call",
    ):
        expect(decision).to_contain_text(said)


def test_an_answer_to_a_plan_that_was_replaced_meanwhile_is_dropped(open_page, alice, mission):
    page = open_page(f"/missions/{mission.pk}/", alice)
    late = []

    def hold(route):
        late.append(route)

    page.route("**/parts/?seen=*", hold)
    with page.expect_request("**/parts/?seen=*"):
        pass
    while not late:
        page.wait_for_timeout(10)
    # The number of open questions is asked for on every page, too, and answered in between.
    page.evaluate("""() => {
        window.isSwapped = new Promise((tell) => document.addEventListener("htmx:beforeSwap", (event) => {
            if (event.detail.pathInfo.requestPath.includes("/parts/"))
                setTimeout(() => tell(event.detail.shouldSwap), 0);
        }));
        const parts = document.querySelector("#parts");
        parts.innerHTML = parts.innerHTML;
    }""")
    body = 'Old news<div hx-swap-oob="innerHTML:#cost">Old news</div>'
    late[0].fulfill(status=200, content_type="text/html", body=body)
    assert page.evaluate("window.isSwapped") is False
    expect(page.get_by_text("Old news")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_telephone_it_stands_upright_and_nothing_scrolls_sideways(open_page, alice, mission, scheme):
    page = open_page(f"/missions/{mission.pk}/", alice, viewport={"width": 390, "height": 844}, color_scheme=scheme)
    expect(box(page, "report", "slim")).to_be_visible()
    expect(box(page, "report", "wide")).to_be_hidden()
    for one in page.locator("#decisions > .entries > details").all():
        one.locator("summary").first.click()
    width = "document.documentElement.scrollWidth"
    assert page.evaluate(width) <= 390
    text = page.locator(".plan .slim text").first
    assert text.evaluate("one => one.getBoundingClientRect().height") >= 14


def test_a_cancel_shows_how_long_it_took(open_page, alice, mission):
    page = open_page(f"/missions/{mission.pk}/", alice)
    page.get_by_text("Cancel…").click()
    page.get_by_role("button", name="Yes, cancel this mission").click()
    expect(page.locator("#stop")).to_contain_text("after the cancel")
    page.locator("#stop-legs > summary").click()
    expect(page.locator("#stop-legs li")).to_have_count(3)
