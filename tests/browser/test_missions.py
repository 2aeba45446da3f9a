import pytest
from playwright.sync_api import expect

from tests.support.people import end, start


def test_the_list_changes_by_itself_and_then_rests(open_page, alice, claim):
    page = open_page("/", alice)
    expect(page.locator(".list li")).to_contain_text("working")
    end(claim)
    expect(page.locator(".list li")).to_contain_text("completed")
    expect(page.locator("#region")).not_to_have_attribute("hx-trigger", "every 3s, focus from:window")


def test_one_filters_and_searches(open_page, alice, agent):
    end(start(alice, agent, "Feed the cat"))
    end(start(alice, agent, "Water the plants"), "failed")
    page = open_page("/", alice)
    expect(page.locator(".list li")).to_have_count(2)
    page.get_by_role("link", name="Failed 1").click()
    expect(page.locator(".list li")).to_have_count(1)
    page.get_by_role("link", name="All 2").click()
    page.get_by_label("Search titles").fill("cat")
    page.keyboard.press("Enter")
    expect(page.locator(".list")).to_contain_text("Feed the cat")
    expect(page.locator(".list li")).to_have_count(1)


def test_what_is_typed_into_the_search_survives_the_refresh(open_page, alice, claim):
    page = open_page("/", alice)
    search = page.get_by_label("Search titles")
    search.press_sequentially("pla")
    end(claim)
    expect(page.locator(".list li")).to_contain_text("completed")
    page.keyboard.type("nts")
    expect(search).to_have_value("plants")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_never_scrolls_sideways(open_page, alice, agent, scheme):
    claim = start(alice, agent, "A title with a-very-long-word-that-no-line-of-a-phone-can-hold-" * 3)
    end(claim, "failed", "https://bureau.example/" + "x" * 200)
    page = open_page("/", alice, viewport={"width": 360, "height": 740}, color_scheme=scheme)
    paths = ("/", "/missions/new/", "/agents/", "/agents/assistant/", "/password/", f"/missions/{claim.task_id}/")
    for path in paths:
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path


def test_everything_can_be_reached_with_the_keyboard(open_page, alice, claim):
    page = open_page("/", alice)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.className") == "title":
            break
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Water the plants")).to_be_visible()
