"""What Holdfast makes for itself is out of the reach of other users."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from holdfast.common.private import (
    NotPrivateError,
    make_private,
    open_private,
    read_private,
    user_directory,
)
from tests.another_user import NOBODY, as_root


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A temporary directory in which nobody has made anything yet."""
    monkeypatch.delenv("HOLDFAST_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def test_all_of_it_is_in_one_directory_of_the_user(temporary: Path) -> None:
    made = make_private(user_directory() / "rocksdb" / "job")
    assert made == temporary / f"holdfast-{os.getuid()}" / "rocksdb" / "job"
    for path in (made, made.parent, made.parent.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_the_directory_can_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOLDFAST_RUNTIME_DIR", str(tmp_path / "here"))
    assert user_directory() == tmp_path / "here"


def test_a_directory_that_others_can_read_is_refused(temporary: Path) -> None:
    (temporary / f"holdfast-{os.getuid()}").mkdir(mode=0o755)
    with pytest.raises(NotPrivateError, match="has mode 0755"):
        user_directory()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(NotPrivateError, match="is not a directory"):
        make_private(tmp_path / "link")


@as_root
@pytest.mark.parametrize("kind", ["directory", "file", "link", "pipe"])
def test_a_name_that_another_user_has_taken_is_not_used(temporary: Path, kind: str) -> None:
    taken = temporary / f"holdfast-{os.getuid()}"
    _make(taken, kind)
    os.chown(taken, NOBODY, NOBODY, follow_symlinks=False)
    assert (
        make_private(user_directory() / "jobs")
        == temporary / "home" / ".cache" / "holdfast" / "jobs"
    )
    assert taken.is_symlink() or taken.lstat().st_uid == NOBODY


def _make(path: Path, kind: str) -> None:
    if kind == "directory":
        path.mkdir(mode=0o700)
    elif kind == "file":
        path.touch()
    elif kind == "link":
        path.symlink_to(path.parent)
    else:
        os.mkfifo(path)


def test_a_pipe_in_the_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(NotPrivateError, match="is not a regular file"):
        open_private(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    with pytest.raises(NotPrivateError, match="is not a regular file"):
        read_private(tmp_path / "lock", 100)


def test_a_linked_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "lock").symlink_to(tmp_path / "secret")
    with pytest.raises(NotPrivateError, match="is a link"):
        open_private(tmp_path / "lock")


@as_root
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    os.chown(tmp_path / "lock", NOBODY, NOBODY)
    with pytest.raises(NotPrivateError, match=f"belongs to user {NOBODY}"):
        open_private(tmp_path / "lock")


def test_a_file_is_made_for_this_user_alone(tmp_path: Path) -> None:
    file = open_private(tmp_path / "new", os.O_WRONLY | os.O_CREAT)
    os.write(file, b"text")
    os.close(file)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600
    assert read_private(tmp_path / "new", 4) == b"text"
    with pytest.raises(NotPrivateError, match="more than 3 bytes"):
        read_private(tmp_path / "new", 3)
