"""What can go wrong with tasks. The docstring is the default message.

TaskError
├── TaskNotFound          unknown, or somebody else's: the caller is told the same
├── TaskNotInState        somebody moved it first
│   └── Superseded        a worker's claim is over: canceled, or the lease went to another
├── TaskIsTerminal        it has ended, and an ended task takes no message
├── QuestionIsClosed      what was to be answered is answered already
├── ContextMismatch       the task belongs to another context
├── InvalidMessage        the content cannot be taken
├── PushConfigNotFound    unknown, or of a task of somebody else's
└── PushConfigInvalid     its address or its secrets cannot be used
"""


class TaskError(Exception):
    """The task could not do that."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (self.__doc__ or "").strip())


class TaskNotFound(TaskError):
    """There is no such task."""


class TaskNotInState(TaskError):
    """The task is no longer in a state that allows this."""


class Superseded(TaskNotInState):
    """This claim on the task is over."""


class Unread(TaskNotInState):
    """A message came in that the turn has not seen, so its result does not stand."""


class TaskIsTerminal(TaskError):
    """The task has ended and takes no more messages; send a new one that refers to it."""


class QuestionIsClosed(TaskError):
    """This question is no longer open; somebody has answered it already."""


class ContextMismatch(TaskError):
    """The task belongs to another context."""


class InvalidMessage(TaskError):
    """The message cannot be taken."""


class PushConfigNotFound(TaskError):
    """There is no such push configuration."""


class PushConfigInvalid(TaskError):
    """The push configuration cannot be used."""
