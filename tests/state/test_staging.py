"""State files before a far storage."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from holdfast.filesystem import FileStatus
from holdfast.filesystem.local import LocalFileSystem
from holdfast.state.errors import StateStorageError
from holdfast.state.storage.directory import DirectoryStateStorage
from holdfast.state.storage.staged import StagedStateStorage, state_storage
from holdfast.testing import MemoryFileSystem


class Far(MemoryFileSystem):
    """Another machine; notes what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__(lambda what, path: self.asked.append(f"{what} {path}"), is_remote=True)
        self.make_directories("/far")
        self.asked.clear()

    def read(self, path: str) -> bytes:
        self.asked.append(f"read {path}")
        return super().read(path)

    def list_directory(self, path: str) -> list[FileStatus]:
        self.asked.append(f"list {path}")
        return super().list_directory(path)

    def exists(self, path: str) -> bool:
        self.asked.append(f"exists {path}")
        return super().exists(path)


@pytest.fixture
def far() -> Far:
    return Far()


@pytest.fixture
def staged(far: Far, tmp_path: Path) -> StagedStateStorage:
    storage = StagedStateStorage(tmp_path / "stage", DirectoryStateStorage("/far", far))
    storage.make()
    return storage


def test_without_a_barrier_nobody_asks_the_far_machine(
    far: Far, staged: StagedStateStorage
) -> None:
    staged.write("a", b"1")
    staged.write("b", b"2", durable=True)
    assert (staged.read("a"), staged.read("b")) == (b"1", b"2")
    assert staged.exists("a")
    assert far.asked == []


def test_with_a_barrier_each_file_is_brought_there_once(
    far: Far, staged: StagedStateStorage
) -> None:
    staged.write("a", b"1")
    staged.upload(["a"])
    staged.write("b", b"2")
    staged.upload(["a", "b"])
    staged.sync(["a", "b"])
    assert far.files == {"/far/a": b"1", "/far/b": b"2"}
    assert far.asked == ["write /far/a", "sync /far/a", "write /far/b", "sync /far/b"]
    assert staged.read("a") == b"1"
    assert len(far.asked) == 4, "what was written here is read here"


def test_what_was_brought_there_survives(far: Far, staged: StagedStateStorage) -> None:
    staged.write("a", b"1")
    staged.write("b", b"2")
    staged.upload(["a"])
    far.crash()
    assert far.files == {"/far/a": b"1"}


def test_files_that_others_have_brought_are_looked_up_with_one_call(
    far: Far, staged: StagedStateStorage
) -> None:
    names = [f"state-{number}" for number in range(100)]
    for name in names:
        DirectoryStateStorage("/far", far).write(name, b"1")
    far.asked.clear()
    staged.sync(names)
    assert far.asked == ["list /far"]
    with pytest.raises(StateStorageError, match="cannot sync state file 'x': it is neither in"):
        staged.sync([*names, "x"])


def test_the_driver_brings_what_nobody_has_brought(far: Far, staged: StagedStateStorage) -> None:
    staged.write("a", b"1")
    staged.sync(["a"])
    assert far.files == {"/far/a": b"1"}


def test_a_file_that_is_nowhere_cannot_be_synced(staged: StagedStateStorage) -> None:
    with pytest.raises(StateStorageError, match=r"state file 'x': it is neither in '.*' nor in '/"):
        staged.sync(["x"])
    with pytest.raises(StateStorageError, match="cannot read state file '/far/x'"):
        staged.read("x")


def test_what_had_to_be_fetched_is_kept(far: Far, staged: StagedStateStorage) -> None:
    far.write("/far/a", b"1")
    far.asked.clear()
    assert staged.read("a") == staged.read("a") == b"1"
    assert far.asked == ["read /far/a"]
    staged.sync(["a"])
    assert far.asked == ["read /far/a"], "and known to be there"


def test_two_processes_may_bring_one_file(
    far: Far, staged: StagedStateStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged.write("a", b"1")
    write = Far.write

    def faster(self: Far, path: str, data: bytes, durable: bool = False) -> None:
        monkeypatch.setattr(Far, "write", write)
        staged.upload(["a"])
        write(self, path, data, durable)

    monkeypatch.setattr(Far, "write", faster)
    staged.upload(["a"])
    assert far.files == {"/far/a": b"1"}
    assert staged.read("a") == b"1"


def test_a_far_machine_that_does_not_answer(far: Far, staged: StagedStateStorage) -> None:
    staged.write("a", b"1")
    far.full = True
    with pytest.raises(StateStorageError, match="cannot write state file '/far/a': OSError: No sp"):
        staged.upload(["a"])
    assert staged.read("a") == b"1"
    far.full = False
    staged.upload(["a"])
    assert far.files == {"/far/a": b"1"}


def test_forgotten_nearby_and_deleted_everywhere(far: Far, staged: StagedStateStorage) -> None:
    for name in ("a", "b"):
        staged.write(name, b"1")
    staged.upload(["a"])
    assert {file.name for file in staged.staged()} == {"a", "b"}
    staged.forget("a")
    assert staged.read("a") == b"1"
    staged.delete("a")
    staged.delete("b")
    assert far.files == {}
    assert not staged.exists("a")
    assert staged.staged() == []


def test_only_what_is_on_other_machines_has_a_stage_nearby(far: Far, tmp_path: Path) -> None:
    local = state_storage(tmp_path, LocalFileSystem(), tmp_path)
    assert isinstance(local, DirectoryStateStorage)
    assert isinstance(state_storage("/far", far, None), DirectoryStateStorage)
    assert isinstance(state_storage("/far", far, tmp_path), StagedStateStorage)
    assert isinstance(state_storage("/far", far, "s3a://kept/run"), DirectoryStateStorage)


def test_it_can_be_sent_to_workers(tmp_path: Path) -> None:
    storage = StagedStateStorage(tmp_path / "stage", DirectoryStateStorage(tmp_path / "far"))
    (tmp_path / "far").mkdir()
    storage.make()
    storage.write("a", b"1")
    pickle.loads(pickle.dumps(storage)).upload(["a"])
    assert (tmp_path / "far" / "a").read_bytes() == b"1"
