from playwright.sync_api import expect

from tests.support.people import end


def test_a_mission_is_started_answered_and_canceled(open_page, alice, agent):
    from tasks.claims import claim_next

    page = open_page("/missions/new/", alice, java_script_enabled=False)
    page.get_by_label("What should be done?").fill("Water the plants")
    page.get_by_role("button", name="Start mission").click()
    end(claim_next("default", "test-worker"), "input-required", "Which can?")
    page.reload()
    page.get_by_label("Your answer").fill("The green one")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#state")).to_contain_text("submitted")
    page.get_by_text("Cancel…").click()
    page.get_by_role("button", name="Yes, cancel this mission").click()
    expect(page.get_by_text("The mission was canceled.")).to_be_visible()
    page.get_by_role("link", name="Missions").first.click()
    page.get_by_role("link", name="Canceled 1").click()
    expect(page.locator(".list li")).to_have_count(1)


def test_a_question_is_answered_in_the_inbox(open_page, olga, claim):
    end(claim, "input-required", "Which can?")
    page = open_page("/", olga, java_script_enabled=False)
    page.get_by_role("link", name="Questions 1 open").click()
    page.get_by_label("Answer for alice, on record as yours").fill("The green one")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("Answered: Water the plants")).to_be_visible()
    expect(page.get_by_role("link", name="Questions", exact=True)).to_be_visible()
