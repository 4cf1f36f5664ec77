"""Files that Spark writes for a ``DataFrameSink``: hidden first, then moved to their place, once.

    <path>/.holdfast-<sink>/<token>/<number>-<random>/…    what Spark writes for a transaction
    <path>/.holdfast-<sink>/<token>/<number>.json          names the directory that counts
    <path>/.holdfast-<sink>/<token>/lock                   who publishes now
    <path>/…                                               the files after that

Spark and Hive ignore names that begin with a dot.

Invariant: once a transaction has a JSON file, only files of the directory that it names are moved;
a file that is not in it any more was moved. The files are durable before the JSON file exists.
Consequence: the publication can be interrupted and repeated at any time. The last JSON file of a
token stays: a checkpoint may still contain its transaction, and part files may be deleted by
others.

Two drivers that start from one checkpoint have transactions of the same token. The lock lets one of
them publish; the other one fails, and finds the JSON file when it tries again.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.common.plain_names import plain_name
from holdfast.filesystem import (
    FileLock,
    FileSystem,
    LockedError,
    MissingFileError,
    file_system_of,
    join,
)
from holdfast.spark.row_transactions import RowTransaction

_JSON = ".json"
_LOCK = "lock"


def publish(address: str, transaction: RowTransaction, write: Callable[[str], None]) -> None:
    """Add the rows of a transaction to the files at an address, unless they were added before.

    Args:
        address: the directory of the output.
        transaction: the transaction.
        write: writes the rows to a new directory.

    Raises:
        LockedError: when another driver publishes rows of the same attempt now.
    """
    system, base = file_system_of(address)
    sink = hashlib.sha256(transaction.sink.encode()).hexdigest()[:16]
    folder = join(base, f".holdfast-{sink}", plain_name(transaction.token))
    number = transaction.number
    system.make_directories(folder)
    with _locked(system, folder) as lock:
        if _last_of(system, folder) < number:
            _choose(system, folder, number, write, lock)
        if system.exists(_path(folder, number)):
            chosen = json.loads(system.read(_path(folder, number)))["directory"]
            _move(system, join(folder, plain_name(chosen)), base)
            _clean_up(system, folder, number)


@contextmanager
def _locked(system: FileSystem, folder: str) -> Iterator[FileLock]:
    try:
        lock = system.lock(join(folder, _LOCK), b"")
    except LockedError as error:
        raise _taken(system, folder) from error
    try:
        yield lock
    finally:
        lock.release()


def _taken(system: FileSystem, folder: str) -> LockedError:
    return LockedError(
        f"another driver publishes the rows in '{system.uri(folder)}' now: it has started from the "
        "same checkpoint. Stop one of the two jobs"
    )


def _choose(
    system: FileSystem, folder: str, number: int, write: Callable[[str], None], lock: FileLock
) -> None:
    """Let Spark write the rows of a transaction, and name their directory."""
    written = f"{number}-{uuid.uuid4().hex}"
    write(system.uri(join(folder, written)))
    files = list(_data_files(system, join(folder, written)))
    if not files:
        raise MissingFileError(
            f"Spark has written rows to '{system.uri(join(folder, written))}', and there is no "
            "file: it may be on the disks of other hosts. Use a path that all hosts share"
        )
    system.sync_files(files)
    if not lock.is_held():
        raise _taken(system, folder)
    system.write(_path(folder, number), json.dumps({"directory": written}).encode(), True)


def _last_of(system: FileSystem, folder: str) -> int:
    """Return the last number of a token that has a JSON file; -1 if none has."""
    names = [status.name for status in system.list_directory(folder)]
    numbers = [name.removesuffix(_JSON) for name in names if name.endswith(_JSON)]
    return max((int(number) for number in numbers if number.isdigit()), default=-1)


def _path(folder: str, number: int) -> str:
    return join(folder, f"{number}{_JSON}")


def _move(system: FileSystem, written: str, base: str) -> None:
    """Move data files, with the directories of their partitions."""
    moved = []
    for path in _data_files(system, written):
        final = join(base, path.removeprefix(written).lstrip("/"))
        system.move(path, final)
        moved.append(final)
    system.sync_files(moved)


def _data_files(system: FileSystem, directory: str) -> Iterator[str]:
    for status in system.list_directory(directory):
        if _is_leftover(status.name):
            continue
        path = join(directory, status.name)
        if status.is_directory:
            yield from _data_files(system, path)
        else:
            yield path


def _is_leftover(name: str) -> bool:
    """Return whether Spark ignores a name: its own leftovers, such as _SUCCESS and checksums.

    A directory such as ``_year=2026`` is a partition.
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _clean_up(system: FileSystem, folder: str, number: int) -> None:
    """Delete everything up to a transaction, except its JSON file."""
    for status in system.list_directory(folder):
        found = status.name.removesuffix(_JSON).split("-")[0]
        if status.is_directory and found.isdigit() and int(found) <= number:
            system.delete_tree(join(folder, status.name))
        elif not status.is_directory and found.isdigit() and int(found) < number:
            system.delete(join(folder, status.name))
