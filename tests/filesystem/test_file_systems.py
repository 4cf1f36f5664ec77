"""One suite for all: local, in memory, and pyarrow's over local files, S3 and a real HDFS."""

from __future__ import annotations

import os
import pickle
import stat
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from holdfast.errors import HoldfastError
from holdfast.filesystem import (
    FileSystem,
    FileSystemError,
    LocalFileSystem,
    MissingFileError,
    file_system_of,
    join,
)
from holdfast.filesystem.arrow import ArrowFileSystem
from holdfast.filesystem.local import LOCAL
from holdfast.testing import MemoryFileSystem
from tests.another_user import NOBODY, as_root

#: a file system and a directory in it that is not there yet
Place = tuple[FileSystem, str]


@pytest.fixture(
    params=[
        *("local", "memory", "arrow", "s3"),
        pytest.param("hdfs", marks=pytest.mark.spark),
        pytest.param("webhdfs", marks=pytest.mark.spark),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "memory":
        return MemoryFileSystem(), "/top"
    if request.param == "local":
        return LocalFileSystem(), str(tmp_path / "top")
    if request.param == "arrow":  # as HDFS: directories, and a rename
        return ArrowFileSystem("file://"), str(tmp_path / "top")
    if request.param in ("hdfs", "webhdfs"):
        return file_system_of(f"{request.getfixturevalue(request.param)}/{uuid.uuid4().hex}/top")
    s3 = request.getfixturevalue("s3")
    return file_system_of(f"{s3.uri}/top", s3.options)


def put(system: FileSystem, path: str, data: bytes, durable: bool = False) -> None:
    """Write a file whose directory need not be there."""
    system.make_directories(path.rpartition("/")[0])
    system.write(path, data, durable)


def names(system: FileSystem, path: str) -> list[str]:
    return [status.name for status in system.list_directory(path)]


def test_what_is_written_can_be_read(place: Place) -> None:
    system, top = place
    path = join(top, "a", "b.bin")
    put(system, path, b"one")
    assert system.read(path) == b"one"
    system.write(path, b"two", durable=True)
    assert system.read(path) == b"two"
    assert names(system, join(top, "a")) == ["b.bin"]


def test_a_stream_is_written_in_pieces_and_read_from_anywhere(place: Place) -> None:
    system, top = place
    path = join(top, "a", "stream")
    piece = bytes(range(256)) * 4096
    with system.open_output(path) as out:
        for _ in range(12):  # more than one part of a multipart upload
            out.write(piece)
    status = system.status(path)
    assert status is not None
    assert (status.name, status.size, status.is_directory) == ("stream", 12 * len(piece), False)
    with system.open_input(path) as source:
        assert source.read(3) == b"\x00\x01\x02"
        source.seek(len(piece) * 11 + 255)
        assert source.read(2) == b"\xff\x00"


def test_a_file_is_not_compressed_by_its_name(place: Place) -> None:
    system, top = place
    with system.open_output(join(top, "x.gz")) as out:
        out.write(b"plain")
    assert system.read(join(top, "x.gz")) == b"plain"
    with system.open_input(join(top, "x.gz")) as source:
        assert source.read() == b"plain"


def test_a_directory_lists_what_is_in_it(place: Place) -> None:
    system, top = place
    assert system.list_directory(top) == []
    put(system, join(top, "b"), b"12")
    put(system, join(top, "a", "deep", "x"), b"1")
    found = system.list_directory(top)
    assert [(status.name, status.is_directory) for status in found] == [("a", True), ("b", False)]
    assert found[1].size == 2
    assert found[1].modified > 1_600_000_000_000 or system.uri(top).startswith("webhdfs:")


def test_a_move_replaces(place: Place) -> None:
    system, top = place
    put(system, join(top, "new"), b"new")
    put(system, join(top, "there", "old"), b"old")
    system.move(join(top, "new"), join(top, "there", "old"))
    assert system.read(join(top, "there", "old")) == b"new"
    assert not system.exists(join(top, "new"))
    system.move(join(top, "there", "old"), join(top, "made", "by", "move"))
    assert system.read(join(top, "made", "by", "move")) == b"new"


@pytest.mark.spark
def test_a_file_of_hdfs_is_replaced_in_one_step(hdfs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own protocol can do that, so that a reader always finds one of the two."""
    system, top = file_system_of(f"{hdfs}/{uuid.uuid4().hex}")
    put(system, join(top, "x"), b"old")
    monkeypatch.setattr(system, "delete", refuse)
    system.write(join(top, "x"), b"new")
    assert system.read(join(top, "x")) == b"new"


def test_deleting_what_is_not_there_is_fine(place: Place) -> None:
    system, top = place
    put(system, join(top, "a", "b", "x"), b"1")
    put(system, join(top, "a", "y"), b"1")
    system.delete(join(top, "a", "y"))
    system.delete(join(top, "a", "y"))
    assert names(system, join(top, "a")) == ["b"]
    system.delete_tree(join(top, "a"))
    system.delete_tree(join(top, "a"))
    assert not system.exists(join(top, "a", "b", "x"))
    assert names(system, top) == []


def test_a_directory_with_something_in_it_is_not_deleted_as_empty(place: Place) -> None:
    system, top = place
    put(system, join(top, "x"), b"1")
    system.delete_if_empty(top)
    assert system.read(join(top, "x")) == b"1"


def test_directories_can_be_made_again(place: Place) -> None:
    system, top = place
    system.make_directories(join(top, "a", "b"))
    system.make_directories(join(top, "a", "b"))
    system.write(join(top, "a", "b", "x"), b"1")
    system.sync_files([join(top, "a", "b", "x")])
    assert names(system, join(top, "a")) == ["b"]
    system.make_directories(join(top, "a", "empty"))
    assert names(system, join(top, "a")) == ["b", "empty"]
    assert names(system, join(top, "a", "empty")) == []


def test_directories_can_be_made_and_deleted_by_several_at_a_time(tmp_path: Path) -> None:
    """As the subtasks of a job do with the directory that they share."""
    system, folder = LocalFileSystem(), str(tmp_path / "a" / "b")

    def work(number: int) -> None:
        for turn in range(50):
            path = join(folder, f"{number}-{turn}")
            with system.open_output(path) as out:
                out.write(b"1")
            system.move(path, str(tmp_path / "c" / f"{number}-{turn}"))
            system.delete_if_empty(folder)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert len(names(system, str(tmp_path / "c"))) == 200


def test_status_of_nothing(place: Place) -> None:
    system, top = place
    assert system.status(join(top, "no")) is None
    assert not system.exists(join(top, "no"))


@pytest.mark.parametrize(
    ("action", "call"),
    [
        ("read", lambda system, path: system.read(path)),
        ("read", lambda system, path: system.open_input(path)),
        ("move", lambda system, path: system.move(path, path + "2")),
    ],
)
def test_a_missing_file_is_told_from_other_errors(
    place: Place, action: str, call: Callable[[FileSystem, str], Any]
) -> None:
    system, top = place
    path = join(top, "no")
    with pytest.raises(MissingFileError, match=f"cannot {action} '{system.uri(path)}'"):
        call(system, path)


def test_a_file_system_can_be_pickled(place: Place) -> None:
    system, top = place
    put(system, join(top, "x"), b"1")
    copy = pickle.loads(pickle.dumps(system))
    assert copy.read(join(top, "x")) == b"1"
    assert copy.uri(top) == system.uri(top)


def test_an_unfinished_write_leaves_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    system, top = place
    if isinstance(system, LocalFileSystem):
        monkeypatch.setattr(os, "replace", refuse)
    elif isinstance(system, ArrowFileSystem) and system._renames:
        monkeypatch.setattr(system, "_rename", refuse)
    else:
        pytest.skip("an object appears whole")
    system.make_directories(top)
    with pytest.raises(OSError, match="no space"):
        system.write(join(top, "x"), b"1")
    assert names(system, top) == []


def refuse(*_: object) -> None:
    raise OSError(28, "no space left on this device")


def test_errors_name_the_action_the_file_and_the_cause(tmp_path: Path) -> None:
    system = LocalFileSystem()
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileSystemError, match=r"cannot write '.*/file/x': NotADirectoryError"):
        system.write(str(tmp_path / "file" / "x"), b"1")
    with pytest.raises(FileSystemError, match=r"cannot make directory '.*/file': .* is a file"):
        system.make_directories(str(tmp_path / "file"))
    with pytest.raises(FileSystemError, match=r"cannot read '.*': IsADirectoryError") as raised:
        system.read(str(tmp_path))
    assert isinstance(raised.value, HoldfastError)
    assert isinstance(raised.value.__cause__, IsADirectoryError)
    with pytest.raises(MissingFileError, match=r"cannot move '.*/no' to '.*/x': FileNotFoundErr"):
        system.move(str(tmp_path / "no"), str(tmp_path / "x"))
    again = pickle.loads(pickle.dumps(raised.value))
    assert str(again) == str(raised.value)


@pytest.mark.spark
def test_errors_of_hdfs_come_without_the_trace_of_the_name_node(hdfs: str) -> None:
    system, top = file_system_of(f"{hdfs}/{uuid.uuid4().hex}")
    with pytest.raises(
        MissingFileError, match=r"cannot write '.*': FileNotFoundError: Parent dir"
    ) as raised:
        system.write(join(top, "x"), b"1")
    assert "\n" not in str(raised.value)
    put(system, join(top, "file"), b"1")
    with pytest.raises(FileSystemError, match=r"cannot make directory '.*/file/x'") as raised:
        system.make_directories(join(top, "file", "x"))
    assert "\n" not in str(raised.value).replace("\\n", "\n")


@pytest.mark.spark
def test_names_on_hdfs_may_have_any_characters(hdfs: str) -> None:
    system, top = file_system_of(f"{hdfs}/{uuid.uuid4().hex}")
    strange = join(top, "city=Sao #1?;a%20b", "ü &+.txt")
    put(system, strange, b"1")
    assert system.read(strange) == b"1"
    assert names(system, top) == ["city=Sao #1?;a%20b"]
    assert names(system, strange.rpartition("/")[0]) == ["ü &+.txt"]


def test_errors_of_a_stream_can_be_named(tmp_path: Path) -> None:
    system = LocalFileSystem()
    told = pytest.raises(FileSystemError, match=r"cannot write '/x/y': OSError: no space left")
    with told, system.errors("write", "/x/y"):
        refuse()


def test_an_error_of_the_store_comes_with_the_address(s3_server: str) -> None:
    options = {"fs.s3a.endpoint": s3_server, "fs.s3a.endpoint.region": "us-east-1"}
    options |= {"fs.s3a.access.key": "k", "fs.s3a.secret.key": "s"}
    system, path = file_system_of("s3://no-such-bucket/x", options)
    with pytest.raises(FileSystemError, match=r"'s3://no-such-bucket/x'.*NO_SUCH_BUCKET"):
        system.write(path, b"1")


def test_a_local_directory_that_is_empty_goes(tmp_path: Path) -> None:
    system = LocalFileSystem()
    (tmp_path / "empty").mkdir()
    system.delete_if_empty(str(tmp_path / "empty"))
    system.delete_if_empty(str(tmp_path / "empty"))
    assert not (tmp_path / "empty").exists()


def test_a_tree_of_links_is_deleted_without_what_they_point_to(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "x").write_text("x")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "kept")
    LocalFileSystem().delete_tree(str(tmp_path / "tree"))
    assert (tmp_path / "kept" / "x").exists()
    assert not (tmp_path / "tree").exists()


def test_a_durable_write_is_synced_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("sync"), fsync(fd))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("name"), replace(a, b))[1])
    system = LocalFileSystem()
    system.write(str(tmp_path / "x"), b"1")
    assert calls == ["name"]
    calls.clear()
    system.write(str(tmp_path / "x"), b"2", durable=True)
    assert calls == ["sync", "name", "sync"]
    calls.clear()
    system.sync_files([str(tmp_path / "x"), str(tmp_path / "x")])
    assert calls == ["sync", "sync", "sync"]


def test_streams_are_plain_binary_files(place: Place) -> None:
    system, top = place
    out: BinaryIO = system.open_output(join(top, "x"))
    assert out.writable()
    assert not out.closed
    assert out.write(b"12345") == 5
    out.close()
    assert out.closed


def test_many_calls(place: Place) -> None:
    system, top = place
    system.make_directories(top)
    system.for_each(lambda number: system.write(join(top, str(number)), b"1"), range(20))
    assert len(names(system, top)) == 20
    with pytest.raises(ValueError, match="3"):
        system.for_each(fail_from_three_on, range(10))


def fail_from_three_on(number: int) -> None:
    if number >= 3:
        raise ValueError(number)


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    """A pipe would block for ever, and a device has no end."""
    system, pipe = LocalFileSystem(), tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "zeros").symlink_to("/dev/zero")
    for path in (pipe, tmp_path / "zeros"):
        for read in (system.read, system.open_input):
            with pytest.raises(FileSystemError, match=r"cannot read .*: it is not a regular file"):
                read(str(path))


# What is this user's alone.


def test_a_private_directory_is_made_everywhere(place: Place) -> None:
    system, top = place
    system.make_private(join(top, "above", "private"))
    assert names(system, join(top, "above")) == ["private"]
    system.make_private(join(top, "above", "private"))


def test_others_cannot_read_a_private_directory_unless_its_owner_lets_them(tmp_path: Path) -> None:
    private = tmp_path / "above" / "private"
    LOCAL.make_private(str(private))
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert stat.S_IMODE(private.parent.stat().st_mode) != 0o700
    private.chmod(0o750)
    LOCAL.make_private(str(private))
    assert stat.S_IMODE(private.stat().st_mode) == 0o750


@as_root
@pytest.mark.parametrize("kind", ["directory", "link"])
def test_what_a_third_user_has_made_in_a_common_place_is_refused(tmp_path: Path, kind: str) -> None:
    made = tmp_path / "made"
    if kind == "link":
        made.symlink_to(tmp_path)
    else:
        made.mkdir()
    os.chown(made, NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(FileSystemError, match=f"it belongs to user {NOBODY}, not to user 0"):
        LOCAL.make_private(str(made))


@as_root
def test_the_owner_of_the_place_may_have_made_it(tmp_path: Path) -> None:
    """As on a network file system that shows all files as those of one user."""
    (tmp_path / "place" / "made").mkdir(parents=True)
    for path in (tmp_path / "place", tmp_path / "place" / "made"):
        os.chown(path, NOBODY, NOBODY)
    LOCAL.make_private(str(tmp_path / "place" / "made"))


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_lock_is_a_regular_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "lock"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileSystemError, match=r"is not a regular file|is a link"):
        LOCAL.lock(str(path), b"this process")
    assert not (tmp_path / "elsewhere").exists()
