"""What the exceptions of the SDK's client mean: one of our errors each, whatever a stranger's answer was."""

from typing import Any

from a2a.client.errors import A2AClientError
from a2a.utils import errors as wire_errors

from directory.exceptions import (
    InvalidAnswer,
    MediaTypeNotSupported,
    OperationNotSupported,
    ProtocolError,
    RemoteError,
    RemoteTaskNotCancelable,
    RemoteTaskNotFound,
    RequestRefused,
    ServerFailed,
    VersionNotSupported,
)
from directory.http import Answer, explain, failed_answer, status_error
from directory.untrusted import clean_line

ERRORS: dict[type[Exception], type[RemoteError]] = {
    wire_errors.TaskNotFoundError: RemoteTaskNotFound,
    wire_errors.TaskNotCancelableError: RemoteTaskNotCancelable,
    wire_errors.PushNotificationNotSupportedError: OperationNotSupported,
    wire_errors.UnsupportedOperationError: OperationNotSupported,
    wire_errors.MethodNotFoundError: OperationNotSupported,
    wire_errors.ExtendedAgentCardNotConfiguredError: OperationNotSupported,
    wire_errors.ExtensionSupportRequiredError: OperationNotSupported,
    wire_errors.ContentTypeNotSupportedError: MediaTypeNotSupported,
    wire_errors.VersionNotSupportedError: VersionNotSupported,
    wire_errors.InvalidParamsError: RequestRefused,
    wire_errors.InvalidRequestError: RequestRefused,
    wire_errors.JSONParseError: RequestRefused,
    wire_errors.InternalError: ServerFailed,
    wire_errors.InvalidAgentResponseError: ServerFailed,
}
BY_REASON = wire_errors.A2A_REASON_TO_ERROR
BY_CODE = {code: kind for kind, code in wire_errors.JSON_RPC_ERROR_CODE_MAP.items()}
# What a REST server means that says no more: 0.3 has nothing but these.
BY_STATUS: dict[int, type[RemoteError]] = {
    404: OperationNotSupported,
    405: OperationNotSupported,
    409: RemoteTaskNotCancelable,
    415: MediaTypeNotSupported,
    501: OperationNotSupported,
}


def explained(error: Exception, *, about_task: bool, is_rest: bool) -> RemoteError:
    """The error of ours. The SDK's parsers meet a stranger's data, and may raise anything.

    `about_task`: the call named a task, so that a bare 404 of a REST server means that task.
    """
    if isinstance(error, RemoteError):
        return error
    answer = failed_answer(error)
    if answer and type(error) in {A2AClientError, wire_errors.MethodNotFoundError}:
        return _from_answer(answer, about_task=about_task, is_rest=is_rest)
    if type(error) in ERRORS:
        return ERRORS[type(error)](_said(str(error)))
    if isinstance(error, NotImplementedError):
        return OperationNotSupported("That version of the protocol has no such operation.")
    return explain(error) or _unknown(error)


def _from_answer(answer: Answer, *, about_task: bool, is_rest: bool) -> RemoteError:
    """By what came with a failing status: the form of 1.0, that of JSON-RPC, or that of 0.3."""
    try:
        document = answer.json()
    except InvalidAnswer:
        document = None
    document = document if isinstance(document, dict) else {}
    known = _from_document(document)
    if known:
        return known
    kind = BY_STATUS.get(answer.status) if is_rest else None
    if kind is None:
        return status_error(answer.status, answer.headers)
    message = document.get("message")
    text = _said(message) if isinstance(message, str) else ""
    if answer.status == 404 and about_task:
        return RemoteTaskNotFound(text, is_bare=not text)
    return kind(text)


def _from_document(document: dict[str, Any]) -> RemoteError | None:
    error = document.get("error")
    if not isinstance(error, dict):
        return None
    details = error.get("details")
    reasons = [item.get("reason") for item in details if isinstance(item, dict)] if isinstance(details, list) else []
    code = error.get("code")
    by_code = BY_CODE.get(code) if isinstance(code, int) else None
    found = next((BY_REASON[reason] for reason in reasons if isinstance(reason, str) and reason in BY_REASON), by_code)
    known = ERRORS.get(found) if found else None
    return known(_said(str(error.get("message") or ""))) if known else None


def _said(text: str) -> str:
    text = clean_line(text, 200)
    return f"The remote agent says: {text}" if text else ""


def _unknown(error: Exception) -> RemoteError:
    text = str(error)
    if isinstance(error, A2AClientError) and text and not text.startswith(("Invalid", "JSON Decode", "SSE")):
        return ProtocolError(_said(text))
    return InvalidAnswer(f"The remote agent's answer cannot be understood ({type(error).__name__}).")
