"""Pages as a person sees them: Chromium, against a real web process. Skipped where there is no Chromium.

(Models can be imported only once Django is set up.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client
from playwright.sync_api import Browser, Page, expect, sync_playwright

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 60_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/browser" in item.path.as_posix():
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.django_db(transaction=True))


@pytest.fixture(scope="package")
def browser(chromium: str) -> Iterator[Browser]:
    with pytest.MonkeyPatch.context() as patch:
        # Playwright keeps an event loop in this thread, and Django would take the tests for asynchronous code.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        expect.set_options(timeout=PATIENCE_MS)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS), timeout=3 * PATIENCE_MS)
            yield browser
            browser.close()


@pytest.fixture
def agent(transactional_db: None) -> Any:
    from tests.support.people import make_agent

    return make_agent()


@pytest.fixture
def alice(transactional_db: None) -> Any:
    from tests.support.people import make_user

    return make_user("alice")


@pytest.fixture
def olga(transactional_db: None) -> Any:
    from tests.support.people import make_user

    return make_user("olga", is_staff=True)


@pytest.fixture
def claim(alice: Any, agent: Any) -> Any:
    """A mission of Alice's; the test is its worker."""
    from tests.support.people import start

    return start(alice, agent)


@pytest.fixture
def web(web_process: Any) -> Any:
    return web_process()


@pytest.fixture
def open_page(browser: Browser, web: Any) -> Iterator[Callable[..., Page]]:
    """`open_page("/", alice)` signs Alice in and opens it. What the browser complains about fails the test."""
    complaints: list[str] = []
    contexts = []

    def go(path: str, user: Any = None, *, tolerant: bool = False, **options: Any) -> Page:
        site = web.url
        context = browser.new_context(base_url=site, **options)
        contexts.append(context)
        if user is not None:
            client = Client()
            client.force_login(user)
            value = client.cookies["bureau_session"].value
            context.add_cookies([{"name": "bureau_session", "value": value, "url": site}])
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
        if not tolerant:
            page.on("console", lambda said: said.type == "error" and complaints.append(f"{page.url}: {said.text}"))
        page.goto(path)
        return page

    yield go
    for context in contexts:
        context.close()
    assert not complaints
