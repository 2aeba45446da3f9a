"""Which task and context a log line is about, bound once and carried by every line below.

The formatting lives in `bureau.logs`; only this part is needed by every app.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from uuid import UUID

_bound: ContextVar[dict[str, str]] = ContextVar("bureau_log_fields")


def fields() -> dict[str, str]:
    """What is bound here and now, for example {"task_id": "…", "context_id": "…"}."""
    return _bound.get({})


@contextmanager
def bind(*, task_id: str | UUID | None = None, context_id: str | UUID | None = None) -> Iterator[None]:
    """Let every log line inside the block carry these ids; None leaves the outer one in force."""
    given = {"task_id": task_id, "context_id": context_id}
    token = _bound.set({**fields(), **{name: str(value) for name, value in given.items() if value is not None}})
    try:
        yield
    finally:
        _bound.reset(token)
