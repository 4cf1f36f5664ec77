"""What the driver answers the processes of a job: files of one directory, and who is a source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from holdfast.filesystem import (
    FileSystemError,
    MissingFileError,
    file_system_of,
    mount,
    unmount,
)
from holdfast.runtime.network.addresses import Address
from holdfast.runtime.network.desk import Claim, Desk, SourcePlace, SourceState, ask
from holdfast.runtime.network.driver_files import DriverFileSystem, driver_root
from holdfast.runtime.network.peers import listen
from holdfast.state.errors import StateStorageError
from holdfast.state.storage.directory import DirectoryStateStorage
from tests.spark.witness import until

KEY = bytes(range(32))
PLACE = SourcePlace(3, 1, 0)
OWN = Address(KEY.hex(), host="10.0.0.7", port=4711)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "job").mkdir()
    return tmp_path / "job"


@pytest.fixture
def desk(root: Path) -> Iterator[Desk]:
    with closing(Desk(partial(listen, host="127.0.0.1", key=KEY.hex()), root)) as made:
        yield made


@pytest.fixture
def files(desk: Desk) -> Iterator[DriverFileSystem]:
    made = DriverFileSystem(desk.address)
    mount(driver_root(desk.address), made)
    yield made
    unmount(driver_root(desk.address))


def test_files_of_the_driver_by_their_address(files: DriverFileSystem, root: Path) -> None:
    address = files.uri(str(root / "state"))
    assert address.startswith("driver://127.0.0.1:")
    found, path = file_system_of(address)
    assert (found, path) == (files, str(root / "state"))
    files.make_directories(path)
    storage = DirectoryStateStorage(path, files)
    storage.write("a", b"one", durable=True)
    assert (root / "state" / "a").read_bytes() == storage.read("a") == b"one"
    assert [status.name for status in storage.list()] == ["a"]
    storage.sync(["a"])
    files.move(f"{path}/a", f"{path}/b")
    assert not storage.exists("a")
    with files.open_output(f"{path}/new/c") as file:
        file.write(b"three")
    with files.open_input(f"{path}/new/c") as file:
        assert file.read() == b"three"
    storage.delete("b")
    files.delete_tree(path)
    assert list(root.iterdir()) == []


def test_what_goes_wrong_there_is_told_here(files: DriverFileSystem, root: Path) -> None:
    with pytest.raises(MissingFileError, match=f"cannot read '{root}/a'"):
        files.read(str(root / "a"))
    with pytest.raises(StateStorageError, match=r"'driver://.*/gone/a'.*'driver:.*' is missing"):
        DirectoryStateStorage(root / "gone", files).write("a", b"")
    with pytest.raises(FileSystemError, match="only the driver locks"):
        files.lock(str(root / "lock"), b"")


@pytest.mark.parametrize("path", ["/etc/passwd", "{root}/../secret", "{root}/link/secret"])
def test_nothing_outside_of_the_directory_is_given(
    files: DriverFileSystem, root: Path, path: str
) -> None:
    (root.parent / "secret").write_text("secret")
    (root / "link").symlink_to(root.parent)
    with pytest.raises(FileSystemError, match="is not in the directory of the job"):
        files.read(path.format(root=root))
    with pytest.raises(FileSystemError, match="is not in the directory of the job"):
        files.move(str(root / "link"), path.format(root=root))


def test_a_driver_that_is_gone(desk: Desk, files: DriverFileSystem, root: Path) -> None:
    desk.close()
    with pytest.raises(FileSystemError, match=r"cannot read 'driver://.*': PeerError: no process"):
        files.read(str(root / "a"))


def test_the_first_who_claims_to_be_a_source_is_it(desk: Desk) -> None:
    assert ask(desk.address, b"", "find", PLACE) == SourceState(over=True)
    assert not Claim(desk.address, b"", PLACE, OWN).granted
    desk.begin_attempt(3)
    assert ask(desk.address, b"", "find", PLACE) == SourceState()
    first = Claim(desk.address, b"", PLACE, OWN)
    second = Claim(desk.address, b"", PLACE, OWN)
    assert (first.granted, second.granted) == (True, False)
    assert ask(desk.address, b"", "find", PLACE) == SourceState(OWN.without_key())
    desk.end_attempt()
    first.wait()
    assert ask(desk.address, b"", "find", PLACE).over


def test_a_source_that_has_gone_has_no_successor_in_its_attempt(desk: Desk) -> None:
    desk.begin_attempt(3)
    Claim(desk.address, b"", PLACE, OWN).close()
    until(lambda: ask(desk.address, b"", "find", PLACE).over)
    assert not Claim(desk.address, b"", PLACE, OWN).granted
    desk.begin_attempt(4)
    with closing(Claim(desk.address, b"", PLACE._replace(attempt=4), OWN)) as claim:
        assert claim.granted
