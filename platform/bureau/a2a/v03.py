"""Protocol 0.3 on JSON-RPC: a2a-sdk's types of that version, and its conversions to 1.0 and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from a2a.compat.v0_3 import conversions, types
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP, A2AError, InvalidParamsError
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import ParseError
from google.protobuf.message import Message as ProtoMessage
from pydantic import BaseModel, ValidationError

from bureau.a2a.handler import HANDLER
from bureau.a2a.wire import (
    INTERNAL,
    MOST_VIOLATIONS,
    UNREADABLE,
    Method,
    Wire,
    check_base64,
    check_required,
    unreadable,
)

# The conversion marks only terminal states as final; in 0.3 a stream that ends with a question says so, too.
INTERRUPTED = (types.TaskState.input_required, types.TaskState.auth_required)
CODES = {kind.model_fields["code"].default for kind in get_args(types.A2AError.model_fields["root"].annotation)}

Read = Callable[[dict[str, Any]], ProtoMessage]


def _read(kind: type[BaseModel], to_core: Callable[[Any], ProtoMessage], *, is_complete: bool = True) -> Read:
    """`is_complete`: whether 0.3 requires all that 1.0 does."""
    method = kind.model_fields["method"].default

    def read(params: dict[str, Any]) -> ProtoMessage:
        try:
            # Its id is not used: what is answered gets the id of the call.
            request = to_core(kind.model_validate({"id": 0, "method": method, "params": params}))
        except ValidationError as error:
            raise invalid(error) from None
        except (ParseError, *UNREADABLE) as error:
            raise unreadable(error) from None
        if is_complete:
            check_required(request)
        return request

    return read


def _read_send(kind: type[BaseModel]) -> Read:
    read = _read(kind, conversions.to_core_send_message_request)

    def read_send(params: dict[str, Any]) -> ProtoMessage:
        request = read(params)
        for number, part in enumerate(params["message"]["parts"]):
            if isinstance(part.get("file"), dict):
                check_base64(f"message.parts[{number}].file.bytes", part["file"].get("bytes"))
        return request

    return read_send


def invalid(error: ValidationError, depth: int = 1) -> InvalidParamsError:
    """What is wrong and where (`depth` levels down), in the model's words; what was sent is not repeated."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    places = [(".".join(map(str, each["loc"][depth:])), each["msg"]) for each in found[:MOST_VIOLATIONS]]
    return InvalidParamsError("; ".join(f"{place}: {message}" for place, message in places))


def _write(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _write_task(task: pb.Task) -> dict[str, Any]:
    return _write(conversions.to_compat_task(task))


def _write_send(result: pb.Task | pb.Message) -> dict[str, Any]:
    return _write_task(result) if isinstance(result, pb.Task) else _write(conversions.to_compat_message(result))


def compat_event(item: Any) -> Any:
    """An item of a stream in the types of 0.3."""
    event = conversions.to_compat_stream_response(to_stream_response(item)).result
    if isinstance(event, types.TaskStatusUpdateEvent) and event.status.state in INTERRUPTED:
        event.final = True
    return event


def _write_event(item: Any) -> dict[str, Any]:
    return _write(compat_event(item))


def _write_push_config(config: pb.TaskPushNotificationConfig) -> dict[str, Any]:
    return _write(conversions.to_compat_task_push_notification_config(config))


def write_error(error: A2AError) -> dict[str, Any]:
    """Errors that 0.3 does not know are internal errors to it."""
    code = JSON_RPC_ERROR_CODE_MAP.get(type(error), INTERNAL)
    written: dict[str, Any] = {"code": code if code in CODES else INTERNAL, "message": error.message}
    return written | {"data": error.data} if error.data else written


METHODS = {
    "message/send": Method(_read_send(types.SendMessageRequest), HANDLER.on_message_send, _write_send),
    "message/stream": Method(
        _read_send(types.SendStreamingMessageRequest), HANDLER.on_message_send_stream, _write_event, is_stream=True
    ),
    "tasks/get": Method(
        _read(types.GetTaskRequest, conversions.to_core_get_task_request), HANDLER.on_get_task, _write_task
    ),
    "tasks/cancel": Method(
        _read(types.CancelTaskRequest, conversions.to_core_cancel_task_request), HANDLER.on_cancel_task, _write_task
    ),
    "tasks/resubscribe": Method(
        _read(types.TaskResubscriptionRequest, conversions.to_core_subscribe_to_task_request),
        HANDLER.on_subscribe_to_task,
        _write_event,
        is_stream=True,
        resume=HANDLER.resume,
    ),
    "tasks/pushNotificationConfig/set": Method(
        _read(
            types.SetTaskPushNotificationConfigRequest,
            conversions.to_core_create_task_push_notification_config_request,
        ),
        HANDLER.on_create_task_push_notification_config,
        _write_push_config,
    ),
    "tasks/pushNotificationConfig/get": Method(
        _read(
            types.GetTaskPushNotificationConfigRequest,
            conversions.to_core_get_task_push_notification_config_request,
            is_complete=False,
        ),
        HANDLER.on_get_task_push_notification_config,
        _write_push_config,
    ),
    "tasks/pushNotificationConfig/list": Method(
        _read(
            types.ListTaskPushNotificationConfigRequest,
            conversions.to_core_list_task_push_notification_config_request,
        ),
        HANDLER.on_list_task_push_notification_configs,
        lambda response: [_write_push_config(config) for config in response.configs],
    ),
    "tasks/pushNotificationConfig/delete": Method(
        _read(
            types.DeleteTaskPushNotificationConfigRequest,
            conversions.to_core_delete_task_push_notification_config_request,
        ),
        HANDLER.on_delete_task_push_notification_config,
        lambda nothing: None,
    ),
    "agent/getAuthenticatedExtendedCard": Method(
        _read(types.GetAuthenticatedExtendedCardRequest, conversions.to_core_get_extended_agent_card_request),
        HANDLER.on_get_extended_agent_card,
        lambda card: _write(conversions.to_compat_agent_card(card)),
    ),
}
WIRE = Wire("0.3", METHODS, write_error)
