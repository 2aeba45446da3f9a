"""Forms that send messages take effect once, however often they come in.

Each form is born with a token. A new mission claims it as the key of its context, which is unique per
owner; a message in a context that exists claims it as its message id, under that context's lock. The
second submission waits for the first, finds the token taken, and leads to the same task.
"""

from __future__ import annotations

import contextlib
import mimetypes
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from django.core.files.uploadedfile import UploadedFile
from django.db import IntegrityError, transaction

from directory.identity import Caller
from directory.models import Agent
from tasks.content import Incoming
from tasks.files import UNKNOWN_TYPE, file_part, store_file
from tasks.models import Context, Message, StoredFile, Task
from tasks.services import send_message

Files = Sequence["UploadedFile[Any]"]


def start(caller: Caller, agent: Agent, text: str, files: Files, token: uuid.UUID) -> uuid.UUID:
    """Start a mission, or find the one that this token started. Returns the task's id. Raises TaskError."""
    key = str(token)
    try:
        with transaction.atomic():
            context = Context.objects.create(owner=caller.principal, key=key)
            with _stored(caller, files) as parts:
                incoming = Incoming([{"text": text}, *parts], message_id=key)
                return send_message(caller, agent, incoming, context_key=context.key).task_id
    except IntegrityError:
        first = Task.objects.filter(context__owner=caller.principal, context__key=key).order_by("created_at").first()
        if first is None:
            raise
        return first.pk


def follow_up(caller: Caller, task: Task, text: str, files: Files, token: uuid.UUID, question: str = "") -> uuid.UUID:
    """Add a message to a live task, as the answer to `question` where that is given. Returns the task's id.

    Raises TaskError, TaskIsTerminal and QuestionIsClosed among them.
    """
    with _once(task.context_id, token) as sent_before:
        if sent_before:
            return sent_before
        # The files are the owner's, whoever sends them: the agents read on the owner's behalf.
        with _stored(Caller(task.owner, task.owner), files) as parts:
            incoming = Incoming([{"text": text}, *parts], message_id=str(token))
            return send_message(caller, task.agent, incoming, task_id=task.pk, answering=question).task_id


def refine(caller: Caller, task: Task, text: str, files: Files, token: uuid.UUID) -> uuid.UUID:
    """Start a task in the same context that refers to this one. Returns the new task's id. Raises TaskError."""
    with _once(task.context_id, token) as sent_before:
        if sent_before:
            return sent_before
        with _stored(caller, files) as parts:
            incoming = Incoming([{"text": text}, *parts], message_id=str(token), references=[str(task.pk)])
            return send_message(caller, task.agent, incoming, context_key=task.context.key).task_id


@contextlib.contextmanager
def _once(context_id: uuid.UUID, token: uuid.UUID) -> Iterator[uuid.UUID | None]:
    """In a transaction that has the context to itself: the task that this token went to before, if any."""
    with transaction.atomic():
        # SQLite knows no row locks and needs none: its write transactions are serial.
        Context.objects.select_for_update().get(pk=context_id)
        sent = Message.objects.filter(task__context_id=context_id, role=Message.Role.USER, message_id=str(token))
        yield sent.values_list("task_id", flat=True).first()


@contextlib.contextmanager
def _stored(caller: Caller, files: Files) -> Iterator[list[dict[str, Any]]]:
    """The files as parts. Their bytes are taken back when the block fails, as their rows are."""
    stored: list[StoredFile] = []
    try:
        for upload in files:
            media_type = upload.content_type or mimetypes.guess_type(upload.name or "")[0] or UNKNOWN_TYPE
            stored.append(store_file(caller.principal, upload.name or "", media_type, upload.read()))
        yield [file_part(one) for one in stored]
    except BaseException:
        for one in stored:
            one.content.delete(save=False)
        raise
