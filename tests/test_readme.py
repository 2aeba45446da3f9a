"""The README's "Five things to try", run as they stand against `manage.py up`."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shell.support import clean_env, manage, start_manage, wait_for_output
from tests.support.servers import BASE, free_port

TRY = re.compile(r"<!-- try: (?P<expected>.+?) -->\s+```sh\n(?P<command>.+?)\n\s*```", re.DOTALL)
THINGS = TRY.findall((BASE / "README.md").read_text())
SCALE_OUT = (BASE / "README.md").read_text().partition("## Scale out")[2].partition("\n## ")[0]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A running Bureau: its port and the environment of a second terminal."""
    folder: Path = tmp_path_factory.mktemp("readme")
    # What agents write must not land among the project's own files.
    env = clean_env(folder / "data") | {"BUREAU_PORT": str(free_port()), "BUREAU_OUTPUT_ROOT": str(folder / "output")}
    running = start_manage("up", env=env, folder=folder)
    try:
        wait_for_output(running, "Bureau runs at")
        yield env
    finally:
        running.stop()


def test_there_are_five_things():
    assert len(THINGS) == 5


@pytest.mark.parametrize(("expected", "command"), THINGS, ids=[str(n) for n in range(1, len(THINGS) + 1)])
def test_it_does_what_the_readme_says(server, expected, command):
    # The reader has a .venv and the default port; here both may be elsewhere.
    command = command.replace(".venv/bin/python", sys.executable).replace(":8000", f":{server['BUREAU_PORT']}")
    done = subprocess.run(
        ["bash", "-c", command], cwd=BASE, env=server, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    assert expected.lower() in (done.stdout + done.stderr).lower()


def test_scaling_out_begins_with_agents_and_somebody_who_can_sign_in(tmp_path):
    """What stands before the processes is all that these need; `manage.py up` is not there to do it for them."""
    commands = re.findall(r"^\.venv/bin/python manage\.py (\S+)", SCALE_OUT, re.MULTILINE)
    env = clean_env(tmp_path / "data")
    answers = {"DJANGO_SUPERUSER_USERNAME": "ada", "DJANGO_SUPERUSER_EMAIL": "", "DJANGO_SUPERUSER_PASSWORD": "x"}

    before, processes = commands[:-3], commands[-3:]
    assert processes == ["web", "worker", "scheduler"]
    for command in before:
        quietly = ["--noinput"] if command == "createsuperuser" else []
        done = manage(command, *quietly, env=env | answers)
        assert done.returncode == 0, done.stderr

    assert "echo\tlocal\tready" in manage("agents", "list", env=env).stdout
    found = manage(
        "shell", "-v", "0", "-c", "from django.contrib.auth.models import User; print(*User.objects.all())", env=env
    )
    assert found.stdout.split() == ["ada"]
