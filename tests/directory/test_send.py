"""`manage.py send`: a message to an agent by URL or short name, and how the exit status tells what became of it."""

import asyncio
import io
import json
import os
import signal

import pytest
from django.core.management import CommandError, call_command

from bureau.management.commands.send import Printer
from directory.credentials import Secret
from directory.enrolment import add_remote_agent
from directory.models import Agent, Health, OutgoingRequest
from tests.shell.support import clean_env, start_manage
from tests.support.remote_agents import (
    REST,
    RPC,
    V03,
    V1,
    Asker,
    Chunky,
    Refuser,
    Slow,
    Talker,
    remote_agent,
)
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(capsys):
    """Runs the command; returns its exit status and what it wrote."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            call_command("send", *arguments)
        return ended.value.code, *capsys.readouterr()

    return run


@pytest.mark.parametrize("interface", [(RPC, V1), (REST, V1), (RPC, V03), (REST, V03)])
@pytest.mark.parametrize("options", [[], ["--stream"]])
def test_it_prints_the_answer(run, interface, options):
    with remote_agent(interfaces=(interface,)) as remote:
        status, out, err = run(remote.url, "Hello", "there", *options)
    assert (status, out, err) == (0, "Hello there\n", "")


def test_a_bare_message_is_an_answer(run):
    with remote_agent(Talker()) as remote:
        assert run(remote.url, "hi")[:2] == (0, "You said: hi\n")
        assert run(remote.url, "hi", "--stream")[:2] == (0, "You said: hi\n")
        assert json.loads(run(remote.url, "hi", "--json")[1])["message"]["parts"] == [{"text": "You said: hi"}]


def test_it_streams_as_it_comes(run):
    with remote_agent(Chunky()) as remote:
        assert run(remote.url, "go", "--stream")[:2] == (0, "one two three\n")
        _, out, _ = run(remote.url, "go", "--stream", "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["artifact"]["parts"][0]["text"] for event in events if "artifact" in event] == [
        "one ",
        "two ",
        "three",
    ]
    assert events[-1]["status"]["state"] == "completed"


def test_it_prints_the_task_as_json(run):
    with remote_agent() as remote:
        status, out, _ = run(remote.url, "hello", "--json")
    task = json.loads(out)
    assert (status, task["status"]["state"]) == (0, "completed")
    assert task["artifacts"][0]["parts"] == [{"text": "hello"}]


def test_a_question_can_be_answered(run):
    with remote_agent(Asker()) as remote:
        status, out, err = run(remote.url, "hello")
        assert (status, out) == (4, "What is your name?\n")
        task_id = err.split()[2]
        assert run(remote.url, "Ada", "--task", task_id)[:2] == (0, "Hello, Ada!\n")


def test_a_refusal_has_its_own_status(run):
    with remote_agent(Refuser()) as remote:
        status, out, err = run(remote.url, "hello")
    assert (status, out) == (3, "Not that.\n")
    assert "is rejected" in err


def test_it_need_not_wait(run):
    slow = Slow()
    with remote_agent(slow) as remote:
        status, out, _ = run(remote.url, "hello", "--no-wait", "--json")
        slow.release.set()
    assert (status, json.loads(out)["status"]["state"] in {"submitted", "working"}) == (0, True)


@pytest.fixture
def time_from_the_first_word(monkeypatch):
    """How long it takes to get through to the agent does not count."""
    is_shown, show, wait = asyncio.Event(), Printer.show, asyncio.wait

    def show_and_tell(printer, event):
        show(printer, event)
        is_shown.set()

    async def wait_from_there(tasks, **options):
        if options.get("timeout"):
            await is_shown.wait()
        return await wait(tasks, **options)

    monkeypatch.setattr(Printer, "show", show_and_tell)
    monkeypatch.setattr(asyncio, "wait", wait_from_there)


def test_what_takes_too_long_is_canceled(run, time_from_the_first_word):
    with remote_agent(Slow()) as remote:
        status, _, err = run(remote.url, "hello", "--seconds", "0.5", "--stream")
    assert status == 5
    assert "No end after 0.5 seconds." in err
    assert "is canceled" in err


def test_a_known_agent_is_asked_with_its_credential_and_remembered(run):
    with remote_agent(key="s3cret") as remote:
        add_remote_agent(remote.url, secret=Secret("bearer", "s3cret"))
        assert run("echo", "one")[:2] == (0, "one\n")
        assert run(f"{remote.url}/rpc", "two")[:2] == (0, "two\n")
    assert [row.request[0]["text"] for row in OutgoingRequest.objects.all()] == ["two", "one"]
    assert Health.objects.get().latency


def test_a_stranger_is_asked_with_the_credential_that_is_given(run, monkeypatch):
    with remote_agent(key="s3cret") as remote:
        monkeypatch.setattr("sys.stdin", io.StringIO("s3cret\n"))
        assert run(remote.url, "one", "--auth", "api_key")[:2] == (0, "one\n")
    assert not OutgoingRequest.objects.exists()


def test_a_failure_of_a_known_agent_is_remembered(run):
    with remote_agent() as remote:
        add_remote_agent(remote.url)
        remote.failures = 1
        with pytest.raises(CommandError, match="HTTP 500"):
            call_command("send", "echo", "hello")
    assert OutgoingRequest.objects.get().error
    assert Health.objects.get().failures == 1


def test_a_quarantined_agent_is_not_asked(run):
    with remote_agent() as remote:
        add_remote_agent(remote.url)
        Agent.objects.update(quarantined_at="2026-01-01T00:00Z")
        remote.requests.clear()
        with pytest.raises(CommandError, match="quarantine"):
            call_command("send", "echo", "hello")
    assert not remote.requests
    assert not OutgoingRequest.objects.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nobody", "hello"], "There is no remote agent 'nobody', and that is no URL either."),
        (["http://127.0.0.1:1/", "hello"], "The server could not be reached."),
        (["http://127.0.0.1:1/", " "], "Say something."),
    ],
)
def test_it_says_in_one_line_what_is_wrong(arguments, words):
    with pytest.raises(CommandError) as caught:
        call_command("send", *arguments)
    assert str(caught.value) == words


def test_a_terminal_is_not_obeyed(run):
    with remote_agent() as remote:
        assert run(remote.url, "a\x1b[2Jb\x9b1mc\rd")[1] == "a[2Jb1mc\nd\n"


def texts_in(value):
    """Every text in a document of JSON."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return [text for one in inner for text in texts_in(one)]
    return [value]


def test_nor_by_json(run):
    text = "тиша \x9b1m\x7f\u202e\U000e0041"
    with remote_agent() as remote:
        for options in ([], ["--stream"]):
            _, out, _ = run(remote.url, text, "--json", *options)
            documents = [json.loads(line) for line in out.splitlines()] if options else [json.loads(out)]
            assert text in texts_in(documents)
            assert "тиша" in out and not set(out) & set("\x9b\x7f\u202e\U000e0041")


# --- As a real process ---------------------------------------------------------------------------


def test_ctrl_c_cancels_at_the_other_side(tmp_path):
    slow = Slow()
    with remote_agent(slow) as remote:
        env = clean_env(tmp_path / "data")
        running = start_manage("send", remote.url, "hello", "--stream", env=env, folder=tmp_path)
        wait_until(lambda: "Still working" in running.output, what=f"its output: {running.output}")
        os.kill(running.pid, signal.SIGINT)
        assert running.process.wait(PATIENCE) == 5, running.output
        assert "is canceled" in running.output
        assert "Traceback" not in running.output
        slow.release.set()
