"""The ASGI application: Django, and in front of it static files, the health address and the protocol.

Static files are served by WhiteNoise outside of Django: as a middleware it is synchronous, and would
hold a thread for every open stream.
"""

from __future__ import annotations

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bureau.settings")
django_application = get_asgi_application()

from django.conf import settings  # noqa: E402 - Django had to be set up first
from django.contrib.staticfiles.finders import get_finders  # noqa: E402
from whitenoise import WhiteNoise  # noqa: E402

from bureau.a2a.asgi import ProtocolHandler, is_protocol_path  # noqa: E402
from bureau.bodies import Receive, Scope, Send, bounded  # noqa: E402


def static_files() -> WhiteNoise:
    """All static files of the installed apps, looked up once: there is nothing to collect first."""
    files = WhiteNoise(None, max_age=3600, allow_all_origins=False)
    for finder in get_finders():
        for path, storage in finder.list(None):
            files.add_file_to_dictionary(settings.STATIC_URL + path, storage.path(path))
    return files


_static = static_files()
_protocol = ProtocolHandler()
# WhiteNoise's answer is a status, headers and an open file; asgiref's bridge from WSGI would take a thread
# for each, and fails when several come at once.
CHUNK = 64 * 1024


async def _serve_static(scope: Scope, send: Send) -> None:
    found = _static.files.get(scope["path"])
    if found is None:
        headers = [(b"content-type", b"text/plain; charset=utf-8")]
        await send({"type": "http.response.start", "status": 404, "headers": headers})
        await send({"type": "http.response.body", "body": b"There is no such file.\n"})
        return
    asked = {
        f"HTTP_{name.decode().upper().replace('-', '_')}": value.decode("latin-1") for name, value in scope["headers"]
    }
    response = found.get_response(scope["method"], asked)
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in response.headers]
    headers.append((b"x-content-type-options", b"nosniff"))
    await send({"type": "http.response.start", "status": int(response.status), "headers": headers})
    if response.file is not None:
        with response.file as content:
            while chunk := content.read(CHUNK):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    path: str = scope.get("path", "")
    if scope["type"] == "http" and path.startswith(settings.STATIC_URL):
        await _serve_static(scope, send)
    elif scope["type"] == "http" and path == "/healthz":
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"3")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok\n"})
    elif scope["type"] == "http" and is_protocol_path(path):
        await _protocol(scope, receive, send)
    elif scope["type"] == "http":
        await bounded(django_application, scope, receive, send)
    else:
        await django_application(scope, receive, send)
