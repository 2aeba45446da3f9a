"""How log lines look: for people in a terminal, one JSON object per line elsewhere; no secret in either.

Every line carries the ids bound by `directory.logs.bind` and the role of its process (up, web, worker …).
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from directory.logs import fields
from directory.untrusted import json_text, printable

ROLE_FIELDS = ("task_id", "context_id")
# What every LogRecord has; whatever else is on one was given by `extra`.
_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_STANDARD |= {*ROLE_FIELDS, "request", "status_code", "server_time"}  # the latter are Django's own

_SECRETS = re.compile(
    r"""
    (?P<before>
        \b(?:authorization|x-api-key|api[-_]key|password|passwd|secret|token)
        ["']?\s*[:=]\s*["']?(?:(?:bearer|basic)\s+)?        # Authorization: Bearer …, "api_key": "…"
      | \bbearer\s+
      | \b[a-z][a-z0-9+.-]*://[^\s/:@]*:(?=[^\s/@]+@)       # scheme://user:password@host
    )
    (?P<secret>[^\s"',;&@}\])]+)
    | (?-i:\b(?:sk-ant-|bureau_)[A-Za-z0-9_-]{8,})          # keys known by their prefix; settings are in capitals
    """,
    re.IGNORECASE | re.VERBOSE,
)
_HIDDEN = "***"

_process: dict[str, Any] = {"role": "", "secrets": ()}


def set_role(role: str) -> None:
    """Name this process in its log lines, for example "worker"."""
    _process["role"] = role


def redact(text: str) -> str:
    """Replace what looks like a secret, and the configured secrets themselves, by ***."""
    for secret in _process["secrets"]:
        text = text.replace(secret, _HIDDEN)
    return _SECRETS.sub(lambda found: (found["before"] or "") + _HIDDEN, text)


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class BindFilter(logging.Filter):
    """Put the ids in force where the line was written on its record."""

    def filter(self, record: logging.LogRecord) -> bool:
        bound = fields()
        for name in ROLE_FIELDS:
            if not hasattr(record, name):
                setattr(record, name, bound.get(name, ""))
        return True


def _one_line(value: object) -> str:
    return " ".join(printable(str(value)).split())


class TextFormatter(logging.Formatter):
    """`12:00:01 INFO  worker  message  action=claim task_id=…`"""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        pairs = _extras(record) | {name: getattr(record, name, "") for name in ROLE_FIELDS}
        tail = " ".join(f"{name}={_one_line(value)}" for name, value in pairs.items() if value not in ("", None))
        # One record is one line, whatever a stranger put into it.
        message = _one_line(record.getMessage())
        line = f"{moment} {record.levelname:<7} {_process['role']:<9} {message}"
        if tail:
            line += f"  {tail}"
        if record.exc_info:
            line += "\n" + printable(self.formatException(record.exc_info))
        return redact(line)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time (UTC), level, logger, role, pid, message, ids, extras, exception."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "role": _process["role"],
            "pid": record.process,
            "message": record.getMessage(),
        }
        entry |= {name: getattr(record, name) for name in ROLE_FIELDS if getattr(record, name, "")}
        entry |= {name: value for name, value in _extras(record).items() if name not in entry}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json_text(_redact_values(entry), default=str)


def _redact_values(value: Any) -> Any:
    """Redact inside strings only, so that what comes out is still JSON."""
    if isinstance(value, dict):
        return {
            name: _HIDDEN if isinstance(inner, str) and _names_a_secret(name) else _redact_values(inner)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_redact_values(inner) for inner in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return redact(printable(str(value)))


def _names_a_secret(name: object) -> bool:
    return bool(_SECRETS.match(f"{name}=x"))


def configuration(log_format: str, level: str, production: bool, secrets: Iterable[str]) -> dict[str, Any]:
    """The LOGGING setting. `secrets` are exact values that must never be printed, whatever surrounds them.

    `log_format` is "text", "json" or "auto": JSON where production logs are collected, text for people.
    """
    if log_format == "auto":
        log_format = "json" if production and not sys.stderr.isatty() else "text"
    _process["secrets"] = tuple(sorted((secret for secret in secrets if len(secret) >= 6), key=len, reverse=True))
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"bind": {"()": BindFilter}},
        "formatters": {"text": {"()": TextFormatter}, "json": {"()": JsonFormatter}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "filters": ["bind"], "formatter": log_format}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django": {"handlers": [], "level": "INFO" if level == "DEBUG" else level, "propagate": True},
            # One line per HTTP request made, and per job: the events say the same, and better.
            **{
                name: {"level": "WARNING"}
                for name in ("httpx", "httpx2", "httpcore", "httpcore2", "celery.app.trace", "celery.worker.strategy")
            },
            **{name: {"level": "WARNING"} for name in ("celery.beat", "uvicorn.error", "uvicorn.access", "asyncio")},
        },
    }
