"""Protocol 1.0 on HTTP+JSON: bodies and answers are those of JSON-RPC without its envelope."""

from __future__ import annotations

from typing import Any

from a2a.utils.constants import A2A_JSON_MEDIA_TYPE
from a2a.utils.errors import A2AError

from bureau.a2a.rest_errors import Refused, meaning_of
from bureau.a2a.rest_wire import RestWire, Route, route
from bureau.a2a.v1 import METHODS, error_details
from bureau.a2a.v1 import WIRE as RPC

CONFIGS = "tasks/{taskId}/pushNotificationConfigs"
FILTERS = ("contextId", "status", "statusTimestampAfter", "includeArtifacts?", "historyLength")
PAGE = ("pageSize", "pageToken")


def _route(verb: str, path: str, name: str, *query: str) -> Route:
    return route(verb, path, name, METHODS[name], *query)


ROUTES = (
    _route("POST", "message:send", "SendMessage"),
    _route("POST", "message:stream", "SendStreamingMessage"),
    _route("POST", "tasks/{id}:cancel", "CancelTask"),
    _route("POST", "tasks/{id}:subscribe", "SubscribeToTask"),
    _route("GET", "tasks/{id}:subscribe", "SubscribeToTask", "tenant"),
    _route("GET", "tasks/{id}", "GetTask", "historyLength", "tenant"),
    _route("GET", "tasks", "ListTasks", *FILTERS, *PAGE, "tenant"),
    _route("POST", CONFIGS, "CreateTaskPushNotificationConfig"),
    _route("GET", CONFIGS, "ListTaskPushNotificationConfigs", *PAGE, "tenant"),
    _route("GET", CONFIGS + "/{id}", "GetTaskPushNotificationConfig", "tenant"),
    _route("DELETE", CONFIGS + "/{id}", "DeleteTaskPushNotificationConfig", "tenant"),
    _route("GET", "extendedAgentCard", "GetExtendedAgentCard", "tenant"),
)


def write_error(error: A2AError) -> dict[str, Any]:
    """As google.rpc.Status, in the form of AIP-193."""
    meaning = meaning_of(error)
    status: dict[str, Any] = {"code": meaning.http_code, "status": meaning.grpc_status, "message": error.message}
    details = error_details(error)
    # JSON-RPC has a code for what has no reason, such as a body that is no JSON.
    details[0]["reason"] = meaning.reason
    return {"error": status | {"details": details}}


def write_refusal(why: Refused) -> dict[str, Any]:
    return {"error": {"code": why.status, "status": why.name, "message": why.message}}


WIRE = RestWire(RPC.version, A2A_JSON_MEDIA_TYPE, 2, ROUTES, write_error, write_refusal)
