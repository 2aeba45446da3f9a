"""Every command of ours has a test file and a help text, and takes the shared options."""

from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class

from tests.shell.support import manage

COMMANDS = sorted(name for name, app in get_commands().items() if app in {"bureau", "agents", "tasks", "directory"})


@pytest.mark.parametrize("command", COMMANDS)
def test_it_is_tested_and_explained(command):
    assert list(Path(__file__).resolve().parents[1].rglob(f"test_{command}.py"))
    assert load_command_class(get_commands()[command], command).help


@pytest.mark.parametrize("arguments", [["--data", "{}"], ["--data={}"]])
def test_data_option_goes_before_settings(env, tmp_path, arguments):
    code = "from django.conf import settings; print(settings.BUREAU_DATA, settings.BUREAU_PORT)"
    arguments = [argument.format(tmp_path / "other") for argument in arguments]
    result = manage("shell", "-v", "0", *arguments, "--port", "8123", "-c", code, env=env)
    assert result.stdout.split() == [str(tmp_path / "other"), "8123"]
