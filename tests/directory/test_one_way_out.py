"""Nothing but the guarded client opens a URL that came from outside."""

import ast
from pathlib import Path

import pytest

BASE = Path(__file__).resolve().parents[2]
PACKAGES = ("directory", "tasks", "agents", "platform/bureau")
# Anything that can open a URL. The Anthropic SDK has one address, and the operator sets it.
OPENERS = {
    "aiohttp",
    "ftplib",
    "http.client",
    "httpcore",
    "httpx",
    "httpx2",
    "pycurl",
    "requests",
    "telnetlib",
    "urllib.request",
    "urllib3",
    "websockets",
    "xmlrpc",
}
GUARD = "directory/http.py"
# `up` asks the web server that it started itself.
OWN_SERVER = {"platform/bureau/management/commands/up.py": ["http.client"]}
# The SDK's client makes HTTP clients of its own unless it is given one.
SDK_CLIENT = ("a2a.client",)
MAY_USE_SDK_CLIENT = {"directory/cards.py", "directory/failures.py", "directory/remote.py"}

SOURCES = sorted(path for package in PACKAGES for path in (BASE / package).rglob("*.py"))


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_in(name, modules):
    return any(name == module or name.startswith(f"{module}.") for module in modules)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(BASE)))
def test_it_imports_no_other_client(path):
    name = str(path.relative_to(BASE))
    found = set(imports(path))
    if name != GUARD:
        assert [module for module in found if is_in(module, OPENERS)] == OWN_SERVER.get(name, [])
    if name not in MAY_USE_SDK_CLIENT:
        assert not [module for module in found if is_in(module, SDK_CLIENT)]


def test_the_guard_is_where_this_test_looks():
    assert "httpx" in set(imports(BASE / GUARD))
