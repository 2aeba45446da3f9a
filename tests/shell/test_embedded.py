"""The generated secret, the socket's place, the lock of the data folder."""

import multiprocessing
from pathlib import Path

import pytest

from bureau import embedded


def test_secret_is_made_once_and_is_ours_alone(data):
    data.mkdir()
    first = embedded.secret_key(data)
    assert len(first) >= 50
    assert embedded.secret_key(data) == first
    assert (data / "secret_key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in data.iterdir()] == ["secret_key"]


def test_racing_first_commands_agree_on_the_secret(data):
    data.mkdir()
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        assert len(set(pool.map(embedded.secret_key, [data] * 8))) == 1


def test_new_folder_is_private_and_a_used_one_is_left_alone(tmp_path):
    assert embedded.private_folder(tmp_path / "new").stat().st_mode & 0o777 == 0o700
    used = tmp_path / "used"
    used.mkdir(mode=0o755)
    (used / "file").touch()
    assert embedded.private_folder(used).stat().st_mode & 0o777 == 0o755


def test_socket_path_always_fits():
    short = Path("/srv/bureau")
    assert embedded.socket_path(short) == short / "run" / "valkey.sock"
    long = Path("/srv") / ("x" * 100)
    assert len(str(embedded.socket_path(long))) <= embedded.MAX_SOCKET_PATH
    assert embedded.socket_path(long) == embedded.socket_path(long)
    assert embedded.socket_path(long) != embedded.socket_path(long / "y")


def test_runtime_folder_of_somebody_else_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(embedded.EmbeddedError, match="belongs to somebody else"):
        embedded.own_runtime_folder(tmp_path / "link")


def test_folder_is_held_by_one(tmp_path):
    with embedded.hold(tmp_path, "a test") as first:
        assert first
        with embedded.hold(tmp_path, "another") as second:
            assert not second
            assert "(a test)" in embedded.holder(tmp_path)
    with embedded.hold(tmp_path, "a third") as third:
        assert third


def test_silence_has_a_reason(tmp_path):
    assert "No such file" in embedded.answers(f"unix://{tmp_path / 'nobody.sock'}")
