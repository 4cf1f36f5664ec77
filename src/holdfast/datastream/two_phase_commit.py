"""Sinks whose output appears exactly once: when the checkpoint that contains it is complete.

The output goes into transactions of the outside system: rows of a database, messages of a broker,
files under a hidden name. Its life, in steps:

1. Begin, with the first record. If there are no records, there is no transaction.
2. Pre-commit, at the end of the epoch or at the checkpoint: all of it is stored, none of it can be
   seen. From now on the transaction is pending, and its handle is part of the state.
3. Snapshot: the next checkpoint takes all pending transactions in.
4. Commit, when that checkpoint is complete.

What happens if the process dies, or the epoch is run again:

    before 2          nobody knows of the transaction; the outside system, or the sink when it
                      recovers, lets go of it
    between 2 and 3   the same, if the epoch was not accepted; otherwise another process goes on
    between 3 and 4   the checkpoint is not complete: the job goes back behind the transaction.
                      Or it is: the next attempt commits it
    after 4           the next attempt commits it again

How long a transaction lives depends on the engine:

    subtasks stay in their processes    from one checkpoint to the next, as in Flink
    an epoch may be run again           within one run of one epoch: another process may run it from
                                        the state before it, while the first run has already
                                        written, so each run needs a transaction of its own

A checkpoint contains the same in both cases: transactions that are pre-committed. So one of either
engine is recovered by the other.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from holdfast.common.typeinfo import TypeInformation, Types, type_info_of
from holdfast.datastream.functions import (
    CheckpointedFunction,
    CheckpointListener,
    Function,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    SinkFunction,
)
from holdfast.datastream.state import ListState, ListStateDescriptor
from holdfast.printable import get_logger

__all__ = ["TwoPhaseCommitSinkFunction"]

_Self = TypeVar("_Self", bound="TwoPhaseCommitSinkFunction")
_logger = get_logger(__name__)

#: each transaction goes to one subtask of the next attempt, which commits it
_OWN = "pending-transactions"
#: every subtask learns what all had
_ALL = "transactions-of-all-subtasks"
_CONTEXTS = "user-contexts"


class _Pending(NamedTuple):
    """A transaction that is pre-committed.

    Attributes:
        started: when it was begun, in milliseconds.
        checkpoint: the checkpoint that it will be committed with; None before the next snapshot.
    """

    transaction: Any
    started: int
    checkpoint: int | None = None


class _Recovery(NamedTuple):
    """What is left to do at the beginning of an attempt, from the checkpoint it starts at."""

    own: tuple[_Pending, ...]
    transactions: tuple[Any, ...]
    contexts: tuple[Any, ...]


if TYPE_CHECKING:
    # It is a SinkFunction whose ``invoke`` has one more argument, as in Flink. A type checker would
    # ask every subclass to explain that.
    _SinkFunction = Function
else:
    _SinkFunction = SinkFunction


class TwoPhaseCommitSinkFunction(_SinkFunction, CheckpointedFunction, CheckpointListener):
    """A sink that is exactly once with an outside system that has transactions.

    To implement: ``begin_transaction``, ``invoke``, ``pre_commit``, ``commit`` and ``abort``. The
    transaction is whatever they need to find it again. After ``pre_commit`` it must be picklable,
    since another process may commit it; what cannot be pickled (an open file, a cursor) is let go
    of there.

    **Commit and abort must be idempotent.** Both are called again for a transaction that they have
    dealt with before: by a task that is run again, after a failure, and by a process that was
    taken for dead while its successor is at work.

    A subclass may have fields and methods of its own as any function; where it overrides
    ``initialize_state``, ``snapshot_state``, ``close`` or ``__getstate__``, it calls this class's.

    In a job without checkpoints a transaction is committed when its epoch is accepted. That is
    exactly once as long as the job runs; one that is started again begins at the beginning.

    Attributes:
        transaction_type: the type of transactions, as state has types; not declared unless a
            subclass does, which means that they are pickled.
        user_context_type: the same for user contexts.
    """

    transaction_type: ClassVar[TypeInformation | type | None] = None
    user_context_type: ClassVar[TypeInformation | type | None] = None
    _transaction: Any = None
    _started: int = 0
    _pending: tuple[_Pending, ...] = ()
    _recovery: _Recovery | None = None
    _user_context: Any = None
    _timeout: int | None = None
    _ignores_failures: bool = False
    _warning_ratio: float | None = None
    _own_state: ListState[Any]
    _all_state: ListState[Any]
    _context_state: ListState[Any]

    @abstractmethod
    def begin_transaction(self) -> Any:
        """Begin a transaction; called before its first record."""

    @abstractmethod
    def invoke(self, transaction: Any, value: Any, context: SinkFunction.Context) -> None:
        """Write a record within the transaction."""

    @abstractmethod
    def pre_commit(self, transaction: Any) -> None:
        """Store all of the transaction, so that a commit can no longer fail for a lack of it.

        Called at the end of the epoch, or at the checkpoint. An exception fails the epoch.
        """

    @abstractmethod
    def commit(self, transaction: Any) -> None:
        """Show what was pre-committed; may be called again.

        An exception fails the job, and the next attempt will try again.
        """

    @abstractmethod
    def abort(self, transaction: Any) -> None:
        """Let go of a transaction, whether pre-committed or not; may be called again."""

    def finish_processing(self, transaction: Any) -> None:
        """Write what is still buffered: the last record was taken.

        Called at the end of every epoch from then on, also for a transaction without a record, in
        sinks that override it.
        """

    def recover_and_commit(self, transaction: Any) -> None:
        """Commit a transaction of the checkpoint that this attempt starts from.

        Called after ``open``, for every such transaction in one subtask, perhaps of another number
        than that which began it. It may have been committed before the failure.
        """
        self.commit(transaction)

    def recover_and_abort(self, transaction: Any) -> None:
        """Let go of a transaction of an earlier attempt.

        For ``finish_recovering_context`` to call: in Flink a checkpoint contains the transaction
        that is open, here it contains none that is to be aborted.
        """
        self.abort(transaction)

    def merge_transactions(self, transactions: list[Any]) -> list[Any]:
        """Put pending transactions together that will be committed together.

        Called with those of the epochs since the last checkpoint, in their order; returns what
        is kept in their place. The result may depend on them and on carried fields only. By
        default they stay as they are.
        """
        return transactions

    def initialize_user_context(self) -> Any:
        """What this subtask wants to find again after a failure, beside its transactions.

        Called once per attempt, after ``open``; picklable. None, the default, for nothing. Every
        checkpoint contains it: the names that an attempt may use for its transactions, say.
        """
        return None

    def finish_recovering_context(self, contexts: list[Any], transactions: list[Any]) -> None:
        """Clean up behind the attempt before; called once per attempt, after ``open``.

        The transactions that fall to this subtask are committed then. What an earlier attempt has
        begun and is not among ``transactions`` will never be committed.

        Args:
            contexts: the user contexts of all subtasks in the checkpoint that this attempt starts
                from; empty if it starts from none.
            transactions: the transactions of all subtasks in it. Other subtasks may be about to
                commit theirs.
        """

    def get_user_context(self) -> Any:
        """The user context of this attempt, or None."""
        return self._user_context

    def pending_transactions(self) -> list[Any]:
        """The transactions that are pre-committed and not committed, oldest first."""
        return [pending.transaction for pending in self._pending]

    def set_transaction_timeout(self: _Self, transaction_timeout: int) -> _Self:
        """Tell after how many milliseconds the outside system gives a transaction up."""
        self._timeout = transaction_timeout
        return self

    def ignore_failures_after_transaction_timeout(self: _Self) -> _Self:
        """Let a job start again although a transaction can no longer be committed: data is lost.

        If ``recover_and_commit`` fails after the timeout, a warning is logged instead. Without
        this, the job fails, as often as it is started.
        """
        self._ignores_failures = True
        return self

    def enable_transaction_timeout_warnings(self: _Self, warning_ratio: float) -> _Self:
        """Log a warning for a transaction that was committed late in its time.

        Args:
            warning_ratio: how much of the timeout may be over, from 0 to 1.
        """
        if not 0 <= warning_ratio <= 1:
            msg = f"warning_ratio must be from 0 to 1; got {warning_ratio}"
            raise ValueError(msg)
        self._warning_ratio = warning_ratio
        return self

    # What the runtime calls.

    def accept(self, value: Any, context: SinkFunction.Context) -> None:
        """Take a record (step 1); the runtime calls this, not ``invoke``."""
        if self._transaction is None:
            self._begin()
        self.invoke(self._transaction, value, context)

    def finish(self) -> None:
        """Let the sink write what it has buffered (step 1); called before ``end_epoch``."""
        if type(self).finish_processing is not TwoPhaseCommitSinkFunction.finish_processing:
            if self._transaction is None:
                self._begin()
            self.finish_processing(self._transaction)

    def end_epoch(self) -> None:
        """Pre-commit what was written (step 2).

        Called at the end of every epoch; where subtasks stay in their processes, at every
        checkpoint, and in jobs without checkpoints at the end of every round.
        """
        self._recover()
        if self._transaction is not None:
            self.pre_commit(self._transaction)
            self._pending += (_Pending(self._transaction, self._started),)
            self._transaction = None

    def end_round(self) -> None:
        """Leave the transaction open: there is no checkpoint here.

        What the attempt before has left is dealt with, and does not wait for a checkpoint.
        """
        self._recover()

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Give all pending transactions to the checkpoint (step 3); called after ``end_epoch``."""
        self._merge(context.get_checkpoint_id())
        saved = [(pending.transaction, pending.started) for pending in self._pending]
        self._own_state.update(saved)
        self._all_state.update(saved)
        self._context_state.update([] if self._user_context is None else [self._user_context])

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Commit the transactions of this checkpoint and of earlier ones (step 4)."""
        self._recover()
        self._commit(
            pending
            for pending in self._pending
            if pending.checkpoint is not None and pending.checkpoint <= checkpoint_id
        )

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Nothing: the next checkpoint contains them, too."""

    def epoch_accepted(self) -> None:
        """Commit everything; called at the beginning of an epoch in jobs without checkpoints."""
        self._recover()
        self._merge(None)
        self._commit(self._pending)

    def abandon_epoch(self) -> None:
        """Let go of the current transaction after a failure, as far as that is possible."""
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            self._abort(transaction)

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Take the transactions out of the checkpoint that this attempt starts from."""
        store = context.get_operator_state_store()
        transactions = _with_time(self.transaction_type)
        contexts = type_info_of(self.user_context_type)
        self._own_state = store.get_list_state(ListStateDescriptor(_OWN, transactions))
        self._all_state = store.get_union_list_state(ListStateDescriptor(_ALL, transactions))
        self._context_state = store.get_union_list_state(ListStateDescriptor(_CONTEXTS, contexts))
        self._recovery = _Recovery(
            tuple(_Pending(*saved) for saved in self._own_state.get()),
            tuple(transaction for transaction, _ in self._all_state.get()),
            tuple(self._context_state.get()),
        )

    def close(self) -> None:
        """Let go of what is pending; called after the last checkpoint was told of."""
        self._recover()
        self.abandon_epoch()
        pending, self._pending = self._pending, ()
        for transaction, *_ in pending:
            self._abort(transaction)

    def _begin(self) -> None:
        self._recover()
        self._started = self._now()
        self._transaction = self.begin_transaction()
        if self._transaction is None:
            msg = f"{type(self).__name__}.begin_transaction returned None; expected a transaction"
            raise TypeError(msg)

    def _merge(self, checkpoint: int | None) -> None:
        """Put together what no checkpoint contains yet."""
        kept = tuple(pending for pending in self._pending if pending.checkpoint is not None)
        new = [pending for pending in self._pending if pending.checkpoint is None]
        if new:
            merged = self.merge_transactions([pending.transaction for pending in new])
            started = min(pending.started for pending in new)
            self._pending = kept + tuple(_Pending(txn, started, checkpoint) for txn in merged)

    def _commit(self, due: Iterable[_Pending]) -> None:
        """Commit as many as possible; those that fail stay pending, and the first is raised."""
        failure: Exception | None = None
        for pending in tuple(due):
            try:
                self.commit(pending.transaction)
            except Exception as error:
                failure = failure or error
                continue
            self._warn_if_late(pending)
            self._pending = tuple(other for other in self._pending if other is not pending)
        if failure is not None:
            raise failure

    def _recover(self) -> None:
        """Do what is due at the beginning of an attempt; after ``open``, where connections are."""
        recovery = self._recovery
        if recovery is None:
            return
        for pending in recovery.own:
            self._recover_one(pending)
        self.finish_recovering_context(list(recovery.contexts), list(recovery.transactions))
        self._user_context = self.initialize_user_context()
        self._recovery = None

    def _recover_one(self, pending: _Pending) -> None:
        try:
            self.recover_and_commit(pending.transaction)
        except Exception as error:
            age = self._now() - pending.started
            if not self._ignores_failures or self._timeout is None or age <= self._timeout:
                error.add_note(
                    f"{type(self).__name__} could not commit the transaction "
                    f"{pending.transaction!r} of the checkpoint that the job starts from"
                )
                raise
            _logger.warning(
                "%s could not commit the transaction %r, begun %d ms ago with a timeout of %d ms; "
                "its records are lost, and the job goes on as it was told to",
                type(self).__name__,
                pending.transaction,
                age,
                self._timeout,
                exc_info=True,
            )
        else:
            self._warn_if_late(pending)

    def _warn_if_late(self, pending: _Pending) -> None:
        if self._warning_ratio is not None and self._timeout is not None:
            age = self._now() - pending.started
            if age > self._warning_ratio * self._timeout:
                _logger.warning(
                    "the transaction %r was committed %d ms after it was begun, close to its "
                    "timeout of %d ms; take checkpoints more often, or raise the timeout",
                    pending.transaction,
                    age,
                    self._timeout,
                )

    def _abort(self, transaction: Any) -> None:
        try:
            self.abort(transaction)
        except Exception:
            _logger.warning(
                "%s could not abort the transaction %r",
                type(self).__name__,
                transaction,
                exc_info=True,
            )

    def _now(self) -> int:
        return time.time_ns() // 1_000_000


def _with_time(transaction_type: Any) -> TypeInformation | None:
    """The type of a transaction and when it was begun."""
    if transaction_type is None:
        return None
    return Types.TUPLE([type_info_of(transaction_type), Types.LONG()])
