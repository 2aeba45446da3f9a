"""Where things are, and who may import whom."""

import ast
import platform
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

BASE = Path(__file__).resolve().parents[2]
# Imports point inwards: a package may import itself and what stands to its right.
ORDER = ("bureau", "agents", "tasks", "directory")
FOLDERS = {"bureau": BASE / "platform" / "bureau", **{name: BASE / name for name in ORDER[1:]}}


def imported_packages(file: Path) -> set[str]:
    """The first names of all absolute imports in a file, wherever they stand."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_platform_is_the_standard_library():
    assert Path(platform.__file__).parent == Path(sysconfig.get_path("stdlib"))
    assert platform.system()


def test_platform_folder_is_only_a_source_root():
    assert not (BASE / "platform" / "__init__.py").exists()


def test_platform_stays_the_standard_library_for_manage_py():
    code = "import platform, bureau; print(platform.python_version(), platform.__file__, bureau.__file__)"
    arguments = [sys.executable, "manage.py", "shell", "-v", "0", "-c", code]
    printed = subprocess.run(arguments, cwd=BASE, check=True, capture_output=True, text=True).stdout
    version, standard, ours = printed.split()
    assert version == platform.python_version()
    assert standard == platform.__file__
    assert ours == str(FOLDERS["bureau"] / "__init__.py")


@pytest.mark.parametrize("package", ORDER)
def test_imports_point_inwards(package):
    outer = set(ORDER[: ORDER.index(package)]) | {"tests"}
    wrong = {
        f"{file.relative_to(BASE)} imports {name}"
        for file in FOLDERS[package].rglob("*.py")
        for name in imported_packages(file) & outer
    }
    assert not wrong


def test_install_puts_all_packages_on_the_path():
    project = tomllib.loads((BASE / "pyproject.toml").read_text())
    packages = project["tool"]["setuptools"]["packages"]["find"]
    assert packages["where"] == [".", "platform"]
    assert {pattern.rstrip("*") for pattern in packages["include"]} == set(ORDER)
    assert project["tool"]["pytest"]["ini_options"]["pythonpath"] == [".", "platform"]


def test_lock_holds_hashes_and_no_address():
    lock = (BASE / "requirements.lock").read_text()
    assert "://" not in lock
    pinned = [line for line in lock.splitlines() if "==" in line and not line.startswith(" ")]
    assert len(pinned) > 50
    assert lock.count("--hash=sha256:") >= len(pinned)
