"""Local implementations by name. `Agent.handler` holds the name."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, TypeVar

from agents.exceptions import HandlerMissing

if TYPE_CHECKING:
    from agents.outcomes import Outcome
    from agents.turn import Turn


class Handler(ABC):
    """An agent's implementation. One instance serves all turns of a process, so it keeps no state."""

    name: ClassVar[str]
    takes_sub_plans: ClassVar[bool] = False
    """Whether a coordinator may give it a part of a mission."""
    takes_requests: ClassVar[bool] = False
    """Whether the front door may pass a whole request on to it, though nobody has named it."""

    @abstractmethod
    def run(self, turn: "Turn") -> "Outcome":
        """Take one turn. May raise Stopped (from `turn.check()`), which is not an error."""


H = TypeVar("H", bound=type[Handler])
_handlers: dict[str, Handler] = {}


def register(handler: H) -> H:
    """Class decorator: make the handler known under its `name`."""
    _handlers[handler.name] = handler()
    return handler


def add_handler(handler: Handler) -> None:
    """Make an instance known under its `name`."""
    _handlers[handler.name] = handler


def get_handler(name: str) -> Handler:
    """Raises HandlerMissing."""
    try:
        return _handlers[name]
    except KeyError:
        raise HandlerMissing(f"No implementation named {name!r} is installed on this worker.") from None


def handler_names() -> list[str]:
    return sorted(_handlers)


def takes_requests(name: str) -> bool:
    """Whether a handler of that name is installed, and offers itself for whole requests."""
    return name in _handlers and _handlers[name].takes_requests


def takes_sub_plans(name: str) -> bool:
    """Whether a handler of that name is installed, and may be given a part of a mission."""
    return name in _handlers and _handlers[name].takes_sub_plans
