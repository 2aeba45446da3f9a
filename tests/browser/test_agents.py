"""Operators and remote agents: a real a2a-sdk server is added, probed by a worker, and its changed card accepted."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import expect

from tests.support.remote_agents import remote_agent, skill


def aside(function, *args):
    """Playwright keeps an event loop in the tests' own thread, and what asks the network wants one of its own."""
    from django.db import connections

    def run():
        try:
            return function(*args)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()


@pytest.fixture
def web(web_process):
    return web_process(BUREAU_OUTBOUND_ALLOW="127.0.0.0/8")


@pytest.fixture
def remote(settings):
    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8",)
    with remote_agent(name="Parrot") as agent:
        yield agent


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without"])
def test_one_adds_an_agent_by_its_url_and_accepts_its_changed_card(open_page, olga, remote, scripts):
    from directory.models import Agent

    page = open_page("/agents/", olga, java_script_enabled=scripts)
    page.get_by_role("link", name="Add by URL").click()
    page.get_by_label("URL", exact=True).fill(remote.url)
    page.get_by_role("button", name="Look at its card").click()
    expect(page.get_by_role("heading", name="Parrot")).to_be_visible()
    expect(page.locator("#found")).to_contain_text("Repeat this")
    assert not Agent.objects.exists()
    page.get_by_label("Short name").fill("polly")
    page.get_by_role("button", name="Add this agent").click()
    expect(page.get_by_text("Parrot is in the directory now, as polly.")).to_be_visible()

    remote.card["skills"] = [skill(2, name="Sing")]
    page.get_by_role("button", name="Read its card now").click()
    expect(page.get_by_role("heading", name="A changed card waits for you")).to_be_visible()
    expect(page.locator("#pending")).to_contain_text("New skill: echo-2 (“Sing”)")
    expect(page.get_by_role("link", name="New mission for it")).to_have_count(0)
    page.get_by_role("button", name="Accept the changed card").click()
    expect(page.get_by_text("Revision 2 is accepted")).to_be_visible()
    expect(page.get_by_role("heading", name="Sing")).to_be_visible()
    expect(page.get_by_role("link", name="New mission for it")).to_be_visible()
    assert Agent.objects.get().quarantined_at is None

    page.get_by_text("Remove…").click()
    page.get_by_role("button", name="Yes, remove Parrot").click()
    expect(page.get_by_text("Parrot is removed")).to_be_visible()
    assert not Agent.objects.exists()


def test_the_result_of_a_probe_appears_by_itself(open_page, olga, remote, worker_process):
    from directory.enrolment import add_remote_agent

    aside(add_remote_agent, remote.url)
    page = open_page("/agents/parrot/", olga)
    page.get_by_role("button", name="Probe it now").click()
    expect(page.locator("#probe")).to_contain_text("Asked for")
    worker_process(BUREAU_OUTBOUND_ALLOW="127.0.0.0/8")
    expect(page.locator("#probe")).to_contain_text("100 of 100")
    expect(page.locator("#probe tbody tr").first).to_contain_text("All that the specification requires is there.")
    expect(page.get_by_role("button", name="Probe it now")).to_be_visible()


def test_an_address_inside_is_refused_in_plain_words(open_page, olga):
    from directory.models import Agent

    page = open_page("/add-agent/", olga, tolerant=True)
    page.get_by_label("URL", exact=True).fill("http://10.0.0.1/agent")
    page.get_by_role("button", name="Look at its card").click()
    expect(page.get_by_role("alert")).to_contain_text("10.0.0.1 is a private address")
    expect(page.get_by_label("URL", exact=True)).to_have_value("http://10.0.0.1/agent")
    assert not Agent.objects.exists()


def test_the_list_follows_the_health_of_agents(open_page, olga, remote):
    from directory.enrolment import add_remote_agent
    from directory.revisions import quarantine

    agent = aside(add_remote_agent, remote.url)
    page = open_page("/agents/", olga)
    expect(page.locator(".list")).to_contain_text("ready")
    quarantine(agent.pk, "It looked odd.")
    page.evaluate("window.dispatchEvent(new Event('focus'))")
    expect(page.locator(".list")).to_contain_text("It looked odd.")


@pytest.fixture
def full_page(remote, olga, alice):
    """An agent with something in each region of its page."""
    from datetime import timedelta

    from django.utils import timezone

    from directory.credentials import Secret, set_credential
    from directory.enrolment import add_remote_agent, refresh_agent
    from directory.health import record_delegation
    from directory.memory import note_answer, remember
    from directory.models import DelegationCount, Health
    from directory.probe import probe_agent
    from directory.wire import Outgoing, RemoteMessage
    from tests.support.people import end, make_agent, start

    make_agent()
    agent = aside(add_remote_agent, remote.url, "parrot")
    set_credential(agent, Secret("basic", "s3cret", username="bureau"))
    aside(probe_agent, agent)
    for day in range(4):
        for ok in (True, True, True, day != 2):
            record_delegation(agent, "echo-1", ok=ok, seconds=1.5 + day)
        today = timezone.now().date()
        DelegationCount.objects.filter(day=today).update(day=today - timedelta(days=day + 1))
    asked = remember(
        Outgoing([{"text": "Repeat: the sky is blue"}], message_id="m"),
        url=remote.url, name="Parrot", agent=agent, principal=f"user:{olga.pk}", sender="assistant",
    )  # fmt: skip
    note_answer(asked, RemoteMessage({"parts": [{"text": "the sky is blue"}]}))
    end(start(alice, agent, "Repeat the news in a-very-long-word-that-no-line-of-a-phone-can-hold-easily"))
    remote.card["skills"] = [skill(1), skill(2, name="Sing", description="Sings a song. " * 8)]
    remote.card["supportedInterfaces"].append(
        {"url": f"{remote.url}/other/" + "x" * 120, "protocolBinding": "GRPC", "protocolVersion": "1.0"}
    )
    aside(refresh_agent, agent)
    Health.objects.update(failures=6, opened_at=timezone.now(), retry_at=timezone.now() + timedelta(minutes=8))
    return agent


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_never_scrolls_sideways(open_page, olga, remote, full_page, scheme):
    """With BUREAU_TEST_SHOTS set to a folder, pictures of the pages are left there, for people to look at."""
    folder = os.environ.get("BUREAU_TEST_SHOTS", "")
    widths = {"narrow": 390, "wide": 1280}
    for word, width in widths.items():
        page = open_page("/agents/", olga, viewport={"width": width, "height": 900}, color_scheme=scheme)
        for name, path in {"list": "/agents/", "agent": "/agents/parrot/", "memory": "/memory/"}.items():
            page.goto(path)
            for box in page.locator("details.entry").all():
                box.evaluate("one => { one.open = true }")
            _look_at(page, width, folder and f"{folder}/{name}-{word}-{scheme}.png")
        page.goto("/agents/parrot/")
        page.get_by_text("Remove…").click()
        sure = page.get_by_role("button", name="Yes, remove Parrot")
        expect(sure).to_be_visible()
        box = sure.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width
        _look_at(page, width, folder and f"{folder}/remove-{word}-{scheme}.png")
        with remote_agent(key="k", skills=[skill(1), skill(2, name="Sing")]) as other:
            page.goto(f"/add-agent/?url={other.url}")
            _look_at(page, width, folder and f"{folder}/add-{word}-{scheme}.png")
            page.get_by_role("button", name="Look at its card").click()
            expect(page.locator("#found")).to_be_visible()
            _look_at(page, width, folder and f"{folder}/preview-{word}-{scheme}.png")


def _look_at(page, width, picture):
    assert page.evaluate("document.documentElement.scrollWidth") <= width, page.url
    if picture:
        page.screenshot(path=picture, full_page=True)
