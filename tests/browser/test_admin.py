from playwright.sync_api import expect


def test_the_admin_works_under_the_policy(open_page, olga, claim):
    page = open_page("/admin/tasks/task/", olga)
    page.locator("#action-toggle").check()
    page.locator("select[name=action]").select_option("Cancel the selected tasks")
    page.get_by_role("button", name="Go").click()
    expect(page.get_by_text("1 task was canceled.")).to_be_visible()
    page.goto("/admin/directory/agent/add/")
    page.locator("#id_name").press_sequentially("Night watch")
    expect(page.locator("#id_slug")).to_have_value("night-watch")
    page.get_by_text("Add another Skill").click()
    expect(page.locator("#id_skills-0-name")).to_be_visible()
