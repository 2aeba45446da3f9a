"""Reading the environment: typed values, problems in words, never an exception."""

from pathlib import Path

import pytest

from bureau import env


def test_it_has_defaults():
    environment = env.Environment({})
    assert environment[env.PORT] == 8000
    assert environment[env.ALLOW_ANONYMOUS] is None
    assert not environment.given(env.PORT)
    assert not environment.problems


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        (env.PORT, "9000", 9000),
        (env.PRODUCTION, "Yes", True),
        (env.PRODUCTION, "0", False),
        (env.ALLOW_ANONYMOUS, "off", False),
        (env.LEASE_SECONDS, "2.5", 2.5),
        (env.ALLOWED_HOSTS, "a.example, b.example,", ("a.example", "b.example")),
        (env.DATA, "/srv/bureau", Path("/srv/bureau")),
        (env.DATA, "here", Path.cwd() / "here"),
        (env.LOG_LEVEL, "debug", "DEBUG"),
        (env.REDIS_URL, "unix:///run/valkey.sock?db=1", "unix:///run/valkey.sock?db=1"),
        (env.PORT, "  ", 8000),
    ],
)
def test_it_reads(setting, text, value):
    environment = env.Environment({setting.name: text})
    assert environment[setting] == value
    assert not environment.problems


@pytest.mark.parametrize(
    ("setting", "text", "words"),
    [
        (env.PORT, "http", "whole number, 1 to 65535"),
        (env.PORT, "0", "whole number, 1 to 65535"),
        (env.PRODUCTION, "maybe", "true or false"),
        (env.LEASE_SECONDS, "nan", "number of seconds"),
        (env.LEASE_SECONDS, "-1", "0.5 or more"),
        (env.LOG_FORMAT, "xml", "auto, text, json"),
        (env.DATABASE_URL, "mysql://localhost/x", "postgresql://"),
        (env.REDIS_URL, "redis://", "must follow"),
        (env.PUBLIC_URL, "https://host:port/", "port"),
    ],
)
def test_it_collects_problems_and_uses_the_default(setting, text, words):
    environment = env.Environment({setting.name: text})
    assert environment[setting] == setting.default
    assert environment.is_broken(setting)
    (problem,) = environment.problems
    assert problem.message.startswith(f"{setting.name}: ")
    assert words in problem.message
    assert "default" in problem.hint


def test_it_does_not_repeat_a_broken_secret():
    environment = env.Environment({"DATABASE_URL": "mysql://me:hunter22@localhost/x"})
    (problem,) = environment.problems
    assert "hunter22" not in problem.message + problem.hint


def test_it_notices_slips_of_the_pen():
    environment = env.Environment({"BUREAU_PROT": "1", "BUREAU_ELEPHANT": "1", "BUREAU_TEST_DB": "sqlite", "HOME": "/"})
    assert [problem.setting for problem in environment.unknown] == ["BUREAU_ELEPHANT", "BUREAU_PROT"]
    assert environment.unknown[1].hint == "Did you mean BUREAU_PORT?"


def test_it_knows_what_must_not_be_printed():
    environment = env.Environment({"ANTHROPIC_API_KEY": "key-1", "DATABASE_URL": "postgresql://me:pass-1@host/x"})
    assert {"key-1", "pass-1"} <= set(environment.secrets())
