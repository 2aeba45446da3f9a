"""`manage.py card`: what an agent says of itself, and one line when it says nothing."""

import io
import json

import pytest
from django.core.management import CommandError, call_command

from tests.support.remote_agents import REST, RPC, V03, V1, remote_agent, skill


@pytest.fixture
def run(capsys):
    def run(*arguments):
        call_command("card", *arguments)
        return capsys.readouterr().out

    return run


def test_it_prints_a_card_for_people(run):
    with remote_agent(interfaces=((REST, V1), (RPC, V1)), key="secret") as remote:
        out = run(remote.url)
    assert out.startswith("Echo 1.0.0\n  Repeats the message.\n")
    assert f"Interface:  {remote.url}/rpc (JSONRPC 1.0) (chosen)" in out
    assert f"Interface:  {remote.url}/rest (HTTP+JSON 1.0)\n" in out
    assert "Signature:  not signed." in out
    assert "Can:        streaming\n" in out
    assert "Wants:      API key in X-API-Key" in out
    assert "Skill:      echo-1: Echo 1" in out
    assert "e.g. Repeat this" in out


def test_it_prints_any_version_as_json_of_1_0(run):
    with remote_agent(interfaces=((RPC, V03),)) as remote:
        card = json.loads(run(f"{remote.url}/rpc03", "--json"))
    assert card["supportedInterfaces"][0]["protocolVersion"] == "0.3.0"


def test_a_terminal_is_not_obeyed(run):
    evil = skill(name="\x1b[31mred", description="\x1b]0;title\x07")
    with remote_agent(name="E\x1b[2Jvil", skills=[evil]) as remote:
        out = run(remote.url)
    assert "\x1b" not in out
    assert "\x07" not in out


def test_a_card_behind_a_key_is_read_with_it(run, monkeypatch):
    with remote_agent() as remote:
        monkeypatch.setattr("sys.stdin", io.StringIO("s3cret\n"))
        run(remote.url, "--auth", "api_key", "--header", "X-Key")
    assert remote.requests[-1]["headers"]["x-key"] == "s3cret"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["http://127.0.0.1:1/"], "The server could not be reached."),
        (["http://10.0.0.1/"], "10.0.0.1 is a private address, which may not be contacted."),
        (["ftp://example.org/"], "An address must start with http:// or https://."),
        (["http://127.0.0.1:1/", "--header", "X"], "Say with --auth what kind of credential this is."),
    ],
)
def test_it_says_in_one_line_what_is_wrong(run, arguments, words):
    with pytest.raises(CommandError) as caught:
        run(*arguments)
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)
