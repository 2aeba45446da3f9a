"""The OpenAPI description of HTTP+JSON 1.0: paths from the table of routes, schemas from the protocol's own messages.

drf-spectacular puts the document together; what it would find out from views and serializers is known here.
"""

from __future__ import annotations

import re
from typing import Any

from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import A2A_JSON_MEDIA_TYPE, VERSION_HEADER
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.plumbing import build_root_object
from google.api import field_behavior_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message as ProtoMessage

from bureau.a2a import rest_v1
from bureau.a2a.rest_wire import Route

Schema = dict[str, Any]

BODIES: dict[str, type[ProtoMessage]] = {
    "SendMessage": pb.SendMessageRequest,
    "SendStreamingMessage": pb.SendMessageRequest,
    "CreateTaskPushNotificationConfig": pb.TaskPushNotificationConfig,
}
# Where none is named, a stream of StreamResponse.
ANSWERS: dict[str, type[ProtoMessage]] = {
    "SendMessage": pb.SendMessageResponse,
    "GetTask": pb.Task,
    "ListTasks": pb.ListTasksResponse,
    "CancelTask": pb.Task,
    "CreateTaskPushNotificationConfig": pb.TaskPushNotificationConfig,
    "GetTaskPushNotificationConfig": pb.TaskPushNotificationConfig,
    "ListTaskPushNotificationConfigs": pb.ListTaskPushNotificationConfigsResponse,
    "GetExtendedAgentCard": pb.AgentCard,
}
SUMMARIES = {
    "SendMessage": "Send a message, and wait for its task to end or to need you",
    "SendStreamingMessage": "Send a message, and follow its task",
    "GetTask": "One of your tasks",
    "ListTasks": "Your tasks, newest status first",
    "CancelTask": "Cancel a task",
    "SubscribeToTask": "Follow a task that has not ended",
    "CreateTaskPushNotificationConfig": "Be told of a task's events by push",
    "GetTaskPushNotificationConfig": "One push configuration",
    "ListTaskPushNotificationConfigs": "A task's push configurations",
    "DeleteTaskPushNotificationConfig": "Be told no more",
    "GetExtendedAgentCard": "The agent's card, for callers with a credential",
}
ERRORS = {
    "400": "The request can't be taken; `details` say why.",
    "401": "No credentials, or wrong ones.",
    "403": "These credentials are not for this.",
    "404": "There is no such task, for you.",
    "415": "The media type is not taken.",
    "429": "Too many requests.",
}
QUERY: dict[str, Schema] = {
    "contextId": {"type": "string"},
    "status": {"type": "string", "enum": list(pb.TaskState.keys())},
    "statusTimestampAfter": {"type": "string", "format": "date-time"},
    "includeArtifacts": {"type": "boolean"},
    "historyLength": {"type": "integer", "format": "int32", "minimum": 0},
    "pageSize": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 100},
    "pageToken": {"type": "string"},
    "tenant": {"type": "string", "description": "An agent, by its name in addresses."},
}
SCALARS: dict[int, Schema] = {
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_BYTES: {"type": "string", "format": "byte"},
    FieldDescriptor.TYPE_DOUBLE: {"type": "number"},
    FieldDescriptor.TYPE_INT32: {"type": "integer", "format": "int32"},
    FieldDescriptor.TYPE_STRING: {"type": "string"},
}
WELL_KNOWN: dict[str, Schema] = {
    "google.protobuf.Struct": {"type": "object"},
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Value": {},
}
# What an answer says that the next request may be about.
TASK_ID = {"SendMessage": "task/id", "CancelTask": "id", "GetTask": "id"}
ABOUT_A_TASK = {
    "GetTask": "id",
    "CancelTask": "id",
    "SubscribeToTask": "id",
    "CreateTaskPushNotificationConfig": "taskId",
    "ListTaskPushNotificationConfigs": "taskId",
}
ABOUT_A_CONFIG = ("GetTaskPushNotificationConfig", "DeleteTaskPushNotificationConfig")
STATUS: Schema = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "integer"},
                "status": {"type": "string"},
                "message": {"type": "string"},
                "details": {"type": "array", "items": {"type": "object"}},
            },
            "required": ["code", "status", "message"],
        }
    },
    "required": ["error"],
}


class Generator(SchemaGenerator):
    """Takes the place of what drf-spectacular would look for in the URL configuration."""

    def get_schema(self, request: Any = None, public: bool = False) -> Schema:
        schemas: Schema = {"Status": STATUS}
        paths: Schema = {}
        for route in rest_v1.ROUTES:
            paths.setdefault(f"/{route.path}", {})[route.verb.lower()] = _operation(route, schemas)
        components = {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        }
        root: Schema = build_root_object(paths=paths, components=components, webhooks=None, version="")
        return root | {
            "servers": [
                {"url": "/a2a", "description": "The front door"},
                {"url": "/a2a/{agent}", "description": "One agent", "variables": {"agent": {"default": "assistant"}}},
            ],
            "security": [{"bearer": []}, {"apiKey": []}],
        }


def document() -> Schema:
    """The whole description."""
    found: Schema = Generator().get_schema(public=True)  # type: ignore[no-untyped-call]
    return found


def _operation(route: Route, schemas: Schema) -> Schema:
    names = re.findall(r"{(\w+)}", route.path)
    found: Schema = {
        "operationId": route.name + ("ByGet" if route.name == "SubscribeToTask" and route.verb == "GET" else ""),
        "summary": SUMMARIES[route.name],
        "parameters": [
            {"name": VERSION_HEADER, "in": "header", "required": True, "schema": {"type": "string", "const": "1.0"}},
            *({"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names),
            *(
                {"name": name, "in": "query", "schema": QUERY[name]}
                for name in (word.rstrip("?") for word in route.query)
            ),
        ],
        "responses": {"200": _answer(route, schemas), **_errors()},
    }
    if links := _links(route.name):
        found["responses"]["200"]["links"] = links
    if route.method.resume:
        found["parameters"].append({"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}})
    if route.name in BODIES:
        body = _without(message_schema(BODIES[route.name].DESCRIPTOR, schemas), names, schemas)
        content = {kind: {"schema": body} for kind in (A2A_JSON_MEDIA_TYPE, "application/json")}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _links(name: str) -> Schema:
    """What can be done next with what an operation answers."""
    if name == "CreateTaskPushNotificationConfig":
        known = {"taskId": "$response.body#/taskId", "id": "$response.body#/id"}
        return {next_: {"operationId": next_, "parameters": known} for next_ in ABOUT_A_CONFIG}
    if name == "ListTasks":
        page = {"pageToken": "$response.body#/nextPageToken"}
        return {"NextPage": {"operationId": name, "parameters": page}}
    if name not in TASK_ID:
        return {}
    key = f"$response.body#/{TASK_ID[name]}"
    return {next_: {"operationId": next_, "parameters": {field: key}} for next_, field in ABOUT_A_TASK.items()}


def _without(reference: Schema, names: list[str], schemas: Schema) -> Schema:
    """What the address names need not stand in the body."""
    schema = schemas[reference["$ref"].rsplit("/", 1)[1]]
    if not set(names) & set(schema.get("required", [])):
        return reference
    short: Schema = schema | {"required": [name for name in schema["required"] if name not in names]}
    return short


def _answer(route: Route, schemas: Schema) -> Schema:
    if route.name in ANSWERS:
        schema = message_schema(ANSWERS[route.name].DESCRIPTOR, schemas)
        return {"description": "The result.", "content": {A2A_JSON_MEDIA_TYPE: {"schema": schema}}}
    if not route.method.is_stream:
        return {"description": "Done.", "content": {A2A_JSON_MEDIA_TYPE: {"schema": {"type": "object"}}}}
    item = message_schema(pb.StreamResponse.DESCRIPTOR, schemas)
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": item}
    event = {
        "type": "object",
        "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": data},
        "required": ["data"],
    }
    text = "Server-sent events; the data of each is a StreamResponse."
    return {"description": text, "content": {"text/event-stream": {"schema": event}}}


def _errors() -> Schema:
    content = {A2A_JSON_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Status"}}}
    return {status: {"description": text, "content": content} for status, text in ERRORS.items()}


def message_schema(message: Any, schemas: Schema) -> Schema:
    """A reference to the ProtoJSON schema of a message (a descriptor); it and what it needs are put into `schemas`."""
    if message.full_name in WELL_KNOWN:
        return WELL_KNOWN[message.full_name]
    reference = {"$ref": f"#/components/schemas/{message.name}"}
    if message.name in schemas:
        return reference
    # Reserved before the fields are looked at: messages may hold themselves.
    found: Schema = {"type": "object", "title": message.name}
    schemas[message.name] = found
    found["properties"] = {field.json_name: _field(field, schemas) for field in message.fields}
    if required := [field.json_name for field in message.fields if _is_required(field)]:
        found["required"] = required
    choices = [[{"required": [f.json_name]} for f in oneof.fields] for oneof in message.oneofs if len(oneof.fields) > 1]
    if choices:
        found["oneOf"] = choices[0]
    return reference


def _field(field: FieldDescriptor, schemas: Schema) -> Schema:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return {"type": "object", "additionalProperties": _field(kind.fields_by_name["value"], schemas)}
    if kind is not None:
        item = message_schema(kind, schemas)
    elif field.enum_type is not None:
        item = {"type": "string", "enum": [value.name for value in field.enum_type.values]}
    else:
        item = SCALARS[field.type]
    return {"type": "array", "items": item} if field.is_repeated else item


def _is_required(field: FieldDescriptor) -> bool:
    behaviour = field.GetOptions().Extensions[field_behavior_pb2.field_behavior]
    return field_behavior_pb2.REQUIRED in behaviour
