from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.checkpoint.errors import DirectoryInUseError
from holdfast.checkpoint.store import CheckpointStore
from holdfast.filesystem import LocalFileSystem
from holdfast.testing import MemoryFileSystem

PATHS = st.sampled_from(["a", "b", "c/x", "c/y", "d/e/x", "a/z"])
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["read", "write", "sync", "move", "delete", "delete_tree", "status", "list", "make"]
        ),
        PATHS,
        st.binary(max_size=3),
    ),
    max_size=25,
)


def outcome(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def do(files: Any, root: str, action: str, path: str, data: bytes) -> Any:
    place = f"{root}/{path}"
    match action:
        case "read":
            return files.read(place)
        case "write":
            return files.write(place, data, durable=bool(data))
        case "sync":
            return files.sync(place)
        case "move":
            return files.move(place, f"{os.path.dirname(place)}/moved")
        case "delete":
            return files.delete(place)
        case "delete_tree":
            return files.delete_tree(place)
        case "status":
            found = files.status(place)
            return found and (found.name, found.is_directory, found.is_directory or found.size)
        case "list":
            return [(s.name, s.is_directory) for s in files.list_directory(place)]
        case "make":
            return files.make_directories(os.path.dirname(place))


@settings(max_examples=200, deadline=None)
@given(ACTIONS)
def test_without_a_crash_it_is_like_the_local_one(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, str, bytes]]
) -> None:
    root = str(tmp_path_factory.mktemp("root"))
    local, memory = LocalFileSystem(), MemoryFileSystem()
    memory.make_directories(root)
    for action, path, data in actions:
        expected = outcome(lambda: do(local, root, action, path, data))  # noqa: B023
        assert outcome(lambda: do(memory, root, action, path, data)) == expected, (action, path)  # noqa: B023
    found = {str(p): p.read_bytes() for p in Path(root).rglob("*") if p.is_file()}
    assert memory.files == found


def prepared(*names: str) -> MemoryFileSystem:
    files = MemoryFileSystem()
    files.make_directories("/d")
    for name in names:
        files.write(f"/d/{name}", name.encode(), durable=True)
    return files


def test_a_crash_takes_what_was_not_durable() -> None:
    files = prepared("old", "gone", "changed")
    files.write("/d/new", b"new")
    files.delete("/d/gone")
    files.write("/d/changed", b"other")
    assert files.files == {"/d/changed": b"other", "/d/new": b"new", "/d/old": b"old"}
    files.crash()
    assert files.files == {"/d/changed": b"changed", "/d/gone": b"gone", "/d/old": b"old"}


def test_a_durable_name_of_a_file_that_is_not() -> None:
    files = prepared()
    files.write("/d/a", b"a")
    files.sync("/d")
    files.crash()
    assert files.files == {"/d/a": b""}


def test_a_durable_file_whose_name_is_not() -> None:
    files = prepared()
    files.write("/d/a", b"a")
    files.sync("/d/a")
    files.crash()
    assert files.files == {}


def test_chance_decides_about_each_change() -> None:
    seen = set()
    for seed in range(200):
        files = prepared("a", "b")
        files.delete("/d/a")
        files.write("/d/c", b"cc")
        files.move("/d/b", "/d/m")
        files.crash(Random(seed))
        seen.add(tuple(sorted(files.files.items())))
        assert ("/d/b" in files.files) is not ("/d/m" in files.files), "a move is one step"
    states = {frozenset(dict(state)) & {"/d/a", "/d/c", "/d/m"} for state in seen}
    assert len(states) == 8
    assert {dict(state).get("/d/c") for state in seen} == {None, b"", b"c", b"cc"}


def test_what_came_through_one_crash_survives_the_next() -> None:
    files = prepared()
    for number in range(9):
        files.write(f"/d/{number}", b"data")
    files.crash(Random(1))
    left = files.files
    files.crash()
    assert files.files == left
    assert 0 < len(left) < 9


def test_a_full_disk() -> None:
    files = prepared("a")
    files.full = True
    with pytest.raises(OSError, match=r"cannot write '/d/b': OSError: No space left on device"):
        files.write("/d/b", b"b")
    with pytest.raises(OSError, match="No space left"):
        files.make_directories("/e")
    files.delete("/d/a")
    assert files.files == {}


def test_a_write_whose_name_cannot_be_made_durable_leaves_nothing() -> None:
    def fail(what: str, path: str) -> None:
        if what == "sync":
            raise OSError(errno.EIO, "broken")

    files = prepared()
    files.watch = fail
    with pytest.raises(OSError, match="broken"):
        files.write("/d/a", b"a", durable=True)
    assert files.files == {}


def test_a_process_that_dies_in_a_write_leaves_half_a_file_under_another_name() -> None:
    class Death(BaseException):
        pass

    def die(what: str, path: str) -> None:
        raise Death

    files = prepared("a")
    files.watch = die
    with pytest.raises(Death):
        files.write("/d/a", b"1234")
    assert files.files == {"/d/.a.tmp": b"12", "/d/a": b"a"}


def test_a_lock_ends_with_the_machine() -> None:
    files = MemoryFileSystem()
    CheckpointStore("/job", files).acquire("words")
    with pytest.raises(DirectoryInUseError, match="is in use by another live job: 'words'"):
        CheckpointStore("/job", files).acquire()
    files.crash()
    CheckpointStore("/job", files).acquire()
