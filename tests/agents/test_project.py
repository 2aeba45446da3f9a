"""The project folder: nothing outside it, no secrets, no links, no devices, whatever the path."""

import os
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from agents.exceptions import ToolError
from agents.tools.project import entries, human, read_text


@pytest.fixture
def outside(tmp_path, project):
    """A file beside the project folder, that nobody may see."""
    (tmp_path / "outside").mkdir()
    secret = tmp_path / "outside" / "secret.txt"
    secret.write_text("the treasure")
    return secret


def refused(path) -> str:
    with pytest.raises(ToolError) as caught:
        read_text(path)
    assert "treasure" not in str(caught.value)
    return caught.value.error_class


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("README.md", "README.md"),
        ("./README.md", "README.md"),
        ("docs//guide.txt", "docs/guide.txt"),
        ("docs/../README.md", "README.md"),
        (" docs/deep/notes.md ", "docs/deep/notes.md"),
    ],
)
def test_a_file_inside_is_read(project, path, shown):
    assert read_text(path) == (shown, (project / shown).read_text())


def test_an_absolute_path_inside_is_read(project):
    assert read_text(str(project / "main.py"))[0] == "main.py"


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret.txt",
        "docs/../../outside/secret.txt",
        "/etc/passwd",
        "/proc/self/environ",
        "//etc/passwd",
        "~/secret.txt",
        "..",
        "docs/../..",
        "../project/../outside/secret.txt",
    ],
)
def test_no_path_leads_out(outside, path):
    assert refused(path) == "outside_root"


def test_a_neighbour_with_the_same_beginning_is_outside(project):
    (project.parent / "project-secrets").mkdir()
    (project.parent / "project-secrets" / "a.txt").write_text("the treasure")
    assert refused(f"{project}-secrets/a.txt") == "outside_root"


def test_links_are_not_followed(project, outside):
    (project / "link.txt").symlink_to(outside)
    (project / "folder").symlink_to(outside.parent)
    (project / "inner.txt").symlink_to(project / "README.md")
    (project / "proc").symlink_to("/proc/self")
    for path in ("link.txt", "folder/secret.txt", "inner.txt", "proc/environ", "docs/../link.txt"):
        assert refused(path) == "forbidden_file"


def test_a_folder_that_turns_into_a_link_meanwhile_is_not_followed(project, outside, monkeypatch):
    """The race: what was looked at is exchanged before it is opened."""
    looked = os.stat

    def exchange(name, **options):
        status = looked(name, **options)
        if name == "docs":
            (project / "docs").rename(project / "old")
            (project / "docs").symlink_to(outside.parent)
        return status

    monkeypatch.setattr(os, "stat", exchange)
    assert refused("docs/secret.txt") in ("file_not_found", "not_a_folder")


def test_a_fifo_is_refused_at_once(project):
    os.mkfifo(project / "pipe")
    result = []
    thread = threading.Thread(target=lambda: result.append(refused("pipe")), daemon=True)
    thread.start()
    thread.join(60)
    assert result == ["not_a_file"]


def test_a_socket_is_refused(project, monkeypatch):
    # Addresses of sockets are short, paths of test folders long.
    monkeypatch.chdir(project)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")
        assert refused("sock") in ("not_a_file", "file_not_found")


def test_a_device_is_refused(project):
    try:
        os.mknod(project / "zero", 0o600 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("Only root may make devices.")
    assert refused("zero") in ("not_a_file", "forbidden_file")


@pytest.mark.parametrize(
    ("path", "error_class"),
    [
        ("nothing.txt", "file_not_found"),
        ("docs/nothing/at/all.txt", "file_not_found"),
        ("README.md/x", "not_a_folder"),
        ("docs", "not_a_file"),
        (".", "not_a_file"),
        ("", "not_a_file"),
        ("a\0b", "invalid_path"),
        ("x" * 5000, "file_not_found"),
    ],
)
def test_what_is_no_file_is_named(project, path, error_class):
    assert refused(path) == error_class


@pytest.mark.parametrize(
    "name",
    [
        ".env",
        ".ENV",
        ".env.local",
        "server.pem",
        "id_rsa",
        "secret_key",
        ".git/config",
        "node_modules/a.js",
        "venv/x.py",
    ],
)
def test_secrets_are_not_shown(project, name):
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text("the treasure")
    assert refused(name) == "forbidden_file"
    assert not any(entry.path.startswith(name.split("/")[0]) for entry in entries("", "", 9))


def test_an_example_of_a_secret_is_shown(project):
    (project / ".env.example").write_text("KEY=")
    assert read_text(".env.example")[1] == "KEY="


def test_the_data_folder_is_not_shown_whatever_its_name(project, settings):
    (project / "innocent").mkdir()
    (project / "innocent" / "a.txt").write_text("the treasure")
    settings.BUREAU_DATA = project / "innocent"
    assert refused("innocent/a.txt") == "forbidden_file"
    assert "innocent" not in [entry.path for entry in entries("", "", 1)]
    with pytest.raises(ToolError, match="not shown"):
        list(entries("innocent", "", 1))


def test_a_file_above_the_limit_is_not_read(project, settings):
    settings.BUREAU_FILE_LIMIT_BYTES = 10
    (project / "big.txt").write_text("x" * 11)
    with pytest.raises(ToolError, match=r"big.txt has 11 bytes; the limit is 10 bytes \(BUREAU_FILE_LIMIT_BYTES\)"):
        read_text("big.txt")
    (project / "big.txt").write_text("x" * 10)
    assert read_text("big.txt")[1] == "x" * 10


def test_a_file_that_grows_while_it_is_read_is_stopped(project, settings, monkeypatch):
    settings.BUREAU_FILE_LIMIT_BYTES = 10
    monkeypatch.setattr(os, "read", lambda file, size: b"x" * 8)
    assert refused("main.py") == "file_too_large"


@pytest.mark.parametrize("content", [b"\x89PNG\0\0", b"abc\0def", b"\xff\xfe\xfd", b"caf\xe9"])
def test_what_is_no_text_is_refused(project, content):
    (project / "file").write_bytes(content)
    assert refused("file") == "binary_file"


@pytest.mark.parametrize(
    "content",
    ["käse 🧀".encode(), "\ufeffkäse 🧀".encode(), "käse 🧀".encode("utf-16")],
    ids=["utf-8", "mark", "utf-16"],
)
def test_text_with_or_without_a_mark_is_read(project, content):
    (project / "file").write_bytes(content)
    assert read_text("file")[1] == "käse 🧀"


def test_the_listing_names_what_there_is(project, outside):
    (project / "link").symlink_to(outside)
    found = {entry.path: entry.kind for entry in entries("", "", 9)}
    assert found == {
        "README.md": "file",
        "docs": "folder",
        "docs/deep": "folder",
        "docs/deep/notes.md": "file",
        "docs/guide.txt": "file",
        "link": "link",
        "main.py": "file",
    }


def test_the_listing_goes_as_deep_as_it_is_told(project):
    assert [entry.path for entry in entries("docs", "", 1)] == ["docs/deep", "docs/guide.txt"]


def test_the_listing_can_be_narrowed_by_name_or_path(project):
    assert [entry.path for entry in entries("", "*.md", 9)] == ["README.md", "docs/deep/notes.md"]
    assert [entry.path for entry in entries("", "docs/*.txt", 9)] == ["docs/guide.txt"]


@pytest.mark.parametrize("directory", ["..", "/", "/etc", "docs/../.."])
def test_the_listing_does_not_lead_out(project, directory):
    with pytest.raises(ToolError, match=r"out(side)? of|outside"):
        list(entries(directory, "", 1))


def test_the_listing_does_not_follow_links(project, outside):
    (project / "docs" / "out").symlink_to(outside.parent)
    assert "docs/out/secret.txt" not in [entry.path for entry in entries("", "", 9)]
    with pytest.raises(ToolError, match="symbolic link"):
        list(entries("docs/out", "", 1))


def test_no_file_is_left_open(project, outside):
    (project / "link").symlink_to(outside)
    files = Path("/proc/self/fd")
    before = len(list(files.iterdir()))
    for path in ("README.md", "nothing", "link", "docs", "docs/deep/notes.md"):
        with suppress(ToolError):
            read_text(path)
    next(entries("", "", 9)).path  # noqa: B018 - a listing that is left in the middle
    assert len(list(files.iterdir())) == before


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (1, "1 byte"), (1023, "1023 bytes"), (1536, "1.5 KB"), (5 << 20, "5.0 MB")]
)
def test_sizes_are_for_people(size, text):
    assert human(size) == text
