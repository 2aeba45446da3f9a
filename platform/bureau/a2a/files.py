"""Download of stored files, for their owner and for operators; to others they are not there."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from typing import IO
from uuid import UUID

from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.http import content_disposition_header
from rest_framework.exceptions import APIException

from bureau.a2a import replies
from bureau.a2a.authentication import ScopeMissing, identify
from directory.identity import READ
from tasks.aio import in_db
from tasks.exceptions import TaskNotFound
from tasks.files import UNKNOWN_TYPE, fetch_file
from tasks.models import StoredFile

logger = logging.getLogger(__name__)

CHUNK_BYTES = 256 * 1024
MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(;\s*[\w-]+=[\w.+-]+)*", re.ASCII)
HEADERS = {
    # What a stranger sent must not run here, whatever it says it is.
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cache-Control": "private, no-store",
}


async def download(request: HttpRequest, file_id: UUID) -> HttpResponseBase:
    """The bytes of a stored file, always as an attachment."""
    if request.method not in ("GET", "HEAD"):
        response: HttpResponseBase = replies.problem("A file is read by GET.", 405)
        response["Allow"] = "GET, HEAD"
        return response
    try:
        caller = (await identify(request)).caller
        if READ not in caller.scopes:
            raise ScopeMissing(READ)
        stored = await in_db(fetch_file, caller, file_id)
        content = await in_db(stored.content.open, "rb") if request.method == "GET" else None
    except APIException as error:
        return replies.problem(str(error.detail), error.status_code)
    except TaskNotFound as error:
        return replies.problem(str(error), 404)
    except OSError:
        logger.exception("A stored file cannot be read", extra={"action": "file.unreadable", "file": str(file_id)})
        return replies.problem("There is no such file.", 404)
    return _attachment(stored, content)


def _attachment(stored: StoredFile, content: IO[bytes] | None) -> StreamingHttpResponse:
    media_type = stored.media_type if MEDIA_TYPE.fullmatch(stored.media_type) else UNKNOWN_TYPE
    response = StreamingHttpResponse(_chunks(content) if content else (), content_type=media_type, headers=HEADERS)
    response["Content-Length"] = str(stored.size)
    response["Content-Disposition"] = content_disposition_header(True, stored.name)
    response["ETag"] = f'"{stored.sha256}"'
    return response


async def _chunks(content: IO[bytes]) -> AsyncIterator[bytes]:
    try:
        while chunk := await in_db(content.read, CHUNK_BYTES):
            yield chunk
    finally:
        content.close()
