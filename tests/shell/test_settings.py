"""Every setting is documented, and nothing is read past the table."""

import ast
import re
from pathlib import Path

import pytest

from bureau import env

BASE = Path(__file__).resolve().parents[2]
DOCUMENTATION = (BASE / "docs" / "settings.md").read_text()
SOURCES = [
    file for folder in ("agents", "directory", "tasks", "platform/bureau") for file in (BASE / folder).rglob("*.py")
]
# Writing the environment for the processes one starts, and Django's own variable.
ALLOWED = {("setdefault", "DJANGO_SETTINGS_MODULE"), ("store", "BUREAU_DATA"), ("store", "CELERY_SKIP_CHECKS")}


@pytest.mark.parametrize("setting", env.TABLE, ids=lambda setting: setting.name)
def test_it_is_documented(setting):
    row = next(line for line in DOCUMENTATION.splitlines() if line.startswith(f"| `{setting.name}` |"))
    assert setting.kind.name in row
    assert ("secret" in row.split("|")[2]) == setting.secret
    assert setting.help.split(" Default:")[0] in row


def test_nothing_else_is_documented():
    documented = re.findall(r"^\| `(\w+)` \|", DOCUMENTATION, re.MULTILINE)
    assert documented == [setting.name for setting in env.TABLE]


def environment_uses(file: Path):
    """(how, name) of each use of os.environ and os.getenv: name is "*" where it cannot be told."""
    tree = ast.parse(file.read_text())
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in {"getenv", "environb", "getenvb"}:
            yield node.attr, "*"
        if not (isinstance(node, ast.Attribute) and node.attr == "environ"):
            continue
        user = parents[node]
        key, how = None, "read"
        if isinstance(user, ast.Subscript):
            key, how = user.slice, "store" if isinstance(user.ctx, ast.Store) else "read"
        elif isinstance(user, ast.Attribute) and isinstance(parents[user], ast.Call):
            key, how = parents[user].args[0], user.attr
        yield how, key.value if isinstance(key, ast.Constant) else "*"


def test_no_other_variable_is_read():
    settings = BASE / "platform" / "bureau" / "settings.py"
    found = {(file, *use) for file in SOURCES for use in environment_uses(file) if use not in ALLOWED}
    assert found == {(settings, "read", "*")}


def test_deploy_examples_use_settings_that_exist():
    names = {setting.name for setting in env.TABLE}
    for file in (BASE / "platform" / "deploy").iterdir():
        used = set(re.findall(r"\b(BUREAU_\w+|DATABASE_URL|REDIS_URL|ANTHROPIC_\w+)\b", file.read_text()))
        assert used <= names, file
