"""The output folder: the one place that agents write to. A file there is never overwritten; it gets a new version.

The same care as in `agents.tools.project`: components are opened one at a time, never through a link. A file
is complete before it has its name, so neither a crash nor two writers leave half of one.
"""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from django.conf import settings

from agents.exceptions import ToolError
from agents.tools.project import FILE_FLAGS, FOLDER_FLAGS, check_size, human, is_hidden_name

MAX_VERSIONS = 1000
MAX_COMPONENTS = 16
# What open(2) says of O_TMPFILE where kernel or file system lack it.
NO_NAMELESS_FILES = (errno.EISDIR, errno.EOPNOTSUPP, errno.ENOENT, errno.EINVAL)
NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Target:
    """Where a path leads: the folder it is opened from, and the components below it."""

    root: Path
    parts: tuple[str, ...]
    is_output: bool

    @property
    def shown(self) -> str:
        return "/".join(self.parts)


@dataclass(frozen=True, slots=True)
class Saved:
    """Where the text went: the path below the folder, and whether the same text was there already."""

    path: str
    was_there: bool


def target_of(path: str) -> Target:
    """Where a path leads. Raises ToolError: out of the project folder, or to a name that is not written.

    Relative paths are in the output folder. What is outside it, but in the project folder, is `not is_output`.
    """
    if "\0" in path or not path.strip():
        raise ToolError("invalid_path", "A path has to name a file, without NUL characters.")
    output, project = Path(settings.BUREAU_OUTPUT_ROOT), Path(settings.BUREAU_PROJECT_ROOT)
    text = path.strip()
    if text.startswith("~"):
        raise ToolError("outside_root", f"{path} is outside the output folder.")
    if not text.startswith("/") and PurePosixPath(text).parts[:1] == (output.name,):
        text = str(PurePosixPath(*PurePosixPath(text).parts[1:]))
    full = Path(os.path.normpath(output / text))
    data = Path(settings.BUREAU_DATA)
    if full.is_relative_to(data) and not output.is_relative_to(data):
        raise ToolError("forbidden_file", f"{path} is not written: it is in Bureau's own data folder.")
    for root, is_output in ((output, True), (project, False)):
        if full.is_relative_to(root) and full != root:
            parts = full.relative_to(root).parts
            _check_names(parts, path)
            return Target(root, parts, is_output)
    raise ToolError("outside_root", f"{path} is outside the output folder; agents write nowhere else.")


def save(target: Target, text: str) -> Saved:
    """Write a new file, under the next free version of its name where the name is taken by another text.

    Saving the same text again changes nothing. Raises ToolError.
    """
    content = text.encode()
    check_size(len(content), target.shown)
    with _folder(target) as folder:
        for version in range(1, MAX_VERSIONS):
            name = versioned(target.parts[-1], version)
            path = "/".join([*target.parts[:-1], name])
            held = _read(folder, name, len(content))
            if held == content:
                return Saved(path, was_there=True)
            if held is None and _create(folder, name, content):
                return Saved(path, was_there=False)
    raise ToolError("too_many_versions", f"{target.shown} has {MAX_VERSIONS} versions; clear some away.")


def versioned(name: str, version: int) -> str:
    """report.md, report-2.md, report-3.md …"""
    if version == 1:
        return name
    stem, dot, suffix = name.rpartition(".")
    return f"{stem}-{version}.{suffix}" if dot and stem else f"{name}-{version}"


def describe(target: Target, text: str) -> str:
    """What saving would do, for whoever has to agree to it."""
    return f"Write {human(len(text.encode()))} to {target.shown} in {target.root}"


def _check_names(parts: tuple[str, ...], path: str) -> None:
    if len(parts) > MAX_COMPONENTS:
        raise ToolError("invalid_path", f"{path} is nested too deep.")
    for name in parts:
        if is_hidden_name(name) or len(name.encode()) > 200:
            raise ToolError("forbidden_file", f"{path} is not written: such names hold secrets, or belong to tools.")


@contextmanager
def _folder(target: Target) -> Iterator[int]:
    """The open folder that the file goes into, made where it is missing."""
    try:
        target.root.mkdir(parents=True, exist_ok=True)
        opened = [os.open(target.root, FOLDER_FLAGS)]
    except OSError as error:
        raise ToolError("no_output", f"The output folder cannot be opened: {error.strerror}.") from None
    try:
        for part in target.parts[:-1]:
            try:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o777, dir_fd=opened[-1])
                opened.append(os.open(part, FOLDER_FLAGS, dir_fd=opened[-1]))
            except OSError:
                raise ToolError(
                    "not_a_folder", f"{target.shown} leads through something that is no folder, or a link."
                ) from None
        yield opened[-1]
    finally:
        for folder in opened:
            os.close(folder)


def _read(folder: int, name: str, size: int) -> bytes | None:
    """The first bytes of what has that name, one more than `size` at most; None when nothing has it."""
    try:
        file = os.open(name, FILE_FLAGS, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError:
        # A link, a folder, a socket: taken, and never written through.
        return b"\0" * (size + 1)
    try:
        held = b""
        while len(held) <= size and (chunk := os.read(file, size + 1 - len(held))):
            held += chunk
        return held
    finally:
        os.close(file)


def _create(folder: int, name: str, content: bytes) -> bool:
    """A complete file of that name, unless the name has been taken meanwhile."""
    try:
        if not _create_nameless(folder, name, content):
            _create_draft(folder, name, content)
        os.fsync(folder)
    except FileExistsError:
        return False
    except OSError as error:
        raise ToolError("not_written", f"{name} could not be written: {error.strerror}.") from None
    return True


def _create_nameless(folder: int, name: str, content: bytes) -> bool:
    """Write a file that has no name until it is complete, so that a killed worker leaves nothing behind.

    False, and nothing done, where the system cannot: it is Linux's, and not every file system has it.
    """
    if not hasattr(os, "O_TMPFILE") or not Path("/proc/self/fd").exists():
        return False
    try:
        file = os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666, dir_fd=folder)
    except OSError as error:
        if error.errno in NO_NAMELESS_FILES:
            return False
        raise
    with os.fdopen(file, "wb") as writer:
        _write(writer, content)
        os.link(f"/proc/self/fd/{file}", name, dst_dir_fd=folder, follow_symlinks=True)
    return True


def _create_draft(folder: int, name: str, content: bytes) -> None:
    """The same by a hidden name, which a kill in the middle leaves behind."""
    draft = f".{secrets.token_hex(8)}.tmp"
    try:
        with os.fdopen(os.open(draft, NEW_FILE_FLAGS, 0o666, dir_fd=folder), "wb") as writer:
            _write(writer, content)
        os.link(draft, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    finally:
        with suppress(OSError):
            os.unlink(draft, dir_fd=folder)


def _write(writer: BinaryIO, content: bytes) -> None:
    writer.write(content)
    writer.flush()
    os.fsync(writer.fileno())
