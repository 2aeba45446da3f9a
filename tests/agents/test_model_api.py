"""Talking to a model: retries by class, time limits, cancellation, and what it all cost."""

import threading
import time
from types import SimpleNamespace

import pytest

from agents import model_api
from agents.exceptions import ModelError, Stopped
from agents.model_api import Ask, converse
from agents.pricing import Usage
from agents.prompts import Prompt
from tests.support.messages_api import Reply
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.django_db

PROMPT = Prompt("Be brief.", "Say hello.")


def ask(**more):
    return Ask("claude-haiku-5-5", PROMPT, 100, **more)


@pytest.fixture
def turn(begin):
    return begin("assistant", "hello")


def test_it_sends_what_the_api_wants(turn, model, settings):
    settings.ANTHROPIC_API_KEY = "sk-ant-mine"
    model.add(Reply(text="Hello."))
    reply = converse(turn, ask(schema={"type": "object", "additionalProperties": False}, effort="low"))
    assert (reply.text, reply.stop_reason, reply.model, reply.calls) == ("Hello.", "end_turn", "claude-haiku-5-5", 1)
    body = model.requests[0]
    assert body["system"] == [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    assert body["messages"] == [{"role": "user", "content": "Say hello."}]
    assert body["output_config"]["effort"] == "low"
    assert model.headers[0]["authorization"] == "Bearer sk-ant-mine"


def test_a_server_of_ones_own_needs_no_key(turn, model):
    model.add(Reply(text="Hello."))
    converse(turn, ask())
    assert model.headers[0]["authorization"] == f"Bearer {model_api.NO_KEY}"


def test_text_goes_to_the_sink_while_it_comes(turn, model):
    model.add(Reply(text="one two three four five six seven"))
    pieces = []
    reply = converse(turn, ask(sink=lambda: pieces.append))
    assert len(pieces) > 1
    assert "".join(pieces) == reply.text


def test_usage_is_counted(turn, model):
    usage = {"input_tokens": 100, "output_tokens": 7, "cache_read_input_tokens": 50, "cache_creation_input_tokens": 20}
    model.add(Reply(text="Hi.", usage=usage))
    assert converse(turn, ask()).usage == Usage(100, 7, 50, 20)


@pytest.mark.parametrize(
    "failure",
    [
        Reply(status=429, headers={"retry-after": "0.01"}),
        Reply(status=529),
        Reply(status=500),
        Reply(fault="disconnect"),
        Reply(fault="disconnect_midway"),
        Reply(fault="overloaded_midway"),
    ],
    ids=lambda reply: reply.fault or str(reply.status),
)
def test_it_tries_again_where_that_can_help(turn, model, failure):
    model.add(failure, Reply(text="Hello."))
    reply = converse(turn, ask())
    assert (reply.text, reply.calls) == ("Hello.", 2)


def test_tokens_of_a_broken_attempt_are_counted_too(turn, model):
    model.add(Reply(text="x" * 100, fault="disconnect_midway", usage={"input_tokens": 30}))
    model.add(Reply(text="Hello.", usage={"input_tokens": 40, "output_tokens": 2}))
    usage = converse(turn, ask()).usage
    assert usage.input == 70
    assert usage.output >= 2


@pytest.mark.parametrize(("status", "kind"), [(400, "bad_request"), (401, "auth"), (403, "auth"), (404, "bad_request")])
def test_it_does_not_repeat_what_was_refused(turn, model, status, kind):
    model.add(Reply(status=status, error="no such thing", times=0))
    with pytest.raises(ModelError) as caught:
        converse(turn, ask())
    assert (caught.value.kind, caught.value.calls, len(model.requests)) == (kind, 1, 1)


def test_the_server_can_say_that_trying_again_is_no_use(turn, model):
    model.add(Reply(status=529, headers={"x-should-retry": "false"}, times=0))
    with pytest.raises(ModelError, match="overloaded"):
        converse(turn, ask())
    assert len(model.requests) == 1


@pytest.mark.parametrize("fault", ["malformed", "garbled"])
def test_an_answer_that_cannot_be_read_is_final(turn, model, fault):
    model.add(Reply(fault=fault, text="x", times=0))
    with pytest.raises(ModelError) as caught:
        converse(turn, ask())
    assert (caught.value.kind, caught.value.calls) == ("unreadable", 1)


def test_it_gives_up_after_a_few_calls(turn, model):
    model.add(Reply(status=529, times=0))
    with pytest.raises(ModelError, match="overloaded") as caught:
        converse(turn, ask())
    assert (caught.value.calls, len(model.requests)) == (model_api.MAX_CALLS, model_api.MAX_CALLS)


def test_it_does_not_wait_longer_than_it_may(turn, model):
    model.add(Reply(status=429, headers={"retry-after": "3600"}, times=0))
    with pytest.raises(ModelError) as caught:
        converse(turn, ask())
    assert (caught.value.kind, caught.value.calls) == ("rate_limited", 1)


def test_an_unreachable_server_is_named(turn, model, settings):
    settings.ANTHROPIC_BASE_URL = "http://127.0.0.1:9"
    with pytest.raises(ModelError, match="cannot be reached"):
        converse(turn, ask())


@pytest.mark.parametrize("fault", ["hang", "hang_midway"])
def test_a_silent_server_is_left_after_the_time_limit(turn, model, settings, fault):
    settings.BUREAU_MODEL_TIMEOUT = 0.5
    model.add(Reply(text="a long answer that never ends " * 9, fault=fault, times=0))
    started = time.monotonic()
    with pytest.raises(ModelError) as caught:
        converse(turn, ask())
    assert caught.value.kind in ("timeout", "unreachable")
    # The server would hold it for a minute.
    assert time.monotonic() - started < 40


@pytest.mark.parametrize("fault", ["hang", "hang_midway"])
def test_a_turn_that_ends_does_not_wait_for_the_server(turn, model, settings, fault):
    settings.BUREAU_MODEL_TIMEOUT = 90.0
    model.add(Reply(text="a long answer that never ends " * 9, fault=fault, times=0))
    threading.Timer(0.2, turn.stop).start()
    started = time.monotonic()
    with pytest.raises(Stopped):
        converse(turn, ask(sink=lambda: lambda text: None))
    assert time.monotonic() - started < 40


def test_a_slow_stream_may_take_longer_than_one_silence(turn, model, settings, monkeypatch):
    """A clock that runs ahead with each piece: a machine that stands still for a moment is no silent server."""
    settings.BUREAU_MODEL_TIMEOUT = 60.0
    pieces: list[str] = []
    ahead = SimpleNamespace(monotonic=lambda: time.monotonic() + 25.0 * len(pieces), time=time.time)
    monkeypatch.setattr(model_api, "time", ahead)
    model.add(Reply(text="word " * 100))
    assert converse(turn, ask(sink=lambda: pieces.append)).text == "word " * 100
    assert 60 < 25 * len(pieces) < 60 * model_api.STREAM_FACTOR


def test_a_call_that_is_given_up_before_it_goes_out_is_not_made(turn, model, settings, monkeypatch):
    settings.BUREAU_MODEL_TIMEOUT = 0.2
    is_over, real = threading.Event(), model_api.client

    def late():
        assert is_over.wait(PATIENCE)
        return real()

    monkeypatch.setattr(model_api, "client", late)
    with pytest.raises(ModelError):
        converse(turn, ask())
    calls = [thread for thread in threading.enumerate() if thread.name == model_api.THREAD]
    assert calls
    is_over.set()
    for thread in calls:
        thread.join(PATIENCE)
    assert model.requests == []


def test_a_refusal_says_why(turn, model):
    details = {"type": "refusal", "category": "cyber", "explanation": "This is about attacking systems."}
    model.add(Reply(text="", stop_reason="refusal", stop_details=details))
    with pytest.raises(ModelError, match="declined this request: This is about attacking systems") as caught:
        converse(turn, ask())
    assert caught.value.is_final
    assert caught.value.usage.input


def test_an_error_does_not_show_the_key(turn, model, settings):
    settings.ANTHROPIC_API_KEY = "sk-ant-mine-and-only-mine"
    model.add(Reply(status=400, error="invalid key sk-ant-mine-and-only-mine"))
    with pytest.raises(ModelError) as caught:
        converse(turn, ask())
    assert "sk-ant-mine" not in str(caught.value)
