"""Our exceptions in the protocol's words, one table. Codes and error details are those of a2a-sdk."""

from __future__ import annotations

from a2a.utils.errors import (
    A2AError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from directory.exceptions import AgentNotFound
from tasks.exceptions import (
    ContextMismatch,
    InvalidMessage,
    PushConfigInvalid,
    PushConfigNotFound,
    TaskIsTerminal,
    TaskNotFound,
    TaskNotInState,
)

MEANINGS: dict[type[Exception], type[A2AError]] = {
    AgentNotFound: UnsupportedOperationError,
    ContextMismatch: InvalidParamsError,
    InvalidMessage: InvalidParamsError,
    PushConfigInvalid: InvalidParamsError,
    # The protocol has no name of its own for it.
    PushConfigNotFound: TaskNotFoundError,
    TaskIsTerminal: UnsupportedOperationError,
    TaskNotFound: TaskNotFoundError,
    # Only a cancel can meet it here: everything else reports a state by a name of its own.
    TaskNotInState: TaskNotCancelableError,
}
FORESEEN = tuple(MEANINGS)


def as_a2a_error(error: Exception) -> A2AError:
    """The error that a caller is told for one of FORESEEN; their texts are written for callers."""
    meaning = next(MEANINGS[kind] for kind in type(error).__mro__ if kind in MEANINGS)
    return meaning(str(error))


def invalid_field(field: str, message: str) -> InvalidParamsError:
    """One wrong parameter: `field` as the caller wrote it, for example "message.parts[0]"."""
    return InvalidParamsError(
        f"{field}: {message}" if field else message, data={"errors": [{"field": field, "message": message}]}
    )
