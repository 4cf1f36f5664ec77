"""`TableCommitter`: adds the files of a checkpoint to a table, once.

A transaction has a name that is unique for ever: a token, which is random and made once per
attempt, and a number within it. Both are saved in the checkpoint. So whoever commits it, the same
subtask, the next attempt, a process that was taken for dead or another driver, uses the same name,
and the table says whether it has it.

Invariant: transactions of one token are committed in the order of their numbers. Consequence: a
table needs to keep only the last number of a token to know all that it has.
"""

from __future__ import annotations

import time
import uuid
from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, ClassVar

from holdfast.common.plain_names import plain_path
from holdfast.datastream.connectors.tables.place import (
    Sweeper,
    TablePlace,
    delete_files,
    delete_marks,
)
from holdfast.datastream.connectors.tables.written import WrittenFile
from holdfast.datastream.functions import (
    FunctionInitializationContext,
    RuntimeContext,
    SinkFunction,
    TwoPhaseCommitSinkFunction,
)
from holdfast.errors import JobExecutionError
from holdfast.filesystem import join
from holdfast.printable import get_logger

_logger = get_logger(__name__)


class TableError(JobExecutionError):
    """A table does not have what the sink or the source needs, or cannot be changed."""


@dataclass
class TableTransaction:
    """The files that are added to the table together.

    Attributes:
        place: where they are.
        token: names the attempt whose files they are; empty before the transaction belongs to a
            checkpoint.
        number: the number of the transaction within its token.
        table: the id of the table, so that they are not added to another one of the same address.
    """

    place: TablePlace
    token: str = ""
    number: int = -1
    table: str = ""
    files: list[WrittenFile] = field(default_factory=list)

    @property
    def is_named(self) -> bool:
        """Return whether it has its name."""
        return bool(self.token)

    def is_before(self, other: TableTransaction) -> bool:
        """Return whether it must be committed first."""
        return self.token == other.token and self.number < other.number

    def __repr__(self) -> str:
        # NB: it is in error messages, and there may be thousands of files
        name = f"{self.token}-{self.number}" if self.is_named else "without a name"
        return f"<{len(self.files)} files for {self.place.base}, transaction {name}>"


class TableCommitter(TwoPhaseCommitSinkFunction):
    """Commits what the writers of a sink have written; one subtask does it for all.

    To implement: ``has_committed``, ``commit_files``, ``find_referred`` and ``table_id``.
    """

    transaction_type = TableTransaction
    user_context_type = TablePlace
    _token = ""
    _next_number = 0
    #: transactions that were aborted, though a checkpoint contains them
    _let_go: tuple[TableTransaction, ...] = ()
    _attempt: int
    #: set by the program and by ``open``; all other fields move with the subtask
    not_carried: ClassVar[frozenset[str]] = frozenset(["_place", "_attempt"])

    def __init__(self, place: TablePlace) -> None:
        self._place = place

    @abstractmethod
    def table_id(self) -> str:
        """Return what tells the table from another one at the same address."""

    @abstractmethod
    def has_committed(self, transaction: TableTransaction) -> bool:
        """Return whether the table has the transaction.

        Raises:
            TableError: when it is not the table that the transaction was for.
        """

    @abstractmethod
    def commit_files(self, transaction: TableTransaction) -> None:
        """Add the files to the table in one step, together with the name of the transaction.

        Called when the table did not have it a moment ago; another process may be faster.
        """

    @abstractmethod
    def find_referred(self, paths: Collection[str], since: int) -> Collection[str]:
        """Return which of these data files a version of the table refers to.

        Args:
            paths: relative to the table.
            since: no file was begun before, in milliseconds.
        """

    def open(self, runtime_context: RuntimeContext) -> None:
        self._attempt = runtime_context.get_attempt_number()

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Make the token of this attempt."""
        self._token = uuid.uuid4().hex
        self._next_number = 0

    def begin_transaction(self) -> TableTransaction:
        return TableTransaction(self._place)

    def invoke(
        self, transaction: TableTransaction, value: WrittenFile, context: SinkFunction.Context
    ) -> None:
        """Take the description of a file."""
        transaction.files.append(value)

    def pre_commit(self, transaction: TableTransaction) -> None:
        """Do nothing: the writers have stored the files."""

    def merge_transactions(self, transactions: list[Any]) -> list[Any]:
        """Name what is committed together; what has a name keeps it."""
        named = [each for each in transactions if each.is_named]
        files = [file for each in transactions if not each.is_named for file in each.files]
        if not files:
            return named
        number, self._next_number = self._next_number, self._next_number + 1
        new = TableTransaction(self._place, self._token, number, self.table_id(), files)
        return [*named, new]

    def commit(self, transaction: TableTransaction) -> None:
        """Commit, after those that come before it."""
        for earlier in self.pending_transactions():
            if earlier.is_named and earlier.is_before(transaction):
                self._commit_once(earlier)
        self._commit_once(transaction)

    def abort(self, transaction: TableTransaction) -> None:
        """Delete nothing: a process taken for dead must not delete what was committed since.

        The files are swept by the next attempt. Those of a checkpoint stay: a job may start there.
        """
        if transaction.is_named:
            self._let_go += (transaction,)

    def _commit_once(self, transaction: TableTransaction) -> None:
        if not self.has_committed(transaction):
            missing = self._missing_files(transaction)
            if not missing:
                self.commit_files(transaction)
            # NB: another process may have just committed it, and cleaned up
            elif not self.has_committed(transaction):
                raise TableError(
                    f"{transaction!r} cannot be committed: {len(missing)} of its files are "
                    f"missing, among them '{min(missing)}'; somebody has deleted them (a vacuum?), "
                    "or they are on the disk of another machine. Start from another checkpoint or "
                    "savepoint"
                )
        place = transaction.place
        delete_marks(place, [file.mark for file in transaction.files if file.mark])
        delete_files(place, [file.path for file in transaction.files if file.is_changes])

    def _missing_files(self, transaction: TableTransaction) -> list[str]:
        """Return the files that are not there: a table must not refer to them."""
        system, base, _ = transaction.place.resolve()
        missing: list[str] = []

        def check(file: WrittenFile) -> None:
            path = join(base, plain_path(file.path))
            if not system.exists(path):
                missing.append(system.uri(path))

        system.for_each(check, transaction.files)
        return missing

    def initialize_user_context(self) -> TablePlace:
        """Return where the next program may clean up."""
        return self._place

    def finish_recovering_context(self, contexts: list[Any], transactions: list[Any]) -> None:
        """Delete the files of earlier attempts that will never be in the table."""
        self._sweep(contexts, self._attempt, transactions)

    def close(self) -> None:
        """Delete what runs of this attempt left behind: nothing is to be committed any more."""
        self._sweep((), self._attempt + 1, self._let_go)

    def _sweep(
        self, places: Collection[TablePlace], attempt: int, kept: Collection[TableTransaction]
    ) -> None:
        keep = {
            name
            for transaction in kept
            for file in transaction.files
            for name in (file.mark, file.path.rpartition("/")[2])
        }
        now = time.time_ns() // 1_000_000
        Sweeper(self._place, now, self.find_referred).sweep(places, attempt, keep)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in self.not_carried}
