"""`manage.py ask`: an answer on the command line, with a running Bureau or without."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from bureau import embedded
from bureau.management.commands import ask
from directory.identity import Caller
from directory.models import Agent
from tasks import claims, results
from tasks.content import Incoming
from tasks.models import Task
from tasks.queries import fetch_task
from tasks.services import send_message
from tests.shell.support import BASE, assert_gone, manage, sockets, start_manage, wait_for_output
from tests.support.servers import free_port, start, wait_ready
from tests.support.waiting import PATIENCE, wait_until

# --- As a real process --------------------------------------------------------------------------


def test_without_a_server_it_starts_what_it_needs_and_ends_it(env, data):
    result = manage("ask", "--agent", "echo", "Hello there", env=env)
    assert (result.returncode, result.stdout) == (0, "Hello there\n"), result
    assert "Traceback" not in result.stderr
    assert not sockets(data)
    assert manage("ask", "--agent", "echo", "And again", env=env).stdout == "And again\n"


def test_with_a_server_it_uses_that(env, data, tmp_path):
    env |= {"BUREAU_PORT": str(free_port())}
    up = start_manage("up", env=env, folder=tmp_path)
    try:
        wait_for_output(up, " ready.")
        result = manage("ask", "--agent", "echo", "Hello there", env=env)
        assert (result.returncode, result.stdout) == (0, "Hello there\n"), result
        assert (data / "ask.log").read_text() == ""
        assert up.process.poll() is None
    finally:
        up.stop()


def test_two_at_once_share_what_they_start(env):
    """On a folder that neither has seen before."""
    command = [sys.executable, "manage.py", "ask", "--agent", "echo", "Hello"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    asking = [subprocess.Popen(command, cwd=BASE, env=env, **pipes) for _ in range(2)]
    endings = [(*process.communicate(timeout=2 * PATIENCE), process.returncode) for process in asking]
    assert [(out, status) for out, _, status in endings] == [("Hello\n", 0)] * 2, endings


def test_it_takes_over_when_the_one_who_ran_the_queue_ends(ready_env, tmp_path, data):
    valkey = start(embedded.valkey_command(data, embedded.socket_path(data)), tmp_path, ready_env, "valkey")
    with embedded.hold(data, "a test"):
        wait_ready(valkey, embedded.socket_path(data).exists, "valkey")
        env = ready_env | {"BUREAU_SWEEP_SECONDS": "0.5"}
        asking = start_manage("ask", "--agent", "echo", "Hello", env=env, folder=tmp_path)
        # Its worker has been started, and will find nobody to talk to.
        wait_until(lambda: psutil.Process(asking.pid).children())
        valkey.kill()
    assert asking.process.wait(PATIENCE) == 0, asking.output
    assert asking.output.endswith("Hello\n")
    assert not sockets(data)


def test_json_is_the_whole_task_with_its_files(ready_env, tmp_path):
    (tmp_path / "note.txt").write_text("A note.")
    result = manage("ask", "--agent", "echo", "--json", "--file", str(tmp_path / "note.txt"), "Hello", env=ready_env)
    assert result.returncode == 0, result
    task = json.loads(result.stdout)
    assert task["status"]["state"] == "completed"
    assert task["agent"] == "echo"
    nothing = {"calls": 0, "inputTokens": 0, "outputTokens": 0, "usd": None}
    assert task["cost"] == nothing | {"own": nothing}
    text, file = task["history"][0]["parts"]
    assert text == {"text": "Hello"}
    assert (file["filename"], file["mediaType"]) == ("note.txt", "text/plain")


def test_a_request_nobody_here_can_do_is_rejected_with_a_status_of_its_own(ready_env):
    result = manage("ask", "Book a flight from Vienna to Lisbon for tomorrow morning", env=ready_env)
    assert (result.returncode, result.stdout) == (3, ""), result
    assert result.stderr.startswith("Rejected: ")


def test_ctrl_c_before_anything_was_asked_leaves_nothing(ready_env, tmp_path, data):
    asking = start_manage("ask", "Hello", env=ready_env, folder=tmp_path)
    children = wait_until(lambda: psutil.Process(asking.pid).children())
    assert asking.stop(signal.SIGINT) in {5, 130}
    assert_gone(children)
    assert not sockets(data)
    assert "Traceback" not in asking.output


# --- The loop alone -----------------------------------------------------------------------------


class Nothing:
    """What `ask` borrows when everything runs already."""

    has_worker = False

    def tend(self):
        pass


@pytest.fixture
def alice(transactional_db, django_user_model):
    return Caller.from_user(django_user_model.objects.create_superuser("alice", "", "x"))


@pytest.fixture
def sent(alice):
    agent = Agent.objects.create(slug="assistant", name="Assistant")
    return send_message(alice, agent, Incoming.from_text("Do it."))


def follow(alice, sent, *, as_json=False):
    return asyncio.run(ask._follow(alice, sent, Nothing(), as_json=as_json))


@pytest.mark.both_databases
@pytest.mark.parametrize(
    ("state", "status", "stdout", "stderr"),
    [
        ("completed", 0, "Because.\n", ""),
        ("failed", 2, "", "Failed: Because.\n"),
        ("rejected", 3, "", "Rejected: Because.\n"),
        ("input-required", 4, "Because.\n", "To answer: manage.py ask --task {} '…'\n"),
        ("auth-required", 4, "Because.\n", "To answer: manage.py ask --task {} '…'\n"),
    ],
)
def test_exit_status_tells_the_outcome(alice, sent, capsys, state, status, stdout, stderr):
    results.finish(claims.claim_next("default", "worker"), state, message=results.plain("Because."))
    assert follow(alice, sent) == status
    assert capsys.readouterr() == (stdout, stderr.format(sent.task_id))


def test_streamed_text_is_printed_as_it_grows(alice, sent, capsys):
    claim = claims.claim_next("default", "worker")
    results.stream_chunk(claim, "answer", "One, ", is_first=True)
    results.stream_chunk(claim, "answer", "two.", is_first=False)
    answer = results.ArtifactDraft("answer", [{"text": "One, two."}], is_streamed=True)
    data = results.ArtifactDraft("figures", [{"data": {"n": 1}}])
    results.finish(claim, "completed", artifacts=[answer, data], message=results.plain("Done."))
    assert follow(alice, sent) == 0
    assert capsys.readouterr() == ('One, two.\n{\n  "n": 1\n}\n', "Done.\n")


def test_data_beside_text_is_for_programs(alice, sent, capsys):
    parts = [{"text": "One agent."}, {"data": {"count": 1}}]
    claim = claims.claim_next("default", "worker")
    results.finish(claim, "completed", artifacts=[results.ArtifactDraft("agents", parts)])
    assert follow(alice, sent) == 0
    assert capsys.readouterr() == ("One agent.\n", "")


def test_a_file_has_a_line_of_its_own(alice, sent, capsys):
    parts = [{"text": "Written."}, {"file": "f-1", "filename": "a.md", "mediaType": "text/markdown"}]
    claim = claims.claim_next("default", "worker")
    results.finish(claim, "completed", artifacts=[results.ArtifactDraft("note", parts)])
    assert follow(alice, sent) == 0
    assert capsys.readouterr().out == "Written.\n[a.md, text/markdown: file f-1]\n"


def test_text_that_starts_again_says_so(alice, sent, capsys):
    claim = claims.claim_next("default", "worker")
    results.stream_chunk(claim, "answer", "Lost", is_first=True)
    results.stream_chunk(claim, "answer", "Kept", is_first=True)
    results.finish(
        claim, "completed", artifacts=[results.ArtifactDraft("answer", [{"text": "Kept"}], is_streamed=True)]
    )
    assert follow(alice, sent) == 0
    assert capsys.readouterr() == ("Lost\nKept\n", "(answer starts again.)\n")


@pytest.fixture
def interrupted(monkeypatch):
    """Ctrl-C comes while it watches. A moment earlier it would end the whole test run."""

    async def watch(*arguments):
        asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGINT)
        await begin(*arguments)

    begin = ask._watch
    monkeypatch.setattr(ask, "_watch", watch)


@pytest.mark.usefixtures("interrupted")
def test_ctrl_c_cancels_the_task(alice, sent, capsys):
    assert follow(alice, sent) == 5
    assert fetch_task(alice, sent.task_id).state == Task.State.CANCELED
    assert capsys.readouterr() == ("", "\nCanceled.\n")


@pytest.mark.usefixtures("interrupted")
def test_ctrl_c_loses_to_completion(alice, sent, monkeypatch):
    def complete_first(*arguments):
        results.finish(claims.claim_next("default", "worker"), "completed")
        return cancel_task(*arguments)

    cancel_task = ask.cancel_task
    monkeypatch.setattr(ask, "cancel_task", complete_first)
    assert follow(alice, sent) == 0


def test_a_follow_up_answers_the_question(alice, sent):
    results.finish(claims.claim_next("default", "worker"), "input-required", message=results.plain("Which?"))
    again = ask._send(alice, "assistant", "That one.", [], str(sent.task_id))
    assert (again.task_id, again.is_new) == (sent.task_id, False)


# --- Refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Say what to ask"),
        (["--agent", "nobody", "Hello"], "There is no agent 'nobody' to ask."),
        (["--user", "nobody", "Hello"], "There is no user 'nobody'."),
        (["--file", "/no/such/file", "Hello"], "/no/such/file cannot be read: No such file or directory."),
        (["--task", "5", "Hello"], "There is no such task."),
    ],
)
def test_refusals_are_one_line(ready_env, arguments, words):
    result = manage("ask", *arguments, env=ready_env)
    assert (result.returncode, result.stdout) == (1, "")
    (line,) = result.stderr.strip().splitlines()
    assert words in line


def test_a_file_that_is_too_large_is_refused(env, tmp_path):
    (tmp_path / "large").write_bytes(b"x" * 2048)
    result = manage("ask", "--file", str(tmp_path / "large"), env=env | {"BUREAU_MAX_BODY_BYTES": "1024"})
    assert result.returncode == 1
    assert "is larger than BUREAU_MAX_BODY_BYTES (1024)" in result.stderr
