from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.shell.support import clean_env, manage


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder that does not exist yet."""
    return tmp_path / "data"


@pytest.fixture
def env(data: Path) -> dict[str, str]:
    return clean_env(data)


@pytest.fixture(scope="session")
def ready_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ready") / "data"
    assert manage("setup", env=clean_env(folder)).returncode == 0
    return folder


@pytest.fixture
def ready_env(env: dict[str, str], data: Path, ready_folder: Path) -> dict[str, str]:
    """The environment of a data folder that has been set up."""
    shutil.copytree(ready_folder, data)
    return env
