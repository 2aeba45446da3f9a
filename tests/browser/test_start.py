from playwright.sync_api import expect

from tests.support.people import PASSWORD


def test_one_signs_in_starts_a_mission_and_sees_it_finish(open_page, alice, worker_process):
    from agents.seeding import seed

    seed()
    worker_process()
    page = open_page("/")
    page.get_by_label("User name").fill("alice")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="New mission").click()
    page.get_by_label("What should be done?").fill("Echo hello world")
    page.get_by_label("Agent").select_option("Echo")
    page.get_by_role("button", name="Start mission").click()
    expect(page.get_by_role("status").filter(has_text="completed")).to_be_visible()
    expect(page.locator("#deliverables, #talk").get_by_text("hello world").last).to_be_visible()


def test_a_file_goes_along(open_page, alice, agent):
    page = open_page("/missions/new/", alice)
    page.get_by_label("What should be done?").fill("Read this")
    page.get_by_label("Files").set_input_files([{"name": "pots.txt", "mimeType": "text/plain", "buffer": b"twelve"}])
    page.get_by_role("button", name="Start mission").click()
    link = page.get_by_role("link", name="pots.txt")
    expect(link).to_contain_text("6 bytes")
    with page.expect_download() as download:
        link.click()
    assert download.value.path().read_bytes() == b"twelve"


def test_an_impatient_double_click_starts_one_mission(open_page, alice, agent):
    from tasks.models import Task

    page = open_page("/missions/new/", alice)
    page.get_by_label("What should be done?").fill("Once")
    page.get_by_role("button", name="Start mission").dblclick()
    expect(page.get_by_role("heading", name="Once")).to_be_visible()
    assert Task.objects.count() == 1
