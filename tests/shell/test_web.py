"""`manage.py web`: one web process, alone."""

import signal
import socket
import urllib.error
import urllib.request

import pytest

from tests.shell.support import manage
from tests.support.servers import free_port

pytestmark = pytest.mark.both_databases


def get(url):
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def test_it_serves_and_ends(web_process):
    web = web_process()
    assert get(f"{web.url}/healthz")[::2] == (200, b"ok\n")
    assert f"Listening on {web.url}" in web.output
    web.stop(signal.SIGTERM)
    assert "Traceback" not in web.output


def test_it_serves_static_files(web_process):
    web = web_process()
    status, headers, body = get(f"{web.url}/static/django_htmx/htmx-2.min.js")
    assert (status, headers["Content-Type"]) == (200, 'text/javascript; charset="utf-8"')
    assert b"htmx" in body
    assert get(f"{web.url}/static/no/such.css")[0] == 404
    assert get(f"{web.url}/static/../manage.py")[0] == 404


def test_it_says_that_the_database_is_empty(env):
    result = manage("web", "--port", str(free_port()), env=env)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1].endswith("where the parts run alone.")
    assert "Traceback" not in result.stderr


def test_it_names_the_port_that_is_taken(env):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        result = manage("web", "--port", str(port), env=env)
    assert result.returncode == 1
    assert f"Port {port} on 127.0.0.1 cannot be used" in result.stderr
    assert "Traceback" not in result.stderr
