"""The shapes of a message: as events carry it, and as a row that is written with the move it belongs to."""

import uuid
from datetime import datetime
from typing import Any

from django.utils import timezone

from tasks.content import Incoming
from tasks.models import Message
from tasks.sql import Insert


def wire_message(role: str, content: Incoming) -> dict[str, Any]:
    """The message as events and status carry it: A2A ProtoJSON without the ids of task and context."""
    message: dict[str, Any] = {
        "messageId": content.message_id or str(uuid.uuid4()),
        "role": str(role),
        "parts": content.parts,
    }
    optional = {
        "metadata": content.metadata,
        "extensions": content.extensions,
        "referenceTaskIds": content.references,
    }
    return message | {name: value for name, value in optional.items() if value}


def message_insert(
    task_id: uuid.UUID,
    message: dict[str, Any],
    now: datetime | None = None,
    author: str = "",
) -> Insert:
    """The row of a message, to be written with the move it belongs to. `author`: see `Message.author`."""
    return Insert(
        Message,
        {
            "task_id": task_id,
            "message_id": message["messageId"],
            "role": message["role"],
            "parts": message["parts"],
            "metadata": message.get("metadata", {}),
            "extensions": message.get("extensions", []),
            "reference_ids": message.get("referenceTaskIds", []),
            "created_at": now or timezone.now(),
            **({"author": author} if author else {}),
        },
    )
