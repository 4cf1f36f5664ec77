from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path
from typing import BinaryIO

import pytest

from holdfast.state.errors import StateStorageError
from holdfast.state.storage.directory import DirectoryStateStorage


@pytest.fixture
def storage(tmp_path: Path) -> DirectoryStateStorage:
    return DirectoryStateStorage(tmp_path)


@pytest.mark.parametrize("durable", [False, True])
def test_write_read_delete(storage: DirectoryStateStorage, durable: bool) -> None:
    storage.write("a.state", b"one", durable=durable)
    storage.write("a.state", b"two", durable=durable)
    assert storage.read("a.state") == b"two"
    assert storage.exists("a.state")
    storage.sync(["a.state"])
    storage.delete("a.state")
    storage.delete("a.state")
    assert not storage.exists("a.state")
    assert storage.list() == []


def test_storage_is_picklable(storage: DirectoryStateStorage) -> None:
    assert pickle.loads(pickle.dumps(storage)).directory == storage.directory


def test_a_missing_file(storage: DirectoryStateStorage) -> None:
    with pytest.raises(StateStorageError, match=r"cannot read state file '.*x\.state': FileNotF"):
        storage.read("x.state")


def test_a_missing_directory(tmp_path: Path) -> None:
    storage = DirectoryStateStorage(tmp_path / "gone")
    with pytest.raises(StateStorageError, match=r"cannot write .*; the directory '.*gone' is miss"):
        storage.write("a.state", b"x")


def test_a_full_disk_leaves_nothing_behind(
    storage: DirectoryStateStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: object, target: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StateStorageError, match="OSError: No space left on device") as caught:
        storage.write("a.state", b"x")
    assert isinstance(caught.value, OSError)
    assert storage.list() == []


def test_no_permission(storage: DirectoryStateStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(path: str) -> BinaryIO:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("holdfast.filesystem.local._open_regular", forbidden)
    with pytest.raises(StateStorageError, match="PermissionError: Permission denied"):
        storage.read("a.state")
