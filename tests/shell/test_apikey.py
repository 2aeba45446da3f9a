"""`manage.py apikey`: keys are shown once, listed without their secret, and revoked for good."""

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command

from directory.models import ApiClient
from directory.services import check_api_key
from tests.shell.support import manage

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(capsys):
    def run(*arguments):
        call_command("apikey", *arguments)
        return capsys.readouterr().out.strip()

    return run


def test_it_creates_a_key_that_works(run):
    key = run("create", "ci")
    assert check_api_key(key) == ApiClient.objects.get(name="ci")


def test_a_user_may_answer_for_it(run):
    alice = get_user_model().objects.create_user("alice")
    run("create", "ci", "--user", "alice")
    assert ApiClient.objects.get().user == alice


def test_it_lists_without_the_secret(run):
    key = run("create", "ci")
    listed = run("list")
    assert "ci" in listed
    assert "live" in listed
    assert key not in listed


def test_it_revokes_for_good(run):
    key = run("create", "ci")
    run("revoke", "ci")
    assert check_api_key(key) is None
    assert "revoked" in run("list")
    with pytest.raises(CommandError, match="revoked already"):
        run("revoke", "ci")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["create", "ci"], "There is a key named 'ci' already."),
        (["create", " "], "Give the key a name."),
        (["create", "new", "--user", "nobody"], "There is no user 'nobody'."),
        (["revoke", "new"], "There is no key named 'new'."),
    ],
)
def test_refusals_change_nothing(run, arguments, words):
    run("create", "ci")
    before = list(ApiClient.objects.values())
    with pytest.raises(CommandError, match=words):
        run(*arguments)
    assert list(ApiClient.objects.values()) == before


def test_an_empty_database_is_named(env):
    result = manage("apikey", "list", env=env)
    assert result.returncode == 1
    assert "is empty. Run `manage.py up`" in result.stderr
