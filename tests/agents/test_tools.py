"""What all tools promise."""

import os
import subprocess
import sys

import pytest
from pydantic import BaseModel

from agents.tools.base import Risk
from agents.tools.catalog import tools
from agents.tools.grammar import core, explicit_form, looks_like_path, mask, path_in, unquote


@pytest.mark.parametrize("tool", tools().values(), ids=lambda tool: tool.name)
def test_a_tool_is_complete(tool):
    assert tools()[tool.name] is tool
    assert tool.description.endswith(".")
    assert len(tool.examples) >= 4
    assert isinstance(tool.risk, Risk)
    assert issubclass(tool.params, BaseModel)
    # Nothing is required: what is missing is asked for.
    assert tool.check({}) == tool.params()
    for name, field in tool.params.model_fields.items():
        assert field.description, name


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Please list files, thanks!", "list files"),
        ("Hey, could you please read README.md for me?", "read README.md"),
        ("list files in .", "list files in ."),
        ("read main.py.", "read main.py"),
        ("what is this?", "what is this"),
        ("please", "please"),
        ("", ""),
    ],
)
def test_politeness_is_taken_off(text, left):
    assert core(text) in (left, "")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("what is in docs/guide.txt?", "docs/guide.txt"),
        ("open `my file.txt` now", "my file.txt"),
        ("show ./a.py", "./a.py"),
        ("look at /etc/passwd", "/etc/passwd"),
        ("see https://example.org/a.html", ""),
        ("e.g. this, i.e. that, at 10.30 a.m.", ""),
        ("write to bob@example.org", ""),
        ("read the README", "README"),
        ("and/or maybe", ""),
        ("nothing here", ""),
    ],
)
def test_paths_are_found(text, path):
    assert path_in(text) == path


def test_looks_like_path():
    assert looks_like_path("a/b.txt")
    assert looks_like_path("Makefile")
    assert not looks_like_path("hello")
    assert not looks_like_path("e.g")
    assert not looks_like_path("two words.txt and more")


@pytest.mark.parametrize(("text", "inside"), [('"a b"', "a b"), ("'a'", "a"), ("`a`", "a"), ("a", "a"), ('"a', '"a')])
def test_unquote(text, inside):
    assert unquote(text) == inside


def test_mask():
    assert mask("read docs/a.txt and “b” in src/ e.g. now") == "read this file and this text in this folder e.g. now"


@pytest.mark.parametrize(
    ("text", "name", "params", "problem"),
    [
        (":tool echo", "echo", {}, False),
        (' :tool list-files {"depth": 2} ', "list_files", {"depth": 2}, False),
        (":tool echo {", "echo", {}, True),
        (":tool echo []", "echo", {}, True),
    ],
)
def test_the_explicit_form(text, name, params, problem):
    form = explicit_form(text)
    assert (form.name, form.params, bool(form.problem)) == (name, params, problem)


@pytest.mark.parametrize("text", ["", "tool echo", "use :tool echo", ":tools", ":help"])
def test_what_is_not_the_explicit_form(text):
    assert explicit_form(text) is None


def test_starting_imports_nothing_heavy():
    code = (
        "import django, sys; django.setup(); from agents.registry import handler_names; assert handler_names();"
        "print([name for name in ('anthropic', 'wordllama', 'numpy', 'httpx2') if name in sys.modules])"
    )
    env = {**os.environ, "PYTHONPATH": "platform"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=env)
    assert done.stdout.strip() == "[]"
