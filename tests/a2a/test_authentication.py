"""Who is let in: a key, a session with its CSRF token, or nobody in particular from this machine."""

import httpx
import pytest
from django.conf import settings as django_settings
from django.test import Client
from django.utils import timezone

from directory.models import ApiClient
from directory.services import check_api_key, revoke_api_client
from tasks.models import Task
from tests.a2a.peer import Peer, envelope, message
from tests.support.waiting import PATIENCE


@pytest.fixture
def anyone(url):
    """Without a key."""
    peer = Peer(url, slug="echo")
    yield peer
    peer.close()


@pytest.fixture
def anonymous(settings):
    settings.BUREAU_ALLOW_ANONYMOUS = True


@pytest.fixture
def no_anonymous(settings):
    settings.BUREAU_ALLOW_ANONYMOUS = False


def submit(peer, **kwargs):
    params = message("x", configuration={"returnImmediately": True})
    return peer.post(envelope("SendMessage", params), **kwargs)


def is_let_in(response):
    return response.status_code == 200 and "result" in response.json()


def refused(response, status=401):
    """Checks that it is a refusal in JSON-RPC's shape, and that nothing came of the request."""
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert body["id"] is None
    assert body["error"]["code"] == -32000
    assert Task.objects.count() == 0
    return body["error"]["message"]


@pytest.mark.parametrize("header", ["Bearer {}", "bearer {}", "Bearer   {}"])
def test_a_key_as_bearer_token(anyone, make_key, no_anonymous, header):
    assert is_let_in(submit(anyone, headers={"Authorization": header.format(make_key("alice"))}))
    assert Task.objects.get().owner == f"client:{ApiClient.objects.get().pk}"


def test_a_key_in_its_own_header(anyone, make_key, no_anonymous):
    assert is_let_in(submit(anyone, headers={"X-API-Key": make_key("alice")}))


@pytest.mark.usefixtures("anonymous")
@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer bureau_wrong"},
        {"Authorization": "Bearer"},
        {"Authorization": ""},
        {"Authorization": "Basic YWxpY2U6c2VjcmV0"},
        {"Authorization": "Bearer \xff\xfe"},
        {"X-API-Key": "bureau_wrong"},
        {"X-API-Key": ""},
    ],
)
def test_a_wrong_key_is_never_nobody(anyone, headers):
    response = submit(anyone, headers={name: value.encode("latin1") for name, value in headers.items()})

    refused(response)
    assert response.headers["www-authenticate"] == 'Bearer realm="bureau"'


def test_no_key(anyone, no_anonymous):
    response = submit(anyone)

    assert "API key" in refused(response)
    assert response.headers["www-authenticate"] == 'Bearer realm="bureau"'


def test_an_expired_key(anyone, make_key):
    key = make_key("alice")
    ApiClient.objects.update(expires_at=timezone.now())

    refused(submit(anyone, headers={"X-API-Key": key}))


def test_a_revoked_key_is_good_for_seconds_at_most(anyone, make_key, monkeypatch):
    from bureau.a2a import authentication

    # However long the next lines take: the seconds are over when the test says so.
    monkeypatch.setattr(authentication, "REMEMBER_SECONDS", 10 * PATIENCE)
    key = make_key("alice")
    assert is_let_in(submit(anyone, headers={"X-API-Key": key}))
    revoke_api_client(ApiClient.objects.get())
    assert check_api_key(key) is None
    assert is_let_in(submit(anyone, headers={"X-API-Key": key}))
    monkeypatch.setattr(authentication, "_known_keys", {})
    Task.objects.all().delete()

    refused(submit(anyone, headers={"X-API-Key": key}))


def test_what_is_remembered_of_keys_is_no_key(anyone, make_key):
    from bureau.a2a import authentication

    key = make_key("alice")
    submit(anyone, headers={"X-API-Key": key})
    assert authentication._known_keys
    assert key not in authentication._known_keys


@pytest.mark.usefixtures("anonymous")
def test_nobody_from_this_machine(anyone):
    assert is_let_in(submit(anyone))
    assert Task.objects.get().owner == "anonymous"


@pytest.mark.usefixtures("anonymous")
@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "127.0.0.1"},
        {"X-Forwarded-Proto": "https"},
        {"Forwarded": "for=127.0.0.1"},
        {"X-Real-IP": "127.0.0.1"},
        {"Via": "1.1 proxy"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://[::1"},
    ],
)
def test_nobody_through_a_proxy_or_a_foreign_page(anyone, headers):
    refused(submit(anyone, headers=headers))


async def test_nobody_from_another_machine(url, anonymous):
    from bureau.asgi import application

    transport = httpx.ASGITransport(application, client=("203.0.113.7", 1234))
    async with httpx.AsyncClient(transport=transport, base_url=url) as http:
        response = await http.post("/a2a/", json=envelope("ListTasks"), headers={"A2A-Version": "1.0"})
    assert response.status_code == 401


@pytest.fixture
def session(url, django_user_model):
    """Cookies of a signed-in user, as a browser has them."""
    user = django_user_model.objects.create_user("carol")
    browser = Client()
    browser.force_login(user)
    return {
        django_settings.SESSION_COOKIE_NAME: browser.cookies[django_settings.SESSION_COOKIE_NAME].value,
        django_settings.CSRF_COOKIE_NAME: "t" * 32,
    }


@pytest.fixture
def browser(anyone, session):
    for name, value in session.items():
        anyone.http.cookies.set(name, value)
    return anyone


@pytest.mark.usefixtures("no_anonymous")
class TestSession:
    def test_it_needs_its_csrf_token(self, browser):
        assert "X-CSRFToken" in refused(submit(browser), 403)
        refused(submit(browser, headers={"X-CSRFToken": "u" * 32}), 403)

    def test_it_is_let_in_with_it(self, browser, django_user_model):
        assert is_let_in(submit(browser, headers={"X-CSRFToken": "t" * 32}))
        assert Task.objects.get().owner == f"user:{django_user_model.objects.get().pk}"

    def test_a_page_of_another_site_is_not(self, browser):
        refused(submit(browser, headers={"X-CSRFToken": "t" * 32, "Origin": "https://evil.example"}), 403)

    def test_an_inactive_user_is_not(self, browser, django_user_model):
        django_user_model.objects.update(is_active=False)

        refused(submit(browser, headers={"X-CSRFToken": "t" * 32}))

    def test_an_unknown_session_is_not(self, anyone):
        anyone.http.cookies.set(django_settings.SESSION_COOKIE_NAME, "nonsense")

        refused(submit(anyone, headers={"X-CSRFToken": "t" * 32}))

    def test_a_key_goes_before_it_and_needs_no_token(self, browser, make_key):
        assert is_let_in(submit(browser, headers={"X-API-Key": make_key("alice")}))
        assert Task.objects.get().owner.startswith("client:")


def test_too_many_calls(alice, monkeypatch):
    from rest_framework.settings import api_settings
    from rest_framework.throttling import BaseThrottle

    class Never(BaseThrottle):
        def allow_request(self, request, view):
            assert request.user.caller.name == "alice"
            return False

        def wait(self):
            return 7

    monkeypatch.setattr(api_settings, "DEFAULT_THROTTLE_CLASSES", [Never])
    response = submit(alice)

    refused(response, 429)
    assert response.headers["retry-after"] == "7"


def test_each_caller_has_so_many_calls_a_minute(alice, bob, monkeypatch, settings):
    from rest_framework.settings import api_settings

    from bureau.a2a import throttles

    monkeypatch.setattr(api_settings, "DEFAULT_THROTTLE_CLASSES", [throttles.CallerThrottle])
    monkeypatch.setattr(throttles, "MINUTE", 100_000)
    settings.BUREAU_RATE_PER_MINUTE = 2

    assert [submit(alice).status_code for _ in range(3)] == [200, 200, 429]
    assert submit(bob).status_code == 200
    assert Task.objects.count() == 3
