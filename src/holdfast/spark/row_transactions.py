"""Rows for Spark writers, exactly once: which staged files are written together, and when.

Subtasks stage rows in files (`holdfast.runtime.operators.staging`), and the driver learns of them
when their epoch is accepted. Without checkpoints, they are written at once. With checkpoints:

1. The driver collects the files of accepted epochs.
2. At a checkpoint, those of each sink become a transaction with a unique name: a token, which is
   random and made once per attempt, and a number. The checkpoint contains the names and the files.
3. When the checkpoint is complete, Spark writes them. Before a transaction is written, its
   name is looked up where the rows are.

A savepoint contains them, too. They are not written for it, and a driver that goes back behind it
does not know their files. So there is a note of them where files are staged
(`holdfast.filesystem.kept_files`).

If the driver dies before 3, or in the middle, the next attempt does 3 with the transactions of the
checkpoint that it starts from.

Invariant: transactions of one token and sink are written in the order of their numbers.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable

import msgspec

from holdfast.checkpoint.errors import CheckpointCorruptionError
from holdfast.common.plain_names import plain_name
from holdfast.filesystem import FileSystem, file_system_of, join
from holdfast.filesystem.kept_files import is_note, keep_files, kept_files
from holdfast.runtime.operators.staging import SUFFIX
from holdfast.runtime.worker.job_code import ROWS


class RowTransaction(msgspec.Struct, frozen=True):
    """Rows of one sink that are written together.

    Attributes:
        sink: the uid of the sink.
        files: the addresses of the files with the rows.
    """

    sink: str
    token: str
    number: int
    files: tuple[str, ...]


class RowTransactions:
    """The transactions of all sinks of a job; lives in the driver."""

    def __init__(self, commit: Callable[[RowTransaction], None]) -> None:
        """Take what writes a transaction, unless it was written before."""
        self._commit = commit
        self._token = ""
        self._number = 0
        self._collected: dict[str, list[str]] = {}
        #: transactions that are not written, with the checkpoint that contains them
        self._pending: list[tuple[int, RowTransaction]] = []

    def begin_attempt(self, saved: bytes | None) -> None:
        """Forget everything, and write the transactions of a checkpoint."""
        self._token, self._number = uuid.uuid4().hex, 0
        self._collected, self._pending = {}, []
        for transaction in _decode(saved) if saved else ():
            self._commit(transaction)
            delete_files(transaction.files)

    def collect(self, sink: str, files: Iterable[str]) -> None:
        """Take files of an accepted epoch (step 1)."""
        self._collected.setdefault(sink, []).extend(files)

    def save(self, checkpoint: int, savepoint: bool = False) -> bytes:
        """Return everything that is not written, for a checkpoint or a savepoint (step 2)."""
        for sink in sorted(self._collected):
            _make_durable(self._collected[sink])
            # NB: if the next one fails, the checkpoint does, and the job may go on
            files = tuple(self._collected.pop(sink))
            transaction = RowTransaction(sink, self._token, self._number, files)
            self._pending.append((checkpoint, transaction))
            self._number += 1
        if savepoint:
            _keep(file for _, transaction in self._pending for file in transaction.files)
        return msgspec.json.encode([transaction for _, transaction in self._pending])

    def complete(self, checkpoints: Collection[int]) -> None:
        """Write the transactions of complete checkpoints (step 3)."""
        last = max(checkpoints, default=-1)
        while self._pending and self._pending[0][0] <= last:
            transaction = self._pending[0][1]
            self._commit(transaction)
            del self._pending[0]
            delete_files(transaction.files)


def _decode(saved: bytes) -> list[RowTransaction]:
    """Return the transactions of a checkpoint.

    Raises:
        CheckpointCorruptionError: when it is damaged, or names files that are not staged rows: such
            files would be read and deleted.
    """
    try:
        transactions = msgspec.json.decode(saved, type=list[RowTransaction])
        for transaction in transactions:
            plain_name(transaction.token)
            for address in transaction.files:
                _check_staged(address)
    except ValueError as error:
        message = f"the rows of DataFrame sinks in the checkpoint are damaged: {error}"
        raise CheckpointCorruptionError(message) from error
    return transactions


def _check_staged(address: str) -> None:
    """Raise a ValueError unless an address looks like ``…/rows/<job>/<name>.parquet``."""
    *_, rows, job, name = "", "", *address.split("/")
    if rows != ROWS or not plain_name(name).endswith(SUFFIX):
        message = f"expected a file such as '.../{ROWS}/<job>/<name>{SUFFIX}'; got '{address}'"
        raise ValueError(message)
    plain_name(job)


def _make_durable(addresses: Iterable[str]) -> None:
    for address in addresses:
        files, path = file_system_of(address)
        files.sync_files([path])


def _keep(addresses: Iterable[str]) -> None:
    """Note the files of a savepoint."""
    names: dict[str, list[str]] = {}
    for address in addresses:
        directory, _, name = address.rpartition("/")
        names.setdefault(directory, []).append(name)
    for directory, staged in names.items():
        files, path = file_system_of(directory)
        keep_files(files, path, staged)


def delete_staged(address: str) -> None:
    """Delete a directory of staged files, except files that a savepoint contains."""
    files, path = file_system_of(address)
    _delete_staged(files, path)


def _delete_staged(files: FileSystem, path: str) -> bool:
    """Delete what is in a directory; return whether a file stays."""
    found = files.list_directory(path)
    kept = kept_files(files, path, [status.name for status in found])
    staying = {
        status.name
        for status in found
        if status.name in kept
        or (status.is_directory and _delete_staged(files, join(path, status.name)))
    }
    if not staying:
        files.delete_tree(path)
        return False
    for status in found:
        if status.name not in staying and not is_note(status.name):
            files.delete(join(path, status.name))
    return True


def delete_files(addresses: Iterable[str]) -> None:
    """Delete files whose rows are written."""
    for address in addresses:
        files, path = file_system_of(address)
        files.delete(path)
