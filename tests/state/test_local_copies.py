"""Copies of state files on the host: what is read from them, and that nothing depends on them."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from holdfast.common.leftovers import sweep
from holdfast.common.private import NotPrivateError
from holdfast.state.errors import StateStorageError
from holdfast.state.format.files import StateFile, encode_file
from holdfast.state.local_copies import Copies, HostStorage, copies_of
from holdfast.state.settings import StateSettings
from holdfast.testing import MemoryStateStorage

KEY = b"k" * 32


def file(name: str, data: bytes = b"1" * 1000) -> bytes:
    """The bytes of a state file of that name."""
    return encode_file(StateFile((), {("op", "blob"): data}), name, compress=False)


class Host:
    """A subtask's storage on a host, as each attempt makes it."""

    def __init__(self, root: Path) -> None:
        self.settings = StateSettings(directories=(str(root),))
        self.far = MemoryStateStorage()
        self.folder = self.settings.home(KEY, 1, 0) / "files"

    def storage(self) -> HostStorage:
        return HostStorage(self.far, copies_of(self.settings, KEY, 1, 0))

    def copied(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()} if self.folder.exists() else set()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    root = tmp_path / "disk"
    root.mkdir(mode=0o700)
    return Host(root)


def test_what_was_written_here_is_read_here(host: Host) -> None:
    writer = host.storage()
    writer.write("a.state", file("a.state"), durable=True)
    writer.close()
    assert host.far.files == {"a.state": file("a.state")}
    host.far.files.clear()
    reader = host.storage()
    assert reader.read("a.state") == file("a.state")
    assert (reader.reads.stored, reader.reads.local) == (0, len(file("a.state")))


def test_a_file_that_the_storage_refuses_is_not_copied(host: Host) -> None:
    class Full(MemoryStateStorage):
        def write(self, name: str, data: bytes, durable: bool = False) -> None:
            raise StateStorageError("no space left")

    host.far = Full()
    with pytest.raises(StateStorageError, match="no space left"):
        host.storage().write("a.state", file("a.state"))
    assert host.copied() == set()


def test_what_is_missing_is_read_from_the_storage_and_kept_if_it_is_the_subtask_s(
    host: Host,
) -> None:
    names = ("own.state", "another.state")
    for name in names:
        host.far.write(name, file(name))
    for stored in (sum(len(file(name)) for name in names), len(file("another.state"))):
        storage = host.storage()
        storage.keep({"own.state"})
        assert [storage.read(name) for name in names] == [file(name) for name in names]
        assert storage.reads.stored == stored
        assert host.copied() == {"own.state"}


@pytest.mark.parametrize("damage", ["cut", "flipped", "swapped", "empty", "link", "pipe"])
def test_a_copy_that_is_not_whole_is_not_used(host: Host, damage: str) -> None:
    writer = host.storage()
    for name in ("a.state", "b.state"):
        writer.write(name, file(name))
    copy, whole = host.folder / "a.state", file("a.state")
    flipped = bytearray(whole)
    flipped[-50] ^= 1
    content = {"cut": whole[:-1], "flipped": bytes(flipped), "swapped": file("b.state")}
    if damage in ("link", "pipe"):
        copy.unlink()
        if damage == "pipe":
            os.mkfifo(copy)
        else:
            copy.symlink_to(host.folder / "b.state")
    else:
        copy.write_bytes(content.get(damage, b""))
    reader = host.storage()
    reader.keep({"a.state", "b.state"})
    assert reader.read("a.state") == whole
    assert (reader.reads.stored, reader.reads.local, reader.reads.damaged) == (len(whole), 0, 1)
    again = host.storage()
    assert again.read("a.state") == whole
    assert (again.reads.stored, again.reads.damaged) == (0, 0), "the copy was written anew"


def test_copies_of_files_that_nobody_needs_any_more_are_deleted(host: Host) -> None:
    storage = host.storage()
    for name in ("a.state", "b.state", "c.state"):
        storage.write(name, file(name))
    (host.folder / ".a.state.123.tmp").write_bytes(b"of a process that was killed")
    storage.keep({"b.state", "c.state"})
    assert host.copied() == {"b.state", "c.state"}
    assert len(host.far.files) == 3, "the driver says what goes from the storage"


def test_tables_are_not_copied_because_the_backend_has_them(host: Host) -> None:
    storage = host.storage()
    storage.write("1.table", file("1.table"))
    storage.keep({"1.table"})
    assert storage.read("1.table") == file("1.table")
    assert host.copied() == set()


def test_a_disk_that_is_full_costs_a_warning(
    host: Host, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("holdfast.state.local_copies.open_private", fail)
    storage = host.storage()
    with caplog.at_level(logging.WARNING):
        storage.write("a.state", file("a.state"))
        storage.write("b.state", file("b.state"))
    assert set(host.far.files) == {"a.state", "b.state"}
    (told,) = caplog.messages
    assert "cannot store a copy of state file 'a.state'" in told
    assert "set 'execution.state-recovery.from-local' to false" in told


def test_a_directory_that_others_can_write_to_is_not_used(host: Host) -> None:
    host.storage().write("a.state", file("a.state"))
    host.folder.parent.parent.chmod(0o777)
    storage = host.storage()
    assert storage.read("a.state") == file("a.state")
    assert (storage.reads.local, storage.reads.damaged) == (0, 1)
    with pytest.raises(NotPrivateError):
        Copies(host.folder.parent).read("a.state")


def test_nothing_can_be_guessed_of_the_place_without_the_job_s_key(host: Host) -> None:
    names = {host.settings.home(key, 1, 0).parent.name for key in (KEY, b"x" * 32)}
    assert len(names) == 2
    assert all(name.startswith("holdfast-state-") for name in names)


def test_a_host_may_be_told_to_keep_none(host: Host) -> None:
    assert copies_of(StateSettings(from_local=False), KEY, 1, 0) is None
    storage = HostStorage(host.far, None)
    storage.write("a.state", file("a.state"))
    storage.keep({"a.state"})
    storage.read("a.state")
    assert storage.reads.stored == len(file("a.state"))


def test_what_a_driver_that_is_gone_has_left_is_swept(host: Host) -> None:
    storage = host.storage()
    storage.write("a.state", file("a.state"))
    root = Path(host.settings.directories[0])
    sweep(root)
    assert host.copied() == {"a.state"}, "a process uses it"
    storage.close()
    sweep(root)
    assert list(root.iterdir()) == []


def test_a_job_that_has_ended_leaves_nothing(host: Host) -> None:
    storage = host.storage()
    storage.write("a.state", file("a.state"))
    storage.close(ended=True)
    assert list(Path(host.settings.directories[0]).iterdir()) == []
