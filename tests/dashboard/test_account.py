import pytest

from bureau.sign_in import TRIES, WINDOW_SECONDS
from tasks import wakeups
from tests.support.people import PASSWORD

pytestmark = pytest.mark.django_db


def test_one_signs_in_and_goes_on_to_the_page(client, alice, settings):
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]
    asked = client.get("/agents/")
    assert asked.headers["Location"] == "/login/?next=/agents/"
    page = client.get(asked.headers["Location"])
    assert b'name="next" value="/agents/"' in page.content
    sent = client.post("/login/", {"username": "alice", "password": PASSWORD, "next": "/agents/"})
    assert sent.headers["Location"] == "/agents/"


@pytest.mark.parametrize("elsewhere", ["https://evil.example/", "//evil.example/", "javascript:alert(1)"])
def test_signing_in_leads_nowhere_else(client, alice, settings, elsewhere):
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]
    sent = client.post("/login/", {"username": "alice", "password": PASSWORD, "next": elsewhere})
    assert sent.headers["Location"] == "/"


def test_a_wrong_password_is_told_apart_from_nothing(client, alice):
    page = client.post("/login/", {"username": "alice", "password": "wrong"}).content.decode()
    assert "User name and password do not match" in page
    assert "_auth_user_id" not in client.session


def sign_in(client, password, path="/login/"):
    return client.post(path, {"username": "alice", "password": password})


def test_guesses_are_counted_here_and_in_the_admin(client, alice, settings, valkey):
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]
    for number in range(TRIES):
        page = sign_in(client, f"wrong-{number}", "/admin/login/" if number % 2 else "/login/")
        assert b"Too many" not in page.content
    assert b"Too many wrong passwords for this user name. Try again in 5 minutes." in sign_in(client, PASSWORD).content
    assert "_auth_user_id" not in client.session
    assert 0 < wakeups.client().ttl(wakeups.client().keys("bureau:sign-in:*")[0]) <= WINDOW_SECONDS


def test_the_right_password_ends_the_count(client, alice, settings, valkey):
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]
    for _ in range(TRIES - 1):
        sign_in(client, "wrong")
    assert sign_in(client, PASSWORD).status_code == 302
    assert not wakeups.client().keys("bureau:sign-in:*")


def test_one_signs_out_by_a_form(as_alice):
    assert as_alice.get("/logout/").status_code == 405
    assert as_alice.post("/logout/").headers["Location"] == "/login/"
    assert as_alice.get("/").status_code == 302


def test_one_changes_the_password(as_alice, alice, settings):
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]
    form = {"old_password": PASSWORD, "new_password1": "another-long-way", "new_password2": "another-long-way"}
    page = as_alice.post("/password/", form | {"old_password": "wrong"}).content.decode()
    assert "Your old password was entered incorrectly" in page
    assert "Your password was changed." in as_alice.post("/password/", form, follow=True).content.decode()
    alice.refresh_from_db()
    assert alice.check_password("another-long-way")


@pytest.mark.parametrize("path", ["/", "/missions/new/", "/agents/", "/agents/assistant/", "/password/"])
def test_every_page_asks_strangers_to_sign_in(client, agent, path):
    assert client.get(path).headers["Location"].startswith("/login/?next=")


def test_a_part_of_a_page_makes_the_page_ask(client, agent):
    answer = client.get("/", headers={"HX-Request": "true"})
    assert (answer.content, answer.headers["HX-Refresh"]) == (b"", "true")
