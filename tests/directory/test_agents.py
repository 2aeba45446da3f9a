"""`manage.py agents`: the directory from the command line."""

import io
import json

import pytest
from django.core.management import CommandError, call_command

from directory.credentials import Secret, set_credential, stored
from directory.enrolment import add_remote_agent
from directory.exceptions import Unreachable
from directory.health import record_delegation
from directory.memory import note_error, remember
from directory.models import Agent, Credential
from directory.wire import Outgoing
from tasks.content import Incoming
from tasks.push import PushDraft, credentials_of, set_config, token_of
from tasks.services import send_message
from tests.support.cast import ALICE
from tests.support.remote_agents import remote_agent, skill

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(capsys):
    def run(*arguments):
        call_command("agents", *arguments)
        return capsys.readouterr().out

    return run


@pytest.fixture
def typed(monkeypatch):
    """What somebody types on standard input."""
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_it_adds(run, remote):
    out = run("add", remote.url, "--slug", "parrot")
    assert out == f"Added parrot: Echo, JSONRPC 1.0 at {remote.url}/rpc, 1 skills.\n"
    assert Agent.objects.get().slug == "parrot"


def test_it_says_what_the_agent_wants_and_takes_it(run, typed):
    with remote_agent(key="s3cret") as remote:
        assert "It wants API key in X-API-Key: manage.py agents credential echo --auth" in run("add", remote.url)
        typed("s3cret\n")
        assert run("credential", "echo", "--auth", "api_key") == "echo has a new credential.\n"
        assert stored(Agent.objects.get()).secret == "s3cret"
        run("credential", "echo")
        assert not Credential.objects.exists()
        run("remove", "echo")
        typed("s3cret\n")
        assert "wants" not in run("add", remote.url, "--auth", "bearer")
    assert stored(Agent.objects.get()).kind == "bearer"


def test_it_lists(run, remote):
    Agent.objects.create(slug="local", name="Local", handler="x", is_enabled=False)
    agent = add_remote_agent(remote.url)
    record_delegation(agent, "", ok=True, seconds=1)
    record_delegation(agent, "", ok=False, seconds=1)
    rows = [line.split("\t") for line in run("list").splitlines()]
    assert [row[:3] for row in rows] == [["echo", "remote", "ready"], ["local", "local", "disabled"]]
    assert rows[0][4] == "50% of 2"
    listed = json.loads(run("list", "--json"))
    assert [item["slug"] for item in listed] == ["echo", "local"]
    assert listed[0]["lastSeen"]


def test_it_shows(run, remote):
    add_remote_agent(remote.url)
    out = run("show", "echo")
    assert out.startswith("echo: Echo 1.0.0 (remote), ready\n")
    for words in ("Interface:   JSONRPC 1.0 at", "Credential:  none", "Skill:       echo-1: Echo 1", "Signature:"):
        assert words in out
    assert json.loads(run("show", "echo", "--json"))["card"]["name"] == "Echo"


def test_it_probes(run, remote, capsys):
    add_remote_agent(remote.url)
    out = run("probe", "echo")
    assert "passed\tget\tThe same task." in out
    assert "Score: 100 of 100" in out
    assert json.loads(run("probe", "echo", "--json"))["score"] == 100
    assert "score 100" in run("show", "echo")
    remote.card["description"] = ""
    with pytest.raises(SystemExit) as ended:
        call_command("agents", "probe", "echo")
    assert ended.value.code == 2
    assert "Missing or empty: description." in capsys.readouterr().out


def test_a_changed_card_is_accepted(run, remote):
    agent = add_remote_agent(remote.url)
    assert run("refresh", "echo") == "Nothing new.\n"
    remote.card["skills"] = [skill(2)]
    out = run("refresh", "echo")
    assert "Skill gone: echo-1" in out
    assert "echo is in quarantine now" in out
    shown = run("show", "echo")
    assert "Revision 2 waits, because of skills:" in shown
    assert "quarantine" in run("list")
    assert run("accept", "echo") == "Accepted revision 2 of echo.\n"
    assert agent.skills.get().skill_id == "echo-2"


def test_a_changed_card_is_rejected_and_the_agent_released(run, remote):
    agent = add_remote_agent(remote.url)
    remote.card["skills"] = []
    run("refresh", "echo")
    assert "stays in quarantine" in run("reject", "echo")
    assert run("release", "echo") == "echo is out of quarantine.\n"
    assert agent.skills.get().skill_id == "echo-1"


def test_it_removes(run, remote):
    add_remote_agent(remote.url)
    assert run("remove", "echo") == "Removed echo.\n"
    assert not Agent.objects.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["add", "http://127.0.0.1:1/"], "The server could not be reached."),
        (["add", "http://10.0.0.1/"], "10.0.0.1 is a private address"),
        (["show", "nobody"], "There is no agent 'nobody'."),
        (["probe", "local"], "That is not a remote agent."),
        (["refresh", "local"], "That is not a remote agent."),
        (["remove", "local"], "local is an agent of this Bureau; it can be disabled, not removed."),
        (["accept", "local"], "No changed card of local waits."),
        (["reject", "local"], "No changed card of local waits."),
        (["release", "local"], "local is not in quarantine."),
        (["credential", "local"], "local is an agent of this Bureau and needs no credential."),
        (["credential", "echo"], "echo has no credential; give one with --auth."),
    ],
)
def test_it_says_in_one_line_what_is_wrong(run, remote, arguments, words):
    Agent.objects.create(slug="local", name="Local", handler="x")
    add_remote_agent(remote.url)
    before = list(Agent.objects.values())
    with pytest.raises(CommandError) as caught:
        run(*arguments)
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)
    assert list(Agent.objects.values()) == before


def test_the_secret_is_not_on_the_command_line(run, remote, typed):
    add_remote_agent(remote.url)
    typed("\n")
    with pytest.raises(CommandError, match="The secret is empty"):
        run("credential", "echo", "--auth", "bearer")
    assert not Credential.objects.exists()


def test_secrets_are_encrypted_anew_before_the_old_key_goes(run, remote, settings):
    agent = add_remote_agent(remote.url)
    set_credential(agent, Secret("bearer", "s3cret"))
    sent = send_message(ALICE, agent, Incoming.from_text("Hello"))
    draft = PushDraft("mine", "http://127.0.0.1/hook", "1.0", token="t0ken", scheme="Bearer", credentials="cr3dential")
    config = set_config(ALICE, sent.task_id, draft)
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "a new one", [settings.SECRET_KEY]
    assert run("rotate-credentials") == ("Encrypted anew: the credentials of 1 agents and of 1 push configurations.\n")
    settings.SECRET_KEY_FALLBACKS = []
    assert stored(agent).secret == "s3cret"
    config.refresh_from_db()
    assert (token_of(config), credentials_of(config)) == ("t0ken", "cr3dential")


def test_what_was_asked_is_shown_and_forgotten(run):
    assert run("memory") == ""
    for text in ("First?", "Second?\nA line more"):
        asked = remember(Outgoing([{"text": text}], message_id="m"), url="https://x/", name="Echo", principal="user:1")
    note_error(asked, Unreachable())
    newest, oldest = (line.split("\t") for line in run("memory").splitlines())
    assert newest[1:] == ["Echo", "The server could not be reached.", "Second? A line more", ""]
    assert oldest[1:] == ["Echo", "no answer yet", "First?", ""]
    assert [row["request"][0]["text"] for row in json.loads(run("memory", "--json", "--limit", "1"))] == [
        "Second?\nA line more"
    ]
    assert run("memory", "--clear") == "2 forgotten.\n"
    assert run("memory", "--clear") == "0 forgotten.\n"
