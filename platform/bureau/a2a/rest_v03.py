"""Protocol 0.3 on HTTP+JSON: ProtoJSON of that version's a2a.proto, below `v1/`. It has no list of tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb03
from a2a.compat.v0_3 import conversions, types
from a2a.compat.v0_3.proto_utils import FromProto, ToProto
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP, A2AError
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import Message as ProtoMessage
from pydantic import ValidationError

from bureau.a2a.rest_errors import Refused
from bureau.a2a.rest_wire import RestWire, Route, route
from bureau.a2a.v03 import METHODS, compat_event, invalid
from bureau.a2a.v03 import WIRE as RPC
from bureau.a2a.wire import INTERNAL, UNREADABLE, check_required, unreadable

M = TypeVar("M", bound=ProtoMessage)

# What this version calls otherwise.
NAMES = {"message": "request", "parts": "content"}
CONFIGS = "v1/tasks/{id}/pushNotificationConfigs"


def _read(kind: type[M], to_core: Callable[[M, dict[str, Any]], ProtoMessage]) -> Callable[[dict[str, Any]], Any]:
    def read(params: dict[str, Any]) -> ProtoMessage:
        try:
            request = to_core(ParseDict(params, kind(), ignore_unknown_fields=True), params)
        except ValidationError as error:
            raise invalid(error) from None
        except (ParseError, *UNREADABLE) as error:
            raise unreadable(error) from None
        check_required(request, NAMES)
        return request

    return read


def _send(request: pb03.SendMessageRequest, params: dict[str, Any]) -> ProtoMessage:
    old = FromProto.message_send_params(request)
    found: ProtoMessage = conversions.to_core_send_message_request(types.SendMessageRequest(id=0, params=old))
    return found


def _create_config(request: pb03.CreateTaskPushNotificationConfigRequest, params: dict[str, Any]) -> ProtoMessage:
    given = request.config
    if "config" not in params:
        # The body may be the configuration alone, as a2a.proto has it; a2a-sdk sends the whole request.
        given = ParseDict(params, pb03.TaskPushNotificationConfig(), ignore_unknown_fields=True)
    config = FromProto.push_notification_config(given.push_notification_config)
    config.id = config.id or request.config_id or None
    old = types.TaskPushNotificationConfig(task_id=params["id"], push_notification_config=config)
    found: ProtoMessage = conversions.to_core_create_task_push_notification_config_request(
        types.SetTaskPushNotificationConfigRequest(id=0, params=old)
    )
    return found


def _json(message: ProtoMessage) -> dict[str, Any]:
    written: dict[str, Any] = MessageToDict(message)
    return written


def _write_task(task: pb.Task) -> dict[str, Any]:
    return _json(ToProto.task(conversions.to_compat_task(task)))


def _write_send(result: pb.Task | pb.Message) -> dict[str, Any]:
    if isinstance(result, pb.Task):
        return _json(ToProto.task_or_message(conversions.to_compat_task(result)))
    return _json(ToProto.task_or_message(conversions.to_compat_message(result)))


def _write_event(item: Any) -> dict[str, Any]:
    return _json(ToProto.stream_response(compat_event(item)))


def _proto_config(config: pb.TaskPushNotificationConfig) -> pb03.TaskPushNotificationConfig:
    return ToProto.task_push_notification_config(conversions.to_compat_task_push_notification_config(config))


def _write_config(config: pb.TaskPushNotificationConfig) -> dict[str, Any]:
    return _json(_proto_config(config))


def _write_configs(response: pb.ListTaskPushNotificationConfigsResponse) -> dict[str, Any]:
    configs = [_proto_config(config) for config in response.configs]
    return _json(pb03.ListTaskPushNotificationConfigResponse(configs=configs))


def _renamed(read: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    return lambda params: read({"id": params["id"], "pushNotificationConfigId": params["configId"]})


def _route(
    verb: str,
    path: str,
    name: str,
    write: Callable[[Any], Any],
    *query: str,
    read: Callable[[dict[str, Any]], Any] | None = None,
) -> Route:
    method = METHODS[name]
    return route(verb, path, name, method._replace(write=write, read=read or method.read), *query)


SEND = _read(pb03.SendMessageRequest, _send)
CREATE = _read(pb03.CreateTaskPushNotificationConfigRequest, _create_config)
PUSH = "tasks/pushNotificationConfig/"
GET_CONFIG = _renamed(METHODS[PUSH + "get"].read)
DELETE_CONFIG = _renamed(METHODS[PUSH + "delete"].read)

ROUTES = (
    _route("POST", "v1/message:send", "message/send", _write_send, read=SEND),
    _route("POST", "v1/message:stream", "message/stream", _write_event, read=SEND),
    _route("POST", "v1/tasks/{id}:cancel", "tasks/cancel", _write_task),
    _route("POST", "v1/tasks/{id}:subscribe", "tasks/resubscribe", _write_event),
    _route("GET", "v1/tasks/{id}:subscribe", "tasks/resubscribe", _write_event),
    _route("GET", "v1/tasks/{id}", "tasks/get", _write_task, "historyLength"),
    _route("POST", CONFIGS, PUSH + "set", _write_config, read=CREATE),
    _route("GET", CONFIGS, PUSH + "list", _write_configs),
    _route("GET", CONFIGS + "/{configId}", PUSH + "get", _write_config, read=GET_CONFIG),
    _route("DELETE", CONFIGS + "/{configId}", PUSH + "delete", lambda _: {}, read=DELETE_CONFIG),
    # Some clients read it as ProtoJSON, others as at its well-known address: it has both forms at once there, too.
    _route("GET", "v1/card", "agent/getAuthenticatedExtendedCard", agent_card_to_dict),
)


def write_error(error: A2AError) -> dict[str, Any]:
    """0.3 leaves errors on HTTP open: a2a-sdk's clients look for the type, a2a-js's for the code."""
    code = JSON_RPC_ERROR_CODE_MAP.get(type(error), INTERNAL)
    return {"code": code, "type": type(error).__name__, "message": error.message}


def write_refusal(why: Refused) -> dict[str, Any]:
    return {"type": why.name, "message": why.message}


WIRE = RestWire(RPC.version, "application/json", 1, ROUTES, write_error, write_refusal)
