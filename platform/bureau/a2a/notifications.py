"""Push notifications on the wire: configurations in and out, and what is sent for an event."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from a2a.compat.v0_3 import conversions
from a2a.server.context import ServerCallContext
from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import A2A_JSON_MEDIA_TYPE, PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0, VERSION_HEADER
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import MessageToDict

from bureau.a2a import jsonrpc
from bureau.a2a.outbound import Ids, parts_of, read_files, to_task, to_update
from tasks.models import PushConfig, Task
from tasks.outbox import Delivery
from tasks.push import PushDraft, credentials_of, token_of
from tasks.snapshots import read_views

# In ServerCallContext.state: the version that the caller speaks.
VERSION_STATE = "version"
TOKEN_HEADER = "X-A2A-Notification-Token"  # noqa: S105 - the name of the header


class Parcel(NamedTuple):
    """One HTTP request to make. Its text form is not to be logged: it holds credentials."""

    url: str
    headers: dict[str, str]
    body: bytes


def version_of(context: ServerCallContext) -> str:
    version: str = context.state.get(VERSION_STATE, PROTOCOL_VERSION_1_0)
    return version


def draft_of(config: pb.TaskPushNotificationConfig, version: str) -> PushDraft:
    """What a caller who speaks that version asks for."""
    return PushDraft(
        config_id=config.id,
        url=config.url,
        version=version,
        token=config.token,
        scheme=config.authentication.scheme,
        credentials=config.authentication.credentials,
    )


def to_config(config: PushConfig) -> pb.TaskPushNotificationConfig:
    """As its owner sees it: credentials are not shown again, the token, by which pushes are told apart, is."""
    found = pb.TaskPushNotificationConfig(
        id=config.config_id, task_id=str(config.task_id), url=config.url, token=token_of(config)
    )
    if config.scheme:
        found.authentication.scheme = config.scheme
    return found


def pack(delivery: Delivery) -> Parcel:
    """What to send where. Raises CredentialUnreadable."""
    config = delivery.config
    is_old = config.version == PROTOCOL_VERSION_0_3
    body = _task_03(config.task) if is_old else _event(config.task, delivery)
    headers = {
        # 0.3 names no media type of its own.
        "Content-Type": "application/json" if is_old else A2A_JSON_MEDIA_TYPE,
        VERSION_HEADER: config.version,
    }
    if token := token_of(config):
        headers[TOKEN_HEADER] = token
    if config.scheme and (secret := credentials_of(config)):
        headers["Authorization"] = f"{config.scheme} {secret}"
    return Parcel(config.url, headers, jsonrpc.dumps(body))


def _event(task: Task, delivery: Delivery) -> dict[str, Any]:
    """The same object that a stream has for this event."""
    ids = Ids(str(task.pk), _context_key(task))
    contents = read_files(parts_of(delivery.event))
    written: dict[str, Any] = MessageToDict(to_stream_response(to_update(delivery.event, ids, contents)))
    return written


def _task_03(task: Task) -> dict[str, Any]:
    """0.3 sends the whole task, as it is by now."""
    view = read_views([UUID(str(task.pk))], task.owner)[0]
    written: dict[str, Any] = conversions.to_compat_task(to_task(view)).model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    return written


def _context_key(task: Task) -> str:
    return task.context.key
