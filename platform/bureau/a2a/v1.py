"""Protocol 1.0 on JSON-RPC: params and results are ProtoJSON of the messages in a2a.proto."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from a2a.types import a2a_pb2 as pb
from a2a.utils.error_handlers import build_error_details
from a2a.utils.errors import A2A_ERROR_REASONS, JSON_RPC_ERROR_CODE_MAP, A2AError
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import Message as ProtoMessage

from bureau.a2a.errors import invalid_field
from bureau.a2a.handler import HANDLER
from bureau.a2a.outbound import STATES
from bureau.a2a.wire import INTERNAL, UNREADABLE, Method, Wire, check_base64, check_required, unreadable

M = TypeVar("M", bound=ProtoMessage)
WORDS = {str(word): pb.TaskState.Name(number) for word, number in STATES.items()}


def _parse(kind: type[M], params: dict[str, Any]) -> M:
    try:
        return ParseDict(params, kind(), ignore_unknown_fields=True)
    except (ParseError, *UNREADABLE) as error:
        raise unreadable(error) from None


def _read(kind: type[M]) -> Callable[[dict[str, Any]], M]:
    def read(params: dict[str, Any]) -> M:
        request = _parse(kind, params)
        check_required(request)
        return request

    return read


def _read_send(params: dict[str, Any]) -> pb.SendMessageRequest:
    request = _parse(pb.SendMessageRequest, params)
    message = request.message
    if not (message.message_id and message.role and message.parts):
        # The walk over all fields costs more than everything else here, and is only needed for its list.
        check_required(request)
    for number, part in enumerate(params["message"]["parts"]):
        # The converter takes an empty list or text for an empty part; that is refused with the other empty ones.
        if isinstance(part, dict):
            check_base64(f"message.parts[{number}].raw", part.get("raw"))
    return request


def _read_list(params: dict[str, Any]) -> pb.ListTasksRequest:
    # The specification's example of a query string (11.5) says `status=working`.
    word = params.get("status")
    if isinstance(word, str) and word in WORDS:
        params = {**params, "status": WORDS[word]}
    request = _parse(pb.ListTasksRequest, params)
    # An unknown name is dropped as an unknown field would be, and the filter with it.
    if not request.status and params.get("status") not in (None, 0, "TASK_STATE_UNSPECIFIED"):
        raise invalid_field("status", "There is no such task state.")
    return request


def _write_send(result: pb.Task | pb.Message) -> dict[str, Any]:
    return {"task" if isinstance(result, pb.Task) else "message": MessageToDict(result)}


def _write_event(event: Any) -> dict[str, Any]:
    written: dict[str, Any] = MessageToDict(to_stream_response(event))
    return written


def _write_list(response: pb.ListTasksResponse) -> dict[str, Any]:
    """All four fields are required, so they are there when they are empty, too."""
    written = {"tasks": [], "nextPageToken": "", "totalSize": 0, "pageSize": 0, **MessageToDict(response)}
    return written


def write_error(error: A2AError) -> dict[str, Any]:
    """The code and details that a2a-sdk gives this error."""
    written: dict[str, Any] = {"code": JSON_RPC_ERROR_CODE_MAP.get(type(error), INTERNAL), "message": error.message}
    if type(error) in A2A_ERROR_REASONS:
        written["data"] = error_details(error)
    return written


def error_details(error: A2AError) -> list[dict[str, Any]]:
    """google.rpc.ErrorInfo, and BadRequest where parameters are wrong."""
    details = build_error_details(error)
    if len(details) > 1:
        # The violations stand in a detail of their own; as metadata, which is a map of strings, they are wrong.
        details[0]["metadata"] = {}
    return details


METHODS = {
    "SendMessage": Method(_read_send, HANDLER.on_message_send, _write_send),
    "SendStreamingMessage": Method(_read_send, HANDLER.on_message_send_stream, _write_event, is_stream=True),
    "GetTask": Method(_read(pb.GetTaskRequest), HANDLER.on_get_task, MessageToDict),
    "ListTasks": Method(_read_list, HANDLER.on_list_tasks, _write_list),
    "CancelTask": Method(_read(pb.CancelTaskRequest), HANDLER.on_cancel_task, MessageToDict),
    "SubscribeToTask": Method(
        _read(pb.SubscribeToTaskRequest),
        HANDLER.on_subscribe_to_task,
        _write_event,
        is_stream=True,
        resume=HANDLER.resume,
    ),
    "CreateTaskPushNotificationConfig": Method(
        _read(pb.TaskPushNotificationConfig), HANDLER.on_create_task_push_notification_config, MessageToDict
    ),
    "GetTaskPushNotificationConfig": Method(
        _read(pb.GetTaskPushNotificationConfigRequest), HANDLER.on_get_task_push_notification_config, MessageToDict
    ),
    "ListTaskPushNotificationConfigs": Method(
        _read(pb.ListTaskPushNotificationConfigsRequest),
        HANDLER.on_list_task_push_notification_configs,
        MessageToDict,
    ),
    "DeleteTaskPushNotificationConfig": Method(
        _read(pb.DeleteTaskPushNotificationConfigRequest),
        HANDLER.on_delete_task_push_notification_config,
        # google.protobuf.Empty.
        lambda nothing: {},
    ),
    "GetExtendedAgentCard": Method(
        _read(pb.GetExtendedAgentCardRequest), HANDLER.on_get_extended_agent_card, MessageToDict
    ),
}
WIRE = Wire("1.0", METHODS, write_error)
