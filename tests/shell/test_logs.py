"""Log lines: for people and for machines, with ids, without secrets."""

import json
import logging
import threading
import uuid

import pytest

from bureau import logs
from directory.logs import bind, fields


def record(message="Hello", *args, level=logging.INFO, exc_info=None, **extra):
    made = logging.getLogger("test").makeRecord("test", level, __file__, 1, message, args, exc_info, extra=extra)
    logs.BindFilter().filter(made)
    return made


@pytest.fixture(params=[logs.TextFormatter, logs.JsonFormatter])
def formatter(request):
    return request.param()


def test_json_is_one_object_per_line():
    task_id = uuid.uuid4()
    with bind(task_id=task_id, context_id="c-1"):
        line = logs.JsonFormatter().format(record("Two\nlines of %s", "text", action="said", count=2))
    entry = json.loads(line)
    assert "\n" not in line
    assert entry["message"] == "Two\nlines of text"
    assert entry["level"] == "INFO"
    assert (entry["task_id"], entry["context_id"]) == (str(task_id), "c-1")
    assert (entry["action"], entry["count"]) == ("said", 2)
    assert entry["time"].endswith("+00:00")


def test_text_is_one_line_even_when_strangers_write_it():
    line = logs.TextFormatter().format(record("Agent %s", "x\n12:00:00 ERROR   forged", action="said"))
    assert "\n" not in line
    assert line.endswith("action=said")


def test_so_are_extras_and_no_terminal_is_obeyed(formatter):
    error = ValueError("\x1b[2J\x9b1m")
    raised = (ValueError, error, None)
    line = formatter.format(record("\x1b]0;x\x07 \x9b1m", error="a\n12:00:00 ERROR   forged", exc_info=raised))
    assert not set(line) & set("\x1b\x07\x9b")
    assert "forged" not in [text for row in line.splitlines()[1:] for text in row.split()]


def test_a_secret_cannot_hide_behind_what_is_not_seen(formatter):
    assert "hunter22" not in formatter.format(record("pass\u200bword=hunter22")).replace("\\u200b", "")


def test_text_carries_the_bound_ids():
    with bind(task_id="t-1"), bind(context_id="c-1"):
        line = logs.TextFormatter().format(record())
    assert line.endswith("task_id=t-1 context_id=c-1")
    assert "task_id" not in logs.TextFormatter().format(record())


def test_ids_are_bound_per_thread_and_given_back():
    seen = []
    with bind(task_id="t-1"):
        thread = threading.Thread(target=lambda: seen.append(fields()))
        thread.start()
        thread.join()
        assert fields() == {"task_id": "t-1"}
    assert fields() == {}
    assert seen == [{}]


def test_tracebacks_are_kept(formatter):
    try:
        int("password=hunter22")
    except ValueError as error:
        line = formatter.format(record("Failed", exc_info=(ValueError, error, error.__traceback__)))
    assert "Traceback" in line
    assert "hunter22" not in line


@pytest.mark.parametrize(
    "message",
    [
        "Authorization: Bearer abc.hunter22",
        "{'x-api-key': 'hunter22'}",
        '{"api_key": "hunter22"}',
        "connecting to postgresql://me:hunter22@db/x",
        "redis://:hunter22@queue:6379/0",
        "password=hunter22&next=/",
        "sk-ant-hunter22hunter22",
        "key bureau_hunter22hunter22hunter22",
        "bearer hunter22",
    ],
)
def test_secrets_are_hidden(formatter, message):
    line = formatter.format(record("%s", message))
    assert "hunter22" not in line
    assert "***" in line


def test_secrets_in_extras_are_hidden(formatter):
    line = formatter.format(record("Sent", headers={"Authorization": "hunter22"}, api_key="hunter22"))
    assert "hunter22" not in line


def test_configured_secrets_are_hidden_anywhere(formatter, monkeypatch):
    monkeypatch.setitem(logs._process, "secrets", ("correct horse",))
    assert "horse" not in formatter.format(record("It was correct horse, of course"))


@pytest.mark.parametrize(
    "message",
    [
        "Listening on http://127.0.0.1:8000/",
        "3 tokens: done",
        "bureau_session cookie",
        "BUREAU_OUTBOUND_ALOW is not a setting of Bureau. Did you mean BUREAU_OUTBOUND_ALLOW?",
    ],
)
def test_what_is_no_secret_stays(formatter, message):
    assert message in formatter.format(record(message))


@pytest.mark.parametrize(
    ("wanted", "production", "formatter"),
    [("text", True, "text"), ("json", False, "json"), ("auto", False, "text"), ("auto", True, "json")],
)
def test_format_follows_the_setting(wanted, production, formatter, monkeypatch):
    monkeypatch.setitem(logs._process, "secrets", ())
    chosen = logs.configuration(wanted, "INFO", production, [])
    assert chosen["handlers"]["stderr"]["formatter"] == formatter
