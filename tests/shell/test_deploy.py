"""The image of `platform/deploy`: no engine is needed to see that what it copies is enough to run."""

import re
import shutil
import subprocess
import sys

import pytest

from tests.support.servers import BASE

DEPLOY = BASE / "platform" / "deploy"
SOURCES = [
    source
    for line in re.findall(r"^COPY (?!--)(.+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    for source in line.split()[:-1]
]


@pytest.fixture
def image(tmp_path):
    """The folder that the image would have."""
    folder = tmp_path / "app"
    folder.mkdir()
    for source in SOURCES:
        if (BASE / source).is_dir():
            shutil.copytree(BASE / source, folder / source, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(BASE / source, folder)
    return folder


@pytest.mark.parametrize("command", [("setup",), ("findstatic", "bureau/bureau.css"), ("check",)])
def test_what_is_copied_is_enough(image, env, command):
    result = subprocess.run(
        [sys.executable, "manage.py", *command], cwd=image, env=env, capture_output=True, text=True, check=False
    )
    assert (result.returncode, "WARNINGS" in result.stderr) == (0, False), result


def test_what_is_copied_is_not_ignored():
    kept = re.findall(r"^!(.+)$", (DEPLOY / "Dockerfile.dockerignore").read_text(), re.MULTILINE)
    assert sorted(kept) == sorted(set(SOURCES))
