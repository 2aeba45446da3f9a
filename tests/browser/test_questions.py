"""The inbox changes by itself, and lets go of nothing that is being written."""

import pytest
from playwright.sync_api import expect

from tests.support.people import end, start


@pytest.fixture
def page(open_page, alice, claim):
    end(claim, "input-required", "Which can?")
    return open_page("/questions/", alice)


def test_a_new_question_comes_in_while_one_writes(page, alice, agent):
    box = page.get_by_label("Your answer")
    box.fill("The gre")
    end(start(alice, agent, "Feed the fish"), "input-required", "What do they eat?")
    expect(page.get_by_text("What do they eat?")).to_be_visible()
    answers = page.get_by_label("Your answer")
    expect(answers).to_have_count(2)
    expect(answers.last).to_have_value("The gre")


def test_the_number_in_the_navigation_changes_by_itself(open_page, alice, agent, claim):
    page = open_page("/agents/", alice)
    expect(page.locator("#open-questions")).to_have_text("")
    end(claim, "input-required", "Which can?")
    expect(page.locator("#open-questions .pill")).to_have_text("1")


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_scrolls_sideways(open_page, olga, claim, width):
    end(claim, "input-required", "Which can? " * 60 + "x" * 300)
    page = open_page("/questions/", olga, viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for link in page.locator("nav[aria-label=Main] a").all():
        assert link.evaluate("one => one.getBoundingClientRect().height") < 45
