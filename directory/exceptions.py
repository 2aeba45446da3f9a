"""What can go wrong in the directory. The docstring is the default message.

DirectoryError
├── AgentNotFound  ClientNameTaken  AgentExists  SlugTaken  CardChanged  AgentInUse  NotRemote  RevisionNotPending
├── CredentialInvalid  CredentialUnreadable
├── AgentUnavailable
│   ├── AgentDisabled  AgentQuarantined  CircuitOpen
├── DelegationRefused
│   ├── DelegationDenied  LoopDetected  HopLimitReached
└── RemoteError
    ├── AddressRefused  RedirectRefused  NotTrusted
    ├── Unreachable  TimedOut  ConnectionLost  Throttled  ServerFailed
    ├── AccessDenied  InvalidAnswer
    ├── CardNotFound  CardInvalid  SignatureInvalid  NoCommonInterface
    └── ProtocolError
        └── RemoteTaskNotFound  RemoteTaskNotCancelable  OperationNotSupported  ...
"""

from datetime import datetime


class DirectoryError(Exception):
    """The directory could not do that."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (self.__doc__ or "").strip())


class AgentNotFound(DirectoryError):
    """There is no such agent here, or it is disabled."""


class ClientNameTaken(DirectoryError):
    """An API client of that name exists already."""


class AgentExists(DirectoryError):
    """That agent is in the directory already."""


class SlugTaken(DirectoryError):
    """Another agent has that short name."""


class CardChanged(DirectoryError):
    """The card is not the one that was looked at: look at it again."""


class AgentInUse(DirectoryError):
    """Tasks refer to that agent, so it stays on record; disable it instead."""


class NotRemote(DirectoryError):
    """That is not a remote agent."""


class RevisionNotPending(DirectoryError):
    """That revision has been decided on already, or a newer one has taken its place."""


class CredentialInvalid(DirectoryError):
    """That credential cannot be used."""


class CredentialUnreadable(DirectoryError):
    """The stored credential cannot be decrypted with this secret key; enter it again."""


# --- Whether an agent may be asked ---------------------------------------------------------------


class AgentUnavailable(DirectoryError):
    """This agent takes no tasks now."""


class AgentDisabled(AgentUnavailable):
    """This agent is disabled."""


class AgentQuarantined(AgentUnavailable):
    """This agent is in quarantine until an operator has looked at its changed card."""


class CircuitOpen(AgentUnavailable):
    """This agent failed repeatedly and is left alone for a while."""

    def __init__(self, message: str = "", retry_at: datetime | None = None) -> None:
        super().__init__(message)
        self.retry_at = retry_at


class DelegationRefused(DirectoryError):
    """This may not be passed on."""


class DelegationDenied(DelegationRefused):
    """The rules of this directory forbid passing this on."""


class LoopDetected(DelegationRefused):
    """This request has come back to an agent that passed it on before."""


class HopLimitReached(DelegationRefused):
    """This request has been passed on too many times."""


# --- What a remote agent, or the way there, can do wrong -----------------------------------------


class RemoteError(DirectoryError):
    """The remote agent could not be asked."""

    # The same call may succeed later, unchanged.
    can_retry = False
    # The remote agent may have acted on it: sending again may do it twice.
    may_have_arrived = False
    # Says something about the health of the remote agent, and counts against it.
    is_fault = True


class AddressRefused(RemoteError):
    """That address may not be contacted from here."""

    is_fault = False


class RedirectRefused(RemoteError):
    """The server sent us to another place, which is not followed."""


class NotTrusted(RemoteError):
    """The server could not prove that it is who its address says."""


class Unreachable(RemoteError):
    """The server could not be reached."""

    can_retry = True


class TimedOut(RemoteError):
    """The server did not answer in time."""

    can_retry = True
    may_have_arrived = True


class ConnectionLost(RemoteError):
    """The connection broke before the answer was complete."""

    can_retry = True
    may_have_arrived = True


class Throttled(RemoteError):
    """The server asks to be called less often."""

    can_retry = True
    is_fault = False

    def __init__(self, message: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ServerFailed(RemoteError):
    """The server failed to handle the request."""

    can_retry = True
    may_have_arrived = True


class AccessDenied(RemoteError):
    """The server wants a credential, or refuses the one it was given."""

    is_fault = False


class InvalidAnswer(RemoteError):
    """The server's answer is not what the protocol says."""

    may_have_arrived = True


class CardNotFound(RemoteError):
    """There is no agent card at that address."""


class CardInvalid(RemoteError):
    """What is there is not a usable agent card."""


class SignatureInvalid(RemoteError):
    """The signature of the agent card does not fit the card."""


class NoCommonInterface(RemoteError):
    """The agent speaks no protocol that is spoken here."""

    is_fault = False


class ProtocolError(RemoteError):
    """The remote agent refused the request, in the words of the protocol."""

    is_fault = False


class RemoteTaskNotFound(ProtocolError):
    """The remote agent knows no such task."""

    def __init__(self, message: str = "", *, is_bare: bool = False) -> None:
        super().__init__(message)
        # Nothing but HTTP 404: the address itself may be what is not there.
        self.is_bare = is_bare


class RemoteTaskNotCancelable(ProtocolError):
    """The remote agent cannot cancel that task any more."""


class OperationNotSupported(ProtocolError):
    """The remote agent does not offer that operation."""


class VersionNotSupported(ProtocolError):
    """The remote agent does not speak that version of the protocol."""


class MediaTypeNotSupported(ProtocolError):
    """The remote agent does not take content of that type."""


class RequestRefused(ProtocolError):
    """The remote agent found the request invalid."""
