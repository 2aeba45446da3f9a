"""What can go wrong while an agent works. The docstring is the default message."""

from agents.pricing import Usage

NO_USAGE = Usage()
# Asking the same again would get the same.
FINAL_KINDS = ("auth", "bad_request", "unreadable", "declined", "truncated", "invalid")


class AgentError(Exception):
    """The agent could not do that."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (self.__doc__ or "").strip())


class Stopped(AgentError):
    """The turn is over before its end: canceled, taken over, or the worker is shutting down."""


class HandlerMissing(AgentError):
    """No implementation of that name is installed."""


class BudgetExhausted(AgentError):
    """The next call to the model could go beyond what this mission may take.

    `is_closed`: a person has decided that there are to be no more.
    """

    def __init__(self, message: str = "", *, is_closed: bool = False) -> None:
        super().__init__(message)
        self.is_closed = is_closed


class ToolError(AgentError):
    """The tool could not do that. `error_class` is a short stable word such as `file_not_found`."""

    def __init__(self, error_class: str, message: str) -> None:
        super().__init__(message)
        self.error_class = error_class


class ModelError(AgentError):
    """The model gave no usable answer.

    `kind`: timeout, unreachable, rate_limited, overloaded, server, auth, bad_request, unreadable, declined,
    truncated, invalid, or budget: a person wants no more calls. `usage` and `calls` are what it cost all the same.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        usage: Usage = NO_USAGE,
        *,
        is_final: bool | None = None,
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.usage = usage
        self.model = ""
        self.calls = 0
        self.is_final = kind in FINAL_KINDS if is_final is None else is_final
        self.retry_after = retry_after
