"""The project folder as the file tools may see it: nothing outside it, no secrets, no links, no devices.

A path is walked one component at a time from an open folder, each opened relative to the last and never
through a symbolic link. What is checked is what is read: renaming things meanwhile changes nothing.
"""

import codecs
import fnmatch
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from django.conf import settings

from agents.exceptions import ToolError

# Other people's code, and what version control and tools keep for themselves.
SKIPPED = {
    ".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".tox", ".nox", ".mypy_cache",
    ".ruff_cache", ".pytest_cache", ".eggs",
}  # fmt: skip
# Names that usually hold keys and passwords, lower case.
SECRET = (
    ".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "id_rsa*", "id_dsa*",
    "id_ecdsa*", "id_ed25519*", "secret_key", "secrets.*", "credentials", "credentials.*", ".netrc", ".pgpass",
    ".htpasswd", ".npmrc", ".pypirc", ".ssh", ".aws", ".gnupg", ".kube", ".docker", "*.sqlite3", "*.sqlite3-*",
)  # fmt: skip
NOT_SECRET = (".env.example", ".env.sample", ".env.template")
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a FIFO would wait for somebody to write into it.
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in the folder: path relative to the root, kind (file, folder, link, other) and size in bytes."""

    path: str
    kind: str
    size: int


def read_text(path: str) -> tuple[str, str]:
    """The file's path relative to the root and its text. Raises ToolError with the reason.

    UTF-8, with or without a mark, and UTF-16 with one; at most BUREAU_FILE_LIMIT_BYTES.
    """
    parts = _parts(path)
    if not parts:
        raise ToolError("not_a_file", "That is the project folder itself; name a file in it.")
    shown = "/".join(parts)
    with _folder(parts[:-1], shown) as folder:
        file = _open(parts[-1], FILE_FLAGS, folder, shown)
    try:
        status = os.fstat(file)
        if stat.S_ISDIR(status.st_mode):
            raise ToolError("not_a_file", f"{shown} is a folder. To see what is in it: list files in {shown}")
        if not stat.S_ISREG(status.st_mode):
            raise ToolError("not_a_file", f"{shown} is not an ordinary file.")
        return shown, as_text(_read(file, status.st_size, shown), shown)
    finally:
        os.close(file)


def as_text(content: bytes, shown: str) -> str:
    """The bytes as text. Raises ToolError("binary_file") when they are none, "file_too_large" above the limit."""
    check_size(len(content), shown)
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif b"\0" in content:
        raise ToolError("binary_file", f"{shown} is a binary file; only text can be read.")
    else:
        encoding = "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        raise ToolError("binary_file", f"{shown} is not UTF-8 text; only text can be read.") from None


def check_size(size: int, shown: str) -> None:
    """Raises ToolError("file_too_large")."""
    limit = settings.BUREAU_FILE_LIMIT_BYTES
    if size > limit:
        raise ToolError(
            "file_too_large",
            f"{shown} has {human(size)}; the limit is {human(limit)} (BUREAU_FILE_LIMIT_BYTES).",
        )


def entries(directory: str, pattern: str, depth: int) -> Iterator[Entry]:
    """What is below a folder, sorted, folders before what is in them; links are named and not followed.

    `pattern` is matched against the name and the path. Raises ToolError when the folder cannot be listed.
    """
    parts = _parts(directory)
    with _folder(parts, "/".join(parts) or ".") as folder:
        yield from _walk(folder, "/".join(parts), pattern, min(depth, MAX_DEPTH))


def human(size: int) -> str:
    """Bytes for people: 12 bytes, 3.4 KB, 1.0 MB."""
    if size < 1024:
        return f"{size} byte{'' if size == 1 else 's'}"
    value = float(size)
    for unit in ("KB", "MB", "GB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TB"


def _walk(folder: int, prefix: str, pattern: str, depth: int) -> Iterator[Entry]:
    with os.scandir(folder) as found:
        names = sorted(entry.name for entry in found)
    for name in names:
        path = f"{prefix}/{name}" if prefix else name
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            continue
        if is_hidden_name(name) or _is_data_folder(status):
            continue
        entry = Entry(path, _kind(status.st_mode), status.st_size)
        if not pattern or fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(path, pattern):
            yield entry
        if entry.kind == "folder" and depth > 1:
            # Gone, closed to us, or no folder any more: then there is nothing to list.
            with suppress(OSError):
                below = os.open(name, FOLDER_FLAGS, dir_fd=folder)
                try:
                    yield from _walk(below, path, pattern, depth - 1)
                finally:
                    os.close(below)


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "other"


def _parts(path: str) -> list[str]:
    """The components below the root. Raises ToolError when the path leads out of it."""
    if "\0" in path:
        raise ToolError("invalid_path", "A path cannot hold a NUL character.")
    text = path.strip()
    root = str(settings.BUREAU_PROJECT_ROOT)
    if text == root or text.startswith(root.rstrip("/") + "/"):
        text = text[len(root) :].lstrip("/")
    if text.startswith(("/", "~")):
        raise ToolError("outside_root", f"{path} is outside the project folder; only what is inside it can be seen.")
    # No link is followed on the way, so taking `a/..` for nothing is right.
    parts = [part for part in PurePosixPath(os.path.normpath(text or ".")).parts if part != "."]
    if ".." in parts:
        raise ToolError("outside_root", f"{path} leads out of the project folder.")
    return parts


@contextmanager
def _folder(parts: list[str], shown: str) -> Iterator[int]:
    """An open folder below the root."""
    try:
        opened = [os.open(settings.BUREAU_PROJECT_ROOT, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
    except OSError as error:
        raise ToolError("no_root", f"The project folder cannot be opened: {error.strerror}.") from None
    try:
        for part in parts:
            opened.append(_open(part, FOLDER_FLAGS, opened[-1], shown))
        yield opened[-1]
    finally:
        for folder in opened:
            os.close(folder)


def _open(name: str, flags: int, folder: int, shown: str) -> int:
    """One component, opened below an open folder. Raises ToolError with the reason."""
    forbidden = ToolError("forbidden_file", f"{shown} is not shown: such files hold secrets or belong to tools.")
    if is_hidden_name(name):
        # Not even whether it is there.
        raise forbidden
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if _is_data_folder(status):
            raise forbidden
        if stat.S_ISLNK(status.st_mode):
            raise ToolError("forbidden_file", f"{shown} goes through a symbolic link, and links are not followed.")
        return os.open(name, flags, dir_fd=folder)
    except NotADirectoryError:
        raise ToolError("not_a_folder", f"{shown} is not a folder, or leads through a file.") from None
    except PermissionError:
        raise ToolError("forbidden_file", f"{shown} cannot be opened: permission denied.") from None
    except OSError:
        # Not there, a link since we looked, a socket, a name too long: nothing that can be read.
        raise ToolError("file_not_found", f"There is no {shown} in the project folder.") from None


def is_hidden_name(name: str) -> bool:
    """Whether files and folders of that name are neither shown nor written."""
    # Some file systems take .ENV for .env.
    low = name.lower()
    is_secret = low not in NOT_SECRET and any(fnmatch.fnmatchcase(low, pattern) for pattern in SECRET)
    return low in SKIPPED or is_secret


def _is_data_folder(status: os.stat_result) -> bool:
    """Bureau's own data folder, under whatever name: database, files of all users, secrets."""
    try:
        data = Path(settings.BUREAU_DATA).stat()
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == (data.st_dev, data.st_ino)


def _read(file: int, size: int, shown: str) -> bytes:
    check_size(size, shown)
    chunks: list[bytes] = []
    total = 0
    # A file may grow while it is read, and some report no size at all.
    while chunk := os.read(file, 1 << 16):
        total += len(chunk)
        check_size(total, shown)
        chunks.append(chunk)
    return b"".join(chunks)
