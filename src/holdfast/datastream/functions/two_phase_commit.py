"""`TwoPhaseCommitSinkFunction`, the base of exactly-once sinks.

`holdfast.runtime.operators.transactions` says when each method is called, and what happens to a
transaction after a failure.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from holdfast.common.typeinfo import TypeInformation
from holdfast.datastream.functions.base import Function
from holdfast.datastream.functions.basic import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    SinkFunction,
)

_Self = TypeVar("_Self", bound="TwoPhaseCommitSinkFunction")


class PendingTransaction(NamedTuple):
    """A transaction that is pre-committed.

    Attributes:
        started: when it was begun, in milliseconds.
        checkpoint: the checkpoint that it will be committed with; None before the next snapshot.
    """

    transaction: Any
    started: int
    checkpoint: int | None = None


if TYPE_CHECKING:
    # It is a SinkFunction whose ``invoke`` has one more argument, as in Flink. A type checker would
    # ask every subclass to explain that.
    _SinkFunction = Function
else:
    _SinkFunction = SinkFunction


class TwoPhaseCommitSinkFunction(_SinkFunction, CheckpointedFunction, CheckpointListener):
    """An exactly-once sink for an external system with transactions.

    To implement: ``begin_transaction``, ``invoke``, ``pre_commit``, ``commit`` and ``abort``. The
    transaction is whatever they need to find it again. After ``pre_commit`` it must be picklable,
    because another process may commit it; close what cannot be pickled (an open file, a cursor)
    there.

    **Commit and abort must be idempotent.** Both may be called again for the same
    transaction: by a task that is repeated, after a failure, and by a process that was
    considered dead while its successor is running.

    A subclass may have fields and methods as any function; if it has a
    ``__getstate__``, that must return the fields of this class, too.

    In a job without checkpoints a transaction is committed when its epoch is accepted. That is
    exactly once as long as the job runs; a job that is started again starts from the beginning.

    Attributes:
        transaction_type: the type of transactions, like the type of a state; without one,
            they are pickled.
        user_context_type: the same for user contexts.
    """

    transaction_type: ClassVar[TypeInformation | type | None] = None
    user_context_type: ClassVar[TypeInformation | type | None] = None
    # The engine keeps these two here, because they move with the function.
    _pending: tuple[PendingTransaction, ...] = ()
    _user_context: Any = None
    _timeout: int | None = None
    _ignores_failures: bool = False
    _warning_ratio: float | None = None

    @abstractmethod
    def begin_transaction(self) -> Any:
        """Begin a transaction; called before its first record."""

    @abstractmethod
    def invoke(self, transaction: Any, value: Any, context: SinkFunction.Context) -> None:
        """Write a record within the transaction."""

    @abstractmethod
    def pre_commit(self, transaction: Any) -> None:
        """Store the whole transaction, so that a commit can be done at any later time.

        Called at the end of the epoch, or at the checkpoint. An exception fails the epoch.
        """

    @abstractmethod
    def commit(self, transaction: Any) -> None:
        """Make the pre-committed data visible; may be called again.

        An exception fails the job, and the next attempt will retry.
        """

    @abstractmethod
    def abort(self, transaction: Any) -> None:
        """Abort a transaction, whether pre-committed or not; may be called again."""

    def finish_processing(self, transaction: Any) -> None:
        """Write everything that is buffered: the input has ended.

        Called at the end of every epoch from then on, also for a transaction without a record, in
        sinks that override it.
        """

    def recover_and_commit(self, transaction: Any) -> None:
        """Commit a transaction of the checkpoint that this attempt starts from.

        Called after ``open``, for every such transaction in one subtask, which may not be the one
        that began it. It may have been committed before the failure.
        """
        self.commit(transaction)

    def recover_and_abort(self, transaction: Any) -> None:
        """Abort a transaction of an earlier attempt.

        For ``finish_recovering_context`` to call: in Flink a checkpoint contains the transaction
        that is open, here it contains none that is to be aborted.
        """
        self.abort(transaction)

    def merge_transactions(self, transactions: list[Any]) -> list[Any]:
        """Merge pending transactions that will be committed together.

        Called with the transactions since the last checkpoint, in order; returns those that
        replace them. The result may depend only on them and on fields. By
        default they are unchanged.
        """
        return transactions

    def is_held(self, transaction: Any) -> bool:
        """Return whether checkpoints contain a transaction without committing it.

        It is given to ``merge_transactions`` again at the next checkpoint. By default none is held.
        """
        return False

    def recover_held(self, transaction: Any) -> Any:
        """Return a held transaction of the checkpoint that this attempt starts from.

        Without what was committed after that checkpoint; None if everything was.
        """
        return transaction

    def keep_for_savepoint(self, transactions: list[Any]) -> None:
        """Make sure that the transactions of a savepoint can be committed at any later time.

        Called at the barrier of a savepoint, with all transactions that it contains. If the job
        fails before it has committed them, its next attempt does not know of them. If that attempt
        cleans up, it must leave them alone: a job may start from the savepoint. By default nothing
        is done.
        """

    def initialize_user_context(self) -> Any:
        """Return what this subtask needs after a failure, besides its transactions.

        Called once per attempt, after ``open``; picklable. None, the default, for nothing. Every
        checkpoint contains it. Example: the names that an attempt may use for its transactions.
        """
        return None

    def finish_recovering_context(self, contexts: list[Any], transactions: list[Any]) -> None:
        """Clean up after the previous attempt; called once per attempt, after ``open``.

        The transactions of this subtask are committed then. Transactions of an earlier attempt
        that are not in ``transactions`` will never be committed, except those of savepoints
        (``keep_for_savepoint``).

        Args:
            contexts: the user contexts of all subtasks in the checkpoint that this attempt starts
                from; empty if it starts from none.
            transactions: the transactions of all subtasks in it. Other subtasks may be about to
                commit theirs.
        """

    def get_user_context(self) -> Any:
        """Return the user context of this attempt, or None."""
        return self._user_context

    def pending_transactions(self) -> list[Any]:
        """Return the transactions that are pre-committed and not committed, oldest first."""
        return [pending.transaction for pending in self._pending]

    def set_transaction_timeout(self: _Self, transaction_timeout: int) -> _Self:
        """Set after how many milliseconds the external system aborts a transaction."""
        self._timeout = transaction_timeout
        return self

    def ignore_failures_after_transaction_timeout(self: _Self) -> _Self:
        """Allow a restart although a transaction can no longer be committed: data is lost.

        If ``recover_and_commit`` fails after the timeout, a warning is logged instead. Without
        this, the job fails every time it is started.
        """
        self._ignores_failures = True
        return self

    def enable_transaction_timeout_warnings(self: _Self, warning_ratio: float) -> _Self:
        """Log a warning for a transaction that was committed close to its timeout.

        Args:
            warning_ratio: the fraction of the timeout, from 0 to 1.
        """
        if not 0 <= warning_ratio <= 1:
            message = f"warning_ratio must be from 0 to 1; got {warning_ratio}"
            raise ValueError(message)
        self._warning_ratio = warning_ratio
        return self

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Called once per attempt, before ``open``: for the sink's own state."""

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Called at the barrier of a checkpoint, before the pending transactions are saved."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Called when the transactions of this checkpoint are committed."""

    def end_round(self) -> None:
        """Called instead of ``end_epoch`` if no checkpoint is taken: the transaction stays open."""
