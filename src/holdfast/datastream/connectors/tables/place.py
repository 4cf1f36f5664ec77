"""Where a sink keeps what is not in the table: a hidden directory below the table.

    <table>/_holdfast/<sink>/<attempt>-<subtask>-<random>.parquet    changes by key, before they
                                                                     are merged into the table
    <table>/_holdfast/<sink>/<attempt>-<subtask>-<random>.mark       the path of a data file that
                                                                     is not known to be in the table
    <table>/_holdfast/<sink>/.kept-<random>                          the names, in this directory,
                                                                     of what a savepoint needs
    <table>/_holdfast/probe-<random>                                 shows that the sink can write
    <table>/<partition>/part-<attempt>-<subtask>-<random>.parquet    a data file

Delta Lake, Iceberg, Spark and Hive ignore names that begin with an underscore.

Invariant: a data file that is not in the table has a mark. A mark is written before its file, and
deleted after the commit. Consequence: the marks name all files that may be orphans.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from holdfast.common.plain_names import plain_name, plain_path
from holdfast.filesystem import FileStatus, FileSystem, FileSystemError, file_system_of, join
from holdfast.filesystem.kept_files import is_note, keep_files, kept_files
from holdfast.printable import get_logger

#: instead of the attempt, in names of files that are swept by their age: their writer may be
#: taken for dead and still commit them
NO_ATTEMPT: Final = "any"
_HIDDEN: Final = "_holdfast"
_MARK: Final = ".mark"
_PARQUET: Final = ".parquet"
_PROBE: Final = "probe-"
#: the age of what other programs left behind at which it is deleted, in ms: they may still run
_OLD: Final = 24 * 3600 * 1000
#: characters of partition values that are the same in every file system and address
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.=-]")
_LONGEST_FOLDER: Final = 100
_logger = get_logger(__name__)

#: given paths of files and the time of the oldest one in milliseconds, returns those that the table
#: refers to
FindReferred = Callable[[Collection[str], int], Collection[str]]


class TablePlace(NamedTuple):
    """Where a sink writes.

    Attributes:
        base: the address of the table.
        sink: the id of the sink, which is the name of its hidden directory.
    """

    base: str
    sink: str

    def resolve(self) -> tuple[FileSystem, str, str]:
        """Return the file system, and the paths of the table and of the hidden directory."""
        system, base = file_system_of(self.base)
        return system, base, join(base, _HIDDEN, plain_name(self.sink))


class NewFile(NamedTuple):
    """The place of a file before it is written.

    Attributes:
        path: relative to the table.
        mark: the name of its mark; empty for a file of changes.
    """

    path: str
    mark: str


def new_data_file(place: TablePlace, attempt: int | str, subtask: int, folder: str) -> NewFile:
    """Choose a name for a data file, and mark it."""
    system, _, hidden = place.resolve()
    name = f"{attempt}-{subtask}-{uuid.uuid4().hex}"
    path = plain_path("/".join(filter(None, [folder, f"part-{name}{_PARQUET}"])))
    with system.open_output(join(hidden, name + _MARK)) as mark:
        mark.write(path.encode())
    return NewFile(path, name + _MARK)


def new_changes_file(place: TablePlace, attempt: int | str, subtask: int) -> NewFile:
    """Choose a name for a file of changes."""
    name = f"{attempt}-{subtask}-{uuid.uuid4().hex}{_PARQUET}"
    return NewFile(f"{_HIDDEN}/{place.sink}/{name}", "")


def new_probe(base: str) -> tuple[FileSystem, str]:
    """Choose a path for a file that is written and deleted again, below a table."""
    system, path = file_system_of(base)
    return system, join(path, _HIDDEN, f"{_PROBE}{uuid.uuid4().hex}")


def folder_of(partition: Mapping[str, str | None]) -> str:
    """Return a directory for a partition, as Hive names it.

    Characters that not every file system takes are replaced, so two partitions may share one.
    """
    return "/".join(_folder(name, value) for name, value in partition.items())


def _folder(name: str, value: str | None) -> str:
    text = f"{name}={'__HIVE_DEFAULT_PARTITION__' if value is None else value}"
    plain = _UNSAFE.sub("-", text)[:_LONGEST_FOLDER]
    # NB: a vacuum does not look into directories that begin like this
    return f"p{plain}" if plain.startswith(("_", ".")) else plain


def delete_marks(place: TablePlace, marks: Iterable[str]) -> None:
    """Delete the marks of files that are in the table now."""
    system, _, hidden = place.resolve()
    try:
        system.for_each(lambda name: system.delete(join(hidden, plain_name(name))), marks)
    except FileSystemError as error:
        _logger.warning("marks of committed files stay in '%s': %s", system.uri(hidden), error)


def delete_files(place: TablePlace, paths: Iterable[str]) -> None:
    """Delete files that are not in the table."""
    system, base, _ = place.resolve()
    try:
        system.for_each(lambda path: system.delete(join(base, plain_path(path))), paths)
    except FileSystemError as error:
        _logger.warning("files that are not in the table stay below '%s': %s", place.base, error)


def keep_for_savepoint(place: TablePlace, names: Iterable[str]) -> None:
    """Note that no attempt may delete these marks, their data files, and files of changes."""
    system, _, hidden = place.resolve()
    keep_files(system, hidden, names)


class Sweeper:
    """Deletes what attempts left behind that will never be in the table.

    Except what a savepoint contains: a job may start from it.
    """

    def __init__(self, place: TablePlace, now: int, referred: FindReferred) -> None:
        self._place = place
        self._now = now
        self._referred = referred

    def sweep(self, places: Iterable[TablePlace], attempt: int, keep: Collection[str]) -> None:
        """Delete files of earlier attempts of this program, and old ones of earlier programs.

        Args:
            places: where programs wrote from whose state this one continues.
            attempt: the attempt that runs now, whose files are left alone.
            keep: names of files and marks of transactions that are to be committed.
        """
        for place in {*places, self._place}:
            if place.base != self._place.base:
                continue  # another table, about which nothing is known here
            own = place == self._place
            try:
                self._sweep(place, attempt if own else None, keep)
                if own:
                    self._sweep_probes()
            except FileSystemError as error:
                _logger.warning("hidden files of an earlier run stay in '%s': %s", *place, error)

    def _sweep(self, place: TablePlace, attempt: int | None, keep: Collection[str]) -> None:
        system, _, hidden = place.resolve()
        found = system.list_directory(hidden)
        kept = {*keep, *kept_files(system, hidden, [status.name for status in found])}
        left = [
            status
            for status in found
            if status.name not in kept and self._is_left_over(status, attempt)
        ]
        marks = [status for status in left if status.name.endswith(_MARK)]
        self._sweep_marked(place, marks)
        for status in left:
            if not status.name.endswith(_MARK):
                system.delete(join(hidden, status.name))
        system.delete_if_empty(hidden)

    def _is_left_over(self, status: FileStatus, attempt: int | None) -> bool:
        if is_note(status.name):
            return False
        number = status.name.split("-")[0]
        if attempt is None or number == NO_ATTEMPT:
            return self._is_old(status)
        return number.isdigit() and int(number) < attempt

    def _is_old(self, status: FileStatus) -> bool:
        return 0 < status.modified < self._now - _OLD

    def _sweep_probes(self) -> None:
        """Delete those of processes that died before they could."""
        system, base, _ = self._place.resolve()
        hidden = join(base, _HIDDEN)
        for status in system.list_directory(hidden):
            is_probe = status.name.startswith(_PROBE) and not status.is_directory
            if is_probe and self._is_old(status):
                system.delete(join(hidden, status.name))

    def _sweep_marked(self, place: TablePlace, marks: Collection[FileStatus]) -> None:
        if not marks:
            return
        system, base, hidden = place.resolve()
        paths = [_marked(mark.name, system.read(join(hidden, mark.name))) for mark in marks]
        begun = [path for path in paths if path is not None]
        kept = self._referred(begun, min(mark.modified for mark in marks)) if begun else ()
        # NB: a mark goes after its file, or nobody would know of the file any more
        for path in begun:
            if path not in kept:
                system.delete(join(base, path))
        delete_marks(place, [mark.name for mark in marks])


def _marked(mark: str, content: bytes) -> str | None:
    """Return the path in a mark; None if the mark is not complete: its file was never begun."""
    path = content.decode(errors="replace")
    if not path.endswith(f"part-{mark.removesuffix(_MARK)}{_PARQUET}"):
        return None
    return plain_path(path)
