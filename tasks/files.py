"""Files that messages and artifacts refer to: kept in Django's storage, described by a row."""

import hashlib
import uuid
from datetime import timedelta
from pathlib import PurePath
from typing import Any

from django.core.files.base import ContentFile
from django.db.models import TextField
from django.db.models.functions import Cast

from directory.identity import Caller
from directory.untrusted import clean_line
from tasks.content import UNSTORABLE
from tasks.exceptions import TaskNotFound
from tasks.models import Artifact, Message, StoredFile

UNKNOWN_TYPE = "application/octet-stream"
CLOCKS_DIFFER = timedelta(hours=1)


def store_file(owner: str, name: str, media_type: str, content: bytes) -> StoredFile:
    """Keep these bytes; the name loses any folder it came with, and what cannot be seen."""
    safe_name = clean_line(PurePath(name.replace("\\", "/")).name, 255) or "file"
    stored = StoredFile(
        owner=owner,
        name=safe_name,
        media_type=UNSTORABLE.sub("", media_type)[:120] or UNKNOWN_TYPE,
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    stored.content.save(f"{stored.pk.hex}{PurePath(safe_name).suffix[:16]}", ContentFile(content), save=False)
    stored.save(force_insert=True)
    return stored


def file_part(stored: StoredFile) -> dict[str, Any]:
    """The part that refers to a stored file."""
    return {"file": str(stored.pk), "filename": stored.name, "mediaType": stored.media_type}


def fetch_file(caller: Caller, file_id: str | uuid.UUID) -> StoredFile:
    """The caller's file; an operator may read any. Raises TaskNotFound.

    A caller who may call certain agents only has the files that went to or came from tasks of those.
    """
    files = StoredFile.objects.all() if caller.is_operator else StoredFile.objects.filter(owner=caller.principal)
    try:
        found = files.filter(pk=file_id).first()
    except (ValueError, TypeError):
        found = None
    if found is None or (caller.agents and not _is_within_reach(caller, found)):
        raise TaskNotFound("There is no such file.")
    return found


def _is_within_reach(caller: Caller, stored: StoredFile) -> bool:
    """Whether a task of the caller's, with an agent that it may call, refers to this file."""
    for model in (Message, Artifact):
        tasks = {"task__owner": caller.principal, "task__agent__slug__in": caller.agents}
        # Nothing can refer to a file before it is there; but the clocks of several machines differ.
        rows = model.objects.filter(**tasks, created_at__gte=stored.created_at - CLOCKS_DIFFER)
        # A text may hold the id of any file, so what the database finds is looked at.
        naming = rows.annotate(shape=Cast("parts", TextField())).filter(shape__contains=str(stored.pk))
        found = (part.get("file") for parts in naming.values_list("parts", flat=True) for part in parts)
        if str(stored.pk) in found:
            return True
    return False


def read_file(stored: StoredFile) -> bytes:
    """All bytes of a stored file."""
    with stored.content.open("rb") as content:
        data: bytes = content.read()
    return data
