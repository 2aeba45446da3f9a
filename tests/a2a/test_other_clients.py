"""Clients that are not ours: a2a-sdk 0.3's own, and @a2a-js/sdk, each in an environment of its own.

BUREAU_TEST_SDK03 is the Python that has a2a-sdk 0.3, BUREAU_TEST_JS the folder that has @a2a-js/sdk.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
from pathlib import Path

import pytest

from bureau.a2a import handler
from bureau.a2a.cards import extended_card
from bureau.a2a.courier import deliver_due
from tasks.claims import claim_next
from tasks.exceptions import TaskNotInState
from tasks.models import Message, Task
from tasks.results import ArtifactDraft, finish, plain
from tests.support.receivers import receiver

CLIENTS = Path(__file__).parent / "clients"
SDK03 = os.environ.get("BUREAU_TEST_SDK03", "")
JS = os.environ.get("BUREAU_TEST_JS", "")


@pytest.fixture
def partner(url):
    """A worker that echoes, asks when it is told "ask", and leaves "hold" alone."""
    from django.db import connections

    is_over = threading.Event()

    def work():
        while not is_over.wait(0.01):
            claim = claim_next("default", "partner")
            if claim is None:
                continue
            texts = [
                part.get("text")
                for parts in Message.objects.filter(task_id=claim.task_id, role="user").values_list("parts", flat=True)
                for part in parts
            ]
            try:
                if texts == ["ask"]:
                    finish(claim, Task.State.INPUT_REQUIRED, message=plain("Which one?"))
                elif texts != ["hold"]:
                    draft = ArtifactDraft("echo", [{"text": texts[-1]}])
                    finish(claim, Task.State.COMPLETED, artifacts=[draft])
            except TaskNotInState:
                continue
        connections.close_all()

    thread = threading.Thread(target=work, name="partner")
    thread.start()
    yield
    is_over.set()
    thread.join(60)


@pytest.fixture
def extended(monkeypatch):
    """The callers that asked for an extended card."""
    asked = []

    def noted(caller, slug):
        asked.append((caller.name, slug))
        return extended_card(caller, slug)

    monkeypatch.setattr(handler, "extended_card", noted)
    return asked


@pytest.fixture
def talk(url, make_key, partner, extended, settings):
    """Run a client's program, and give what it saw, and what was pushed to it."""
    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8",)
    settings.BUREAU_ALLOW_ANONYMOUS = False

    def run(command, binding, version, **options):
        with receiver() as hook:
            arguments = [f"{url}/a2a/echo/", make_key("client"), binding, version, hook.url]
            program = [*command, *arguments]
            done = subprocess.run(program, check=False, capture_output=True, text=True, timeout=180, **options)
            assert done.returncode == 0, done.stderr
            asyncio.run(deliver_due())
            # The card that anybody may read has the same name.
            assert extended == [("client", "echo")]
            return json.loads(done.stdout), hook

    return run


def check(seen, hook):
    assert seen["send"] == ["completed", "Hello"]
    assert seen["ask"] == ["input-required", "completed", True]
    assert seen["cancel"] == seen["resumed"] == "canceled"
    assert seen["push"] == ["mine", hook.url, "t"]
    assert seen["extendedCard"] == "Echo"
    # The first was configured when its task had ended: nothing is told of it.
    assert len(hook.received) == 3
    assert {each.headers["x-a2a-notification-token"] for each in hook.received} == {"t"}


@pytest.mark.skipif(not SDK03, reason="BUREAU_TEST_SDK03 is not set")
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
def test_a2a_sdk_0_3(talk, binding):
    seen, hook = talk([SDK03, str(CLIENTS / "sdk03.py")], binding, "0.3")

    check(seen, hook)
    assert seen["stream"] == ["task", "status-update", "artifact-update", "status-update"]
    assert (seen["resume"][0], seen["resume"][-1]) == ("task", "status-update")
    is_rpc = binding == "JSONRPC"
    assert [seen["canceledTwice"], seen["missing"]] == ([-32002, -32001] if is_rpc else [400, 404])


@pytest.mark.skipif(not JS, reason="BUREAU_TEST_JS is not set")
@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
def test_a2a_js(talk, binding, version):
    with (CLIENTS / "js.mjs").open() as program:
        seen, hook = talk(["node", "--input-type=module", "-"], binding, version, stdin=program, cwd=JS)

    check(seen, hook)
    assert seen["stream"] == ["task", "statusUpdate", "artifactUpdate", "statusUpdate"]
    assert (seen["resume"][0], seen["resume"][-1]) == ("task", "statusUpdate")
    assert [seen["canceledTwice"], seen["missing"]] == ["TaskNotCancelableError", "TaskNotFoundError"]
    assert seen.get("list") == (4 if version == "1.0" else None)
