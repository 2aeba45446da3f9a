"""Extensions of the protocol: what a caller asks for, what takes effect, and what comes of it."""

import pytest

from agents.orchestration.envelope import URI as ENVELOPE
from tasks.models import Message
from tests.a2a.peer import envelope, message, old_message

OTHER = "https://example.org/ext/1"


@pytest.mark.parametrize(
    ("asked", "told"),
    [(ENVELOPE, ENVELOPE), (f"{OTHER} , {ENVELOPE}", ENVELOPE), (OTHER, None), (",,;", None), (ENVELOPE.upper(), None)],
)
def test_what_takes_effect_is_told(alice, worker, asked, told):
    headers = {"A2A-Extensions": asked}
    rpc = alice.post(envelope("SendMessage", message("x")), headers=headers)
    rest = alice.http.get("/a2a/echo/tasks", headers=headers)
    with alice.stream("SendStreamingMessage", message("x"), headers) as stream:
        responses = [rpc, rest, stream.response]

    assert [response.headers.get("a2a-extensions") for response in responses] == [told] * 3


def test_in_0_3_the_header_has_its_older_name(as_peer):
    sent = as_peer("old", version="0.3", slug="echo").post(
        envelope("message/send", old_message("x", configuration={"blocking": False})),
        headers={"X-A2A-Extensions": ENVELOPE},
    )

    assert sent.headers["x-a2a-extensions"] == ENVELOPE


def test_nobody_is_told_who_did_not_ask(alice, worker):
    assert "a2a-extensions" not in alice.post(envelope("SendMessage", message("x"))).headers


def test_the_agent_is_given_what_it_carries(alice):
    task = alice.submit("x", extensions=[ENVELOPE, OTHER], metadata={ENVELOPE: {"goal": "g"}})
    kept = Message.objects.get(task_id=task["id"])

    assert (kept.extensions, kept.metadata) == ([ENVELOPE, OTHER], {ENVELOPE: {"goal": "g"}})
    assert task["history"][0]["extensions"] == [ENVELOPE, OTHER]
