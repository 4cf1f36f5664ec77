"""`TableCommitter`: adds the files of a checkpoint to a table, once.

A transaction has a name that is unique for ever: a token, which is random and made once per
attempt, and a number within it. Both are saved in the checkpoint. So all that may
commit it (the same subtask, the next attempt, a process that was taken for dead, another driver)
use the same name, and the table says whether it has it.

Invariant: transactions of one token are committed in the order of their numbers. Consequence: a
table needs to keep only the last number of a token to know all that it has.
"""

from __future__ import annotations

import time
import uuid
from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from holdfast.common.plain_names import plain_path
from holdfast.datastream.connectors.tables.compacting import CompactionThread, TableCompaction
from holdfast.datastream.connectors.tables.later import SINK, LaterCommits, TableProgress
from holdfast.datastream.connectors.tables.place import (
    Sweeper,
    TablePlace,
    delete_files,
    delete_marks,
    keep_for_savepoint,
)
from holdfast.datastream.connectors.tables.written import MOST_CHANGES, WrittenFile
from holdfast.datastream.functions import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
    RuntimeContext,
    SinkFunction,
    TwoPhaseCommitSinkFunction,
)
from holdfast.errors import JobExecutionError
from holdfast.filesystem import join
from holdfast.printable import get_logger

#: what the history of a table says about a commit
JOB_NAME: Final = "holdfast.job-name"
JOB_ID: Final = "holdfast.job-id"
CHECKPOINT: Final = "holdfast.checkpoint-id"
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
        job: the name of the job that wrote the files.
        job_id: the id of the job that wrote the files.
        checkpoint: the id of the checkpoint that contains them; -1 without checkpoints.
        more: how many transactions of the same checkpoint come after it.
        lineage: the id of the sink in the history of the table.
    """

    place: TablePlace
    token: str = ""
    number: int = -1
    table: str = ""
    files: list[WrittenFile] = field(default_factory=list)
    job: str = ""
    job_id: str = ""
    checkpoint: int = -1
    more: int = 0
    lineage: str = ""

    @property
    def name(self) -> str:
        """Return its name, which is unique for ever."""
        return f"{self.token}-{self.number}"

    @property
    def origin(self) -> dict[str, str]:
        """Return which job and checkpoint it is from, for people who read the table's history."""
        if not self.job_id:
            return {}
        origin = {JOB_NAME: self.job, JOB_ID: self.job_id, SINK: self.lineage}
        return origin if self.checkpoint < 0 else origin | {CHECKPOINT: str(self.checkpoint)}

    @property
    def hidden_names(self) -> list[str]:
        """Return the names of the marks of its data files, and of its files of changes."""
        return [file.mark or file.path.rpartition("/")[2] for file in self.files]

    @property
    def is_named(self) -> bool:
        """Return whether it has its name."""
        return bool(self.token)

    def is_before(self, other: TableTransaction) -> bool:
        """Return whether it must be committed first."""
        return self.token == other.token and self.number < other.number

    def __repr__(self) -> str:
        # NB: it is in error messages, and there may be thousands of files
        name = self.name if self.is_named else "without a name"
        return f"<{len(self.files)} files for {self.place.base}, transaction {name}>"


class TableCommitter(TwoPhaseCommitSinkFunction):
    """Commits what the writers of a sink have written; one subtask does it for all.

    To implement: ``has_committed``, ``commit_files``, ``compact``, ``find_referred``, ``table_id``,
    ``table_version`` and ``later_commits``.
    """

    transaction_type = TableTransaction
    user_context_type = TableProgress
    _token = ""
    _next_number = 0
    #: the id of the sink in the history of the table
    _lineage = ""
    #: the name of the transaction that was committed last
    _last = ""
    #: transactions that were aborted, though a checkpoint contains them
    _let_go: tuple[TableTransaction, ...] = ()
    _attempt: int
    _job: tuple[str, str]
    #: the checkpoint whose barrier is here
    _checkpoint = -1
    #: since the last compaction
    _commits = 0
    _compacting: CompactionThread | None = None
    #: set by the program and by ``open``; all other fields move with the subtask
    not_carried: ClassVar[frozenset[str]] = frozenset(
        ["_place", "_attempt", "_job", "_checkpoint", "_compaction", "_compacting"]
    )

    def __init__(self, place: TablePlace, compaction: TableCompaction | None = None) -> None:
        self._place = place
        self._compaction = compaction

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
    def table_version(self) -> int:
        """Return the number of the last change of the table that is known here."""

    @abstractmethod
    def later_commits(self, since: TableProgress, own: Collection[str]) -> LaterCommits | None:
        """Return what the sink has committed since a checkpoint.

        Args:
            since: how far the table was when the checkpoint was taken.
            own: the names of transactions that are no later ones.
        """

    @abstractmethod
    def compact(self) -> None:
        """Put small files together; called in a thread of its own. Nothing depends on it."""

    @abstractmethod
    def find_referred(self, paths: Collection[str], since: int) -> Collection[str]:
        """Return which of these data files a version of the table refers to.

        Args:
            paths: relative to the table.
            since: no file was begun before, in milliseconds.
        """

    def open(self, runtime_context: RuntimeContext) -> None:
        self._attempt = runtime_context.get_attempt_number()
        self._job = runtime_context.get_job_name(), runtime_context.get_job_id()

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self._checkpoint = context.get_checkpoint_id()
        self._user_context = self.initialize_user_context()

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Make the token of this attempt, and the id of a sink that starts without a checkpoint."""
        self._token = uuid.uuid4().hex
        self._lineage = uuid.uuid4().hex
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
        parts = list(_in_bounds(files))
        first, self._next_number = self._next_number, self._next_number + len(parts)
        return named + [
            TableTransaction(
                *(self._place, self._token, first + at, self.table_id(), part),
                *(*self._job, self._checkpoint, len(parts) - 1 - at, self._lineage),
            )
            for at, part in enumerate(parts)
        ]

    def commit(self, transaction: TableTransaction) -> None:
        """Commit, after those that come before it."""
        for earlier in self.pending_transactions():
            if earlier.is_named and earlier.is_before(transaction):
                self._commit_once(earlier)
        self._commit_once(transaction)
        self._commits += 1
        if self._compaction is not None and self._commits >= self._compaction.commits:
            self._compact_beside()

    def _compact_beside(self) -> None:
        if self._compacting is None:
            self._compacting = CompactionThread(self._place.base, self.compact)
        if self._compacting.start():
            self._commits = 0

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
        self._last = transaction.name
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

    def keep_for_savepoint(self, transactions: list[Any]) -> None:
        """Note the names of the files: the next attempt deletes what it does not know."""
        for transaction in transactions:
            keep_for_savepoint(transaction.place, transaction.hidden_names)

    def initialize_user_context(self) -> TableProgress:
        """Return where the next program may clean up, and how far the table is."""
        return TableProgress(*self._place, self._lineage, self.table_version(), self._last)

    def finish_recovering_context(self, contexts: list[Any], transactions: list[Any]) -> None:
        """Delete the files of earlier attempts that will never be in the table.

        Say so if the table has more than the checkpoint.
        """
        for context in contexts:
            if context.lineage:
                self._lineage = context.lineage
                self._warn_if_older(context, {context.last, *(each.name for each in transactions)})
        self._sweep([context.place for context in contexts], self._attempt, transactions)

    def _warn_if_older(self, context: TableProgress, own: Collection[str]) -> None:
        if context.base != self._place.base:
            return
        later = self.later_commits(context, own)
        if later is not None:
            _logger.warning(
                "the job starts from an older checkpoint: %s has %d later commits of this sink, "
                "which stay, and the job writes their rows again. %s",
                *later,
            )

    def close(self) -> None:
        """Delete what runs of this attempt left behind: nothing is to be committed any more."""
        if self._compacting is not None:
            self._compacting.wait()
        self._sweep((), self._attempt + 1, self._let_go)

    def _sweep(
        self, places: Collection[TablePlace], attempt: int, kept: Collection[TableTransaction]
    ) -> None:
        keep = {name for transaction in kept for name in transaction.hidden_names}
        now = time.time_ns() // 1_000_000
        Sweeper(self._place, now, self.find_referred).sweep(places, attempt, keep)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in self.not_carried}


def _in_bounds(files: Sequence[WrittenFile]) -> Iterator[list[WrittenFile]]:
    """Split files of changes into parts that fit into memory, in their order.

    All changes of a key are in files of one writer, in order, so the last one is applied last.
    """
    part: list[WrittenFile] = []
    size = 0
    for file in files:
        if part and file.is_changes and size + file.size > MOST_CHANGES:
            yield part
            part, size = [], 0
        part.append(file)
        size += file.size
    yield part
