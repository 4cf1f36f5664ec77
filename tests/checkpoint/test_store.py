from __future__ import annotations

import errno
import logging
import os
import pickle
import random
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.checkpoint.errors import (
    CheckpointCorruptionError,
    CheckpointError,
    CheckpointStorageError,
    DirectoryInUseError,
)
from holdfast.checkpoint.metadata import CheckpointMetadata, LevelImage, OperatorImage, encode
from holdfast.checkpoint.savepoints import copy_savepoint, dispose_savepoint, read_savepoint
from holdfast.checkpoint.store import CheckpointStore
from holdfast.filesystem import FileSystem, configure, file_system_of, join
from holdfast.filesystem.local import LOCAL
from holdfast.state.errors import StateStorageError
from holdfast.state.format.files import StateFile, encode_file
from holdfast.state.format.head import FileRef, Head
from holdfast.testing import MemoryFileSystem

CONTENTS = encode_file(StateFile([], {("op", "blob"): b"some state"}))


class Place(NamedTuple):
    """A file system, and the address of a directory in it that is not there yet."""

    files: FileSystem
    address: str
    path: str

    def read(self, name: str) -> bytes:
        return self.files.read(join(self.path, name))

    def write(self, name: str, data: bytes) -> None:
        self.files.write(join(self.path, name), data)

    def copy(self, source: str, target: str) -> None:
        """Copy a directory, as somebody may who moves a savepoint."""
        self.files.make_directories(join(self.path, target))
        for status in self.files.list_directory(join(self.path, source)):
            if status.is_directory:
                self.copy(join(source, status.name), join(target, status.name))
            else:
                self.write(join(target, status.name), self.read(join(source, status.name)))

    def tree(self, below: str = "") -> set[str]:
        """All files."""
        found: set[str] = set()
        for status in self.files.list_directory(join(self.path, below)):
            name = join(below, status.name).lstrip("/")
            found |= self.tree(name) if status.is_directory else {name}
        return found


@pytest.fixture
def local(tmp_path: Path) -> Place:
    return Place(LOCAL, str(tmp_path / "top"), str(tmp_path / "top"))


@pytest.fixture(params=["local", "memory", "s3"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Every file system that checkpoints are tested on."""
    if request.param == "memory":
        yield Place(MemoryFileSystem(), "/top", "/top")
    elif request.param == "local":
        yield request.getfixturevalue("local")
    else:
        s3 = request.getfixturevalue("s3")
        configure(s3.options)
        address = f"{s3.uri}/top"
        files, path = file_system_of(address)
        yield Place(files, address, path)
        configure({})


@pytest.fixture
def store(place: Place, tmp_path: Path) -> Iterator[CheckpointStore]:
    store = CheckpointStore(join(place.path, "job"), place.files, tmp_path / "scratch")
    store.acquire("words")
    yield store
    store.release()


@pytest.fixture
def local_store(local: Place) -> Iterator[CheckpointStore]:
    store = CheckpointStore(join(local.path, "job"))
    store.acquire("words")
    yield store
    store.release()


def again(store: CheckpointStore) -> CheckpointStore:
    """The same directory, seen by a driver that knows of nothing."""
    return CheckpointStore(store.directory, store.state.files)


def image(checkpoint: int, *files: str, job: str = "words") -> CheckpointMetadata:
    refs = tuple(FileRef(name, len(CONTENTS), n - 1, n) for n, name in enumerate(files))
    return CheckpointMetadata(
        id=checkpoint,
        timestamp=1000 * checkpoint,
        epoch=10 * checkpoint,
        job_name=job,
        savepoint=False,
        levels=(LevelImage(1, (Head(refs, tuple(files)),)),),
        operators={"sum": OperatorImage("Sum", "process", 1, 128, 0)},
    )


def save(store: CheckpointStore, checkpoint: int, *files: str) -> CheckpointMetadata:
    """Write the files that are not there, and the checkpoint."""
    for name in files:
        if not store.storage.exists(name):
            store.storage.write(name, CONTENTS)
    metadata = image(checkpoint, *files)
    store.write(metadata)
    return metadata


def listing(store: CheckpointStore) -> set[str]:
    path = str(store.directory)
    return Place(store.state.files, path, path).tree() - {"lock"}


def test_write_and_read(store: CheckpointStore) -> None:
    assert store.latest() is None
    assert store.completed() == []
    one, two = save(store, 9, "a"), save(store, 10, "a", "b")
    assert store.completed() == [9, 10]
    assert store.latest() == two
    assert store.latest(deep=True) == two
    assert store.read(9) == one
    assert listing(store) == {"chk-9/_metadata", "chk-10/_metadata", "state/a", "state/b"}
    assert again(store).latest(deep=True) == two


def test_the_storage_can_be_sent_to_workers(local_store: CheckpointStore) -> None:
    local_store.storage.write("a", CONTENTS)
    assert pickle.loads(pickle.dumps(local_store.storage)).read("a") == CONTENTS


def test_other_things_in_the_directory_do_not_matter(store: CheckpointStore) -> None:
    save(store, 1, "a")
    for name in ("chk-x", "spark"):
        store.state.files.make_directories(str(store.directory / name))
    assert store.completed() == [1]


def test_a_checkpoint_is_written_once(store: CheckpointStore) -> None:
    save(store, 1, "a")
    with pytest.raises(
        CheckpointStorageError, match=r"checkpoint 1: '.*chk-1' is complete already"
    ):
        store.write(image(1, "a"))


def test_ids_are_never_given_twice(store: CheckpointStore) -> None:
    assert store.next_id() == 1
    store.begin(1)
    assert store.next_id() == 2
    save(store, 2, "a")
    store.begin(3)
    assert again(store).next_id() == 4
    save(store, 4, "a")
    names = {status.name for status in store.state.files.list_directory(str(store.directory))}
    assert names - {"lock", "state"} == {"chk-2", "chk-4"}
    store.discard(4)
    store.discard(2)
    assert store.completed() == []
    assert store.next_id() == 5


# Damage


def damage(store: CheckpointStore, name: str, how: str) -> None:
    files, path = store.state.files, str(store.directory / name)
    data = files.read(path)
    if how == "gone":
        files.delete(path)
    elif how == "cut short":
        files.write(path, data[:-1])
    else:
        files.write(path, bytes([*data[:40], data[40] ^ 1, *data[41:]]))


@pytest.mark.parametrize(
    ("file", "how", "found"),
    [
        ("chk-2/_metadata", "changed", r"expected checksum \w+, found \w+"),
        ("chk-2/_metadata", "cut short", r"expected \d+ bytes, found \d+"),
        ("state/b", "gone", r"expected \d+ bytes, found no such file"),
        ("state/b", "cut short", r"expected \d+ bytes, found \d+"),
        ("state/b", "changed", r"state file 'b' cannot be used: expected checksum"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over(
    store: CheckpointStore, caplog: pytest.LogCaptureFixture, file: str, how: str, found: str
) -> None:
    one = save(store, 1, "a")
    save(store, 2, "a", "b")
    damage(store, file, how)
    with caplog.at_level(logging.WARNING):
        assert store.latest(deep=True) == one
    (warning,) = caplog.messages
    assert f"{store.address}/{file}" in warning
    assert warning.endswith("; going back to checkpoint 1 instead")
    assert re.search(found, warning)


def test_if_all_are_damaged_the_user_decides(store: CheckpointStore) -> None:
    save(store, 1, "a")
    save(store, 2, "b")
    damage(store, "state/a", "gone")
    damage(store, "state/b", "gone")
    expected = (
        r"(?s)no checkpoint in '.*' can be used:\n  checkpoint 2 .*\n  checkpoint 1 cannot be "
    )
    with pytest.raises(CheckpointCorruptionError, match=expected):
        store.latest()


def test_metadata_in_the_wrong_place(store: CheckpointStore) -> None:
    save(store, 1, "a")
    files, home = store.state.files, store.directory
    files.move(str(home / "chk-1" / "_metadata"), str(home / "chk-3" / "_metadata"))
    with pytest.raises(
        CheckpointCorruptionError, match="expected checkpoint 3, found checkpoint 1"
    ):
        store.read(3)


def test_no_such_checkpoint(store: CheckpointStore) -> None:
    with pytest.raises(
        CheckpointStorageError, match=r"cannot read checkpoint '.*chk-5/_metadata': F"
    ):
        store.read(5)


def test_storage_that_does_not_answer_is_no_damage(
    local_store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = local_store
    save(store, 1, "a")
    save(store, 2, "a")

    def refuse(path: str) -> BinaryIO:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("holdfast.filesystem.local._open_regular", refuse)
    with pytest.raises(
        CheckpointStorageError, match="chk-2/_metadata': PermissionError: Permission"
    ):
        store.latest()


# Failure to write


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("succeed", [0, 1, 2, 3])
def test_a_full_disk_loses_nothing(
    local_store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, call: str, succeed: int
) -> None:
    """Fail at each call of its kind, one after another."""
    store = local_store
    one = save(store, 1, "a")
    store.storage.write("b", CONTENTS)
    before = listing(store)
    calls, real = 0, getattr(os, call)

    def full(*args: object) -> None:
        nonlocal calls
        calls += 1
        if calls > succeed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(*args)

    monkeypatch.setattr(os, call, full)
    if call == "replace" and succeed:
        store.write(image(2, "a", "b"))
        return
    with pytest.raises((CheckpointStorageError, StateStorageError), match="No space left on dev"):
        store.write(image(2, "a", "b"))
    monkeypatch.undo()
    assert listing(store) == before
    assert store.latest() == one
    store.write(image(2, "a", "b"))
    assert store.latest() == image(2, "a", "b")


def test_a_state_file_that_is_missing_makes_no_checkpoint(store: CheckpointStore) -> None:
    with pytest.raises(StateStorageError, match=r"cannot sync state file '(.*state/)?a'"):
        store.write(image(1, "a"))
    assert store.completed() == []


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = CheckpointStore(tmp_path / "file" / "job")
    expected = "cannot make checkpoint directory '.*file/job': NotADirectoryError"
    with pytest.raises(CheckpointStorageError, match=expected):
        store.acquire()


def test_only_new_state_files_are_made_durable(
    local_store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = local_store
    save(store, 1, "a", "b")
    synced: list[str] = []
    monkeypatch.setattr(type(store.storage), "sync", lambda _, names: synced.extend(names))
    save(store, 2, "a", "b", "c")
    assert synced == ["c"]
    again(store).write(image(3, "a"))
    assert synced == ["c", "a"]


# Letting go


def test_a_state_file_goes_after_the_last_one_that_needs_it(store: CheckpointStore) -> None:
    save(store, 1, "a", "b")
    save(store, 2, "a", "c")
    store.storage.write("live", CONTENTS)
    store.storage.write("zombie", CONTENTS)
    store.storage.upload(["live", "zombie"])
    assert store.unreferenced({"live"}) == {"zombie"}
    store.discard(1)
    assert store.collect({"live"}) == {"b", "zombie"}
    # by a driver that knows of nothing yet
    other = again(store)
    assert other.collect({"live"}) == set()
    other.discard(2)
    assert other.unreferenced({"live", "c"}) == {"a"}


def test_files_of_epochs_that_are_being_stored_are_left_alone(store: CheckpointStore) -> None:
    save(store, 1, "9-0-0-aa.state")
    names = ["9-0-1-bb.state", "10-0-0-cc.state", "10-0-0-cc-000012.table", "made-11.state"]
    for name in names:
        store.storage.write(name, CONTENTS)
    store.storage.upload(names)
    assert store.collect((), since=10) == {"9-0-1-bb.state", "made-11.state"}
    assert store.storage.read("10-0-0-cc.state") == CONTENTS
    assert store.collect((), since=11) == {"10-0-0-cc.state", "10-0-0-cc-000012.table"}


def test_a_draft_is_deleted_when_nobody_can_be_writing_it_any_more(store: CheckpointStore) -> None:
    drafts = {f".{epoch}-0-0-aa.state.0123.tmp" for epoch in (9, 10)}
    for name in drafts:
        store.state.write(name, CONTENTS)
    assert store.collect((), since=10) == {".9-0-0-aa.state.0123.tmp"}
    assert store.collect(()) == {".10-0-0-aa.state.0123.tmp"}


def test_nothing_is_deleted_while_a_checkpoint_cannot_be_read(
    store: CheckpointStore, caplog: pytest.LogCaptureFixture
) -> None:
    save(store, 1, "a")
    save(store, 2, "b")
    damage(store, "chk-1/_metadata", "changed")
    other = again(store)
    assert other.collect(()) == set()
    assert "no state file is deleted until this is resolved: checkpoint file" in caplog.text
    other.discard(1)
    assert other.collect(()) == {"a"}


def test_discarding_twice(store: CheckpointStore) -> None:
    save(store, 1, "a")
    save(store, 2, "a")
    store.discard(1)
    store.discard(1)
    assert store.completed() == [2]


ACTIONS = st.lists(st.sampled_from(["write", "discard", "collect", "restart"]), max_size=30)


@settings(max_examples=40, deadline=None)
@given(ACTIONS, st.randoms(use_true_random=False))
def test_retention_never_deletes_what_is_needed(
    tmp_path_factory: pytest.TempPathFactory, actions: list[str], choice: random.Random
) -> None:
    """A head that grows and folds; any checkpoint of it stays whole until it is discarded."""
    store = CheckpointStore(tmp_path_factory.mktemp("job"))
    LOCAL.make_directories(str(store.state.directory))
    live: list[str] = []
    written: dict[int, CheckpointMetadata] = {}
    for number, action in enumerate(actions):
        if action == "write":
            live = [*live[: choice.randint(0, len(live))], f"f{number}"]
            checkpoint = store.next_id()
            written[checkpoint] = save(store, checkpoint, *live)
        elif action == "discard" and written:
            checkpoint = choice.choice(sorted(written))
            del written[checkpoint]
            store.discard(checkpoint)
        elif action == "collect":
            store.collect(live)
            needed = set(live).union(*(metadata.files() for metadata in written.values()))
            assert {file.name for file in store.state.list()} == needed
        elif action == "restart":
            store = again(store)
        assert store.completed() == sorted(written)
        assert store.latest(deep=True) == written.get(max(written, default=0))
        assert all(store.storage.exists(name) for name in live)


# The lock


def test_a_directory_in_use_by_another_process_is_refused(tmp_path: Path) -> None:
    code = (
        "import sys; from holdfast.checkpoint.store import CheckpointStore; "
        "store = CheckpointStore(sys.argv[1]); store.acquire('other job'); "
        "print('locked', flush=True); sys.stdin.read()"
    )
    store = CheckpointStore(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "locked\n"
        expected = (
            rf"checkpoint directory '{tmp_path}' is in use by another live job: 'other job', "
            rf"process {process.pid} on host '.*'; stop that job, or give this one another"
        )
        with pytest.raises(DirectoryInUseError, match=expected):
            store.acquire()
        process.kill()
        process.stdin.close()
    # the system lets go of the lock with the process
    store.acquire()
    store.release()


def test_a_directory_in_use_by_this_process_is_refused(local_store: CheckpointStore) -> None:
    store, other = local_store, again(local_store)
    with pytest.raises(DirectoryInUseError, match=f"'words', process {os.getpid()} on host"):
        other.acquire()
    store.acquire()
    store.release()
    other.acquire()
    other.release()


def test_a_lock_file_that_says_nothing(local_store: CheckpointStore) -> None:
    Path(local_store.directory / "lock").write_bytes(b"")
    with pytest.raises(DirectoryInUseError, match="is in use by another live job; stop that job"):
        again(local_store).acquire()


# The end of the job


def test_a_finished_job_has_nothing_to_recover(store: CheckpointStore) -> None:
    save(store, 1, "a")
    store.mark_finished()
    store.mark_finished()
    assert store.notes.is_finished()
    assert store.latest() is None
    store.clear_finished()
    assert not store.notes.is_finished()
    assert store.completed() == []
    assert store.next_id() == 2
    store.clear_finished()


# Savepoints


def test_a_savepoint_is_self_contained_and_movable(place: Place, store: CheckpointStore) -> None:
    metadata = save(store, 7, "a", "b")
    store.storage.write("other", CONTENTS)
    savepoint = copy_savepoint(metadata, store.storage, f"{place.address}/deep/sp", place.files)
    name = savepoint.removeprefix(f"{place.address}/")
    assert re.fullmatch(r"deep/sp/savepoint-words-7-\w{8}", name)
    store.discard(7)
    store.collect(())
    place.copy(name, "elsewhere")
    place.files.delete_tree(join(place.path, "deep"))
    moved = f"{place.address}/elsewhere"
    for address in (moved, f"{moved}/_metadata"):
        saved = read_savepoint(address, place.files)
        assert saved.address == moved
        assert saved.metadata.savepoint
        assert saved.metadata.levels == metadata.levels
        assert saved.storage.read("a") == CONTENTS
        assert store.storage.elsewhere(saved.storage.address).read("b") == CONTENTS
    assert [file.name for file in saved.storage.list()] == ["a", "b"]


def test_a_retained_checkpoint_can_be_read_like_a_savepoint(
    place: Place, store: CheckpointStore
) -> None:
    metadata = save(store, 7, "a")
    saved = read_savepoint(f"{store.address}/chk-7", place.files)
    assert saved.metadata == metadata
    assert saved.storage.address == store.state.address


def test_savepoints_never_have_one_name(local_store: CheckpointStore, tmp_path: Path) -> None:
    save(local_store, 7, "a")
    metadata = image(7, "a", job="The job: über/all")
    made = {copy_savepoint(metadata, local_store.storage, tmp_path / "sp") for _ in range(3)}
    assert len(made) == 3
    assert all(re.match("savepoint-The-job-ber-all-7-", Path(path).name) for path in made)


def test_a_savepoint_of_a_damaged_file(place: Place, store: CheckpointStore) -> None:
    metadata, target = save(store, 7, "a"), f"{place.address}/sp"

    def copy() -> None:
        copy_savepoint(metadata, store.state, target, place.files)

    damage(store, "state/a", "changed")
    with pytest.raises(
        CheckpointCorruptionError, match="state file 'a' cannot be used: expected c"
    ):
        copy()
    damage(store, "state/a", "cut short")
    with pytest.raises(
        CheckpointCorruptionError, match=r"'a' cannot be saved: expected \d+ bytes, f"
    ):
        copy()
    damage(store, "state/a", "gone")
    with pytest.raises(
        CheckpointStorageError, match=r"savepoint-words-7-\w+': StateStorageError: cannot"
    ):
        copy()
    assert place.tree("sp") == set()


def test_a_savepoint_on_a_full_disk(
    local_store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = save(local_store, 7, "a")

    def full(source: object, target: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(
        CheckpointStorageError, match=r"cannot write savepoint '.*': .*: No space left"
    ):
        copy_savepoint(metadata, local_store.storage, tmp_path / "sp")
    assert list((tmp_path / "sp").iterdir()) == []


def test_what_is_no_savepoint(place: Place, store: CheckpointStore) -> None:
    with pytest.raises(
        CheckpointStorageError, match=r"there is no savepoint or checkpoint in '.*no'"
    ):
        read_savepoint(f"{place.address}/no", place.files)
    made = copy_savepoint(save(store, 7, "a"), store.storage, place.address, place.files)
    place.files.delete(join(place.path, made.removeprefix(place.address), "state/a"))
    with pytest.raises(
        CheckpointCorruptionError, match=f"savepoint 7 cannot be used: its state file '{made}/st"
    ):
        read_savepoint(made, place.files)


def test_dispose(place: Place, store: CheckpointStore) -> None:
    made = copy_savepoint(save(store, 7, "a"), store.storage, f"{place.address}/sp", place.files)
    dispose_savepoint(made, place.files)
    assert place.tree("sp") == set()
    with pytest.raises(CheckpointStorageError, match="cannot read checkpoint"):
        dispose_savepoint(made, place.files)
    with pytest.raises(CheckpointError, match="chk-7' is a checkpoint of a job, not a savepoint"):
        dispose_savepoint(f"{store.address}/chk-7", place.files)
    assert store.latest() is not None


def test_what_is_written_is_what_the_format_says(store: CheckpointStore) -> None:
    metadata = save(store, 1, "a")
    path = str(store.directory / "chk-1" / "_metadata")
    assert store.state.files.read(path) == encode(metadata)


# A crash of the machine


class Death(BaseException):
    """The process ends."""


def die_at(files: MemoryFileSystem, what: str, path: str, *, nth: int = 1) -> None:
    """Let the process die before the n-th step of that kind."""
    left = nth

    def watch(step: str, where: str) -> None:
        nonlocal left
        left -= (step, where) == (what, path)
        if not left:
            files.watch = None
            raise Death

    files.watch = watch


def reopened(files: MemoryFileSystem) -> CheckpointStore:
    store = CheckpointStore("/all/job", files)
    store.acquire()
    return store


@pytest.mark.parametrize("directory", ["/", "/all", "/all/job"])
def test_a_directory_that_a_dead_process_made_is_durable_before_it_is_used(directory: str) -> None:
    files = MemoryFileSystem()
    die_at(files, "sync", directory)
    with pytest.raises(Death):
        reopened(files)
    save(reopened(files), 1, "a")
    files.crash()
    assert reopened(files).latest(deep=True) == image(1, "a")


def test_a_savepoint_directory_that_a_dead_process_made(local_store: CheckpointStore) -> None:
    metadata, files = save(local_store, 1, "a"), MemoryFileSystem()
    die_at(files, "sync", "/")
    with pytest.raises(Death):
        copy_savepoint(metadata, local_store.storage, "/sp", files)
    path = copy_savepoint(metadata, local_store.storage, "/sp", files)
    files.crash()
    assert read_savepoint(path, files).metadata.levels == metadata.levels


@pytest.mark.parametrize("discarded", [1, 2])
def test_a_crash_brings_no_discarded_checkpoint_back_without_its_state(discarded: int) -> None:
    files = MemoryFileSystem()
    store = reopened(files)
    save(store, 1, "a")
    save(store, 2, "b")
    store.discard(discarded)
    store.collect(())
    files.sync("/all/job/state")
    files.crash()
    assert reopened(files).completed() == [3 - discarded]


def test_a_crash_brings_no_checkpoint_of_a_finished_run_back() -> None:
    """The process died while it cleaned up; the next run cannot see what was deleted already."""
    files = MemoryFileSystem()
    store = reopened(files)
    save(store, 1, "a")
    store.mark_finished()
    die_at(files, "sync", "/all/job/chk-1")
    with pytest.raises(Death):
        store.discard(1)
    store.release()
    store = reopened(files)
    store.clear_finished()
    files.crash()
    again = reopened(files)
    assert not again.notes.is_finished()
    assert again.completed() == []


def test_the_mark_of_a_finished_run_does_not_come_back() -> None:
    files = MemoryFileSystem()
    store = reopened(files)
    store.mark_finished()
    files.crash()
    store = reopened(files)
    assert store.notes.is_finished()
    store.clear_finished()
    files.crash()
    assert not reopened(files).notes.is_finished()


def test_others_cannot_read_local_checkpoints_and_savepoints(
    local_store: CheckpointStore, tmp_path: Path
) -> None:
    kept = save(local_store, 1, "a")
    saved = copy_savepoint(kept, local_store.storage, tmp_path / "savepoints")
    for path in (local_store.directory, saved):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
