"""Sinks whose output appears exactly once: when the checkpoint that contains it is complete.

The output goes into transactions of the outside system: rows of a database, messages of a broker,
files under a hidden name. Its life, in steps:

1. Begin, with the first record. If there are no records, there is no transaction.
2. Pre-commit, at the end of the epoch or at the checkpoint: all of it is stored, none of it can be
   seen. From now on the transaction is pending, and its handle is part of the state.
3. Snapshot: the next checkpoint takes all pending transactions in. The sink may hold some back:
   the checkpoint contains them, but a later one commits them.
4. Commit, when that checkpoint is complete.

What happens if the process dies, or the epoch is run again:

    before 2          nobody knows of the transaction; the outside system, or the sink when it
                      recovers, lets go of it
    between 2 and 3   the same, if the epoch was not accepted; otherwise another process goes on
    between 3 and 4   the checkpoint is not complete: the job goes back behind the transaction.
                      Or it is: the next attempt commits it
    after 4           the next attempt commits it again

A savepoint contains all pending transactions, too, and none is committed for it, unless the job
stops: the job never goes back to it, and commits them with the next checkpoint. If it fails before
that, it goes back behind the savepoint, and no later attempt knows of its transactions. So the sink
notes them where attempts look that clean up (`keep_for_savepoint`).

How long a transaction lives depends on the engine:

    subtasks stay in their processes    from one checkpoint to the next, as in Flink
    an epoch may be run again           within one run of one epoch: another process may run it from
                                        the state before it, while the first run has already
                                        written, so each run needs a transaction of its own

A checkpoint contains the same in both cases: transactions that are pre-committed. So one of either
engine is recovered by the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from holdfast.common.typeinfo import Types, type_info_of
from holdfast.datastream.functions.two_phase_commit import (
    PendingTransaction,
    TwoPhaseCommitSinkFunction,
)
from holdfast.datastream.state import ListState, ListStateDescriptor
from holdfast.plan.model import PlannedOperator
from holdfast.printable import get_logger
from holdfast.runtime.context import Clock, OperatorContext
from holdfast.runtime.function_fields import dump_field
from holdfast.runtime.fusion import Calling
from holdfast.runtime.operators.base import SubtaskParts
from holdfast.runtime.operators.functions import Method
from holdfast.runtime.operators.sinks import SinkOperator
from holdfast.runtime.worker.logs import at_work
from holdfast.state.live.operator_state import Image

#: each transaction goes to one subtask of the next attempt, which commits it
_OWN: Final = "pending-transactions"
#: every subtask learns what all had
_ALL: Final = "transactions-of-all-subtasks"
_CONTEXTS: Final = "user-contexts"

_logger = get_logger(__name__)


class TransactionalSinkOperator(SinkOperator):
    """A sink with transactions. Its function is told all that other sinks are told, too."""

    def __init__(self, operator: PlannedOperator, function: Any, parts: SubtaskParts) -> None:
        """Take charge of the transactions of the function."""
        super().__init__(operator, function, parts)
        self.transactions = Transactions(function, self.context, parts.clock)

    def _methods(self) -> tuple[Method, ...]:
        return ((Calling.SINK, self.transactions.accept),)

    def initialize(self, restored: bool, image: Image | None) -> None:
        super().initialize(restored, image)
        self._call("initialize_state", self.transactions.initialize)

    def open(self) -> None:
        super().open()
        self._call("recover_and_commit", self.transactions.recover)

    def notify(self, completed: tuple[int, ...], aborted: tuple[int, ...]) -> None:
        self._call("notify_checkpoint_complete", lambda: self.transactions.commit(completed))
        super().notify(completed, aborted)

    def epoch_accepted(self) -> None:
        self._call("commit", self.transactions.commit_all)

    def finish(self) -> None:
        super().finish()
        self._call("finish", self.transactions.finish)

    def end_epoch(self, barrier: bool = True) -> None:
        """Without a barrier the transaction stays open."""
        super().end_epoch(barrier)
        if barrier:
            self._call("end_epoch", self.transactions.pre_commit)

    def snapshot(self, checkpoint: int, timestamp: int, savepoint: bool = False) -> None:
        super().snapshot(checkpoint, timestamp, savepoint)
        with at_work(self.report):
            self.transactions.snapshot(checkpoint, savepoint)

    def abandon(self) -> None:
        with at_work(self.report):
            self.transactions.abandon()

    def close(self) -> None:
        self._call("close", self.transactions.close)
        super().close()


class Transactions:
    """The transactions of one sink in one subtask.

    Those that are pending are in a field of the function, as the user context is, and so are
    carried to the process that runs the subtask next. One that is open never is.
    """

    def __init__(
        self, function: TwoPhaseCommitSinkFunction, context: OperatorContext, clock: Clock
    ) -> None:
        self._function = function
        self._name = type(function).__name__
        self._invoke = function.invoke
        self._context = context
        self._clock = clock
        self._open: Any = None
        self._started = 0
        #: whether the attempt has just begun, and what it starts from is to be recovered
        self._begins = False

    def initialize(self) -> None:
        """Claim the transactions of the checkpoint that this attempt starts from."""
        self._saved()
        self._begins = True

    def recover(self) -> None:
        """Commit them, once per attempt; after ``open``, where connections are made."""
        if not self._begins:
            return
        function = self._function
        own, everyone, contexts = (list(state.get()) for state in self._saved())
        for saved in own:
            self._recover_one(PendingTransaction(*saved))
        function.finish_recovering_context(contexts, [transaction for transaction, _ in everyone])
        function._user_context = function.initialize_user_context()
        self._begins = False

    def _recover_one(self, pending: PendingTransaction) -> None:
        function = self._function
        if function.is_held(pending.transaction):
            held = function.recover_held(pending.transaction)
            if held is not None:
                function._pending += (pending._replace(transaction=held),)
            return
        try:
            function.recover_and_commit(pending.transaction)
        except Exception as error:
            age, timeout = self._clock() - pending.started, function._timeout
            if not function._ignores_failures or timeout is None or age <= timeout:
                error.add_note(
                    f"{self._name} could not commit the transaction "
                    f"{pending.transaction!r} of the checkpoint that the job starts from"
                )
                raise
            _logger.warning(
                "%s could not commit the transaction %r, begun %d ms ago with a timeout of %d ms; "
                "its records are lost, and the job goes on as it was told to",
                self._name,
                pending.transaction,
                age,
                timeout,
                exc_info=True,
            )
        else:
            self._warn_if_late(pending)

    def accept(self, value: Any, context: Any) -> None:
        """Take a record (step 1)."""
        if self._open is None:
            self._begin()
        self._invoke(self._open, value, context)

    def finish(self) -> None:
        """Let the sink write what it has buffered (step 1), if it is one that buffers."""
        function = self._function
        if type(function).finish_processing is not TwoPhaseCommitSinkFunction.finish_processing:
            if self._open is None:
                self._begin()
            function.finish_processing(self._open)

    def _begin(self) -> None:
        self._started = self._clock()
        self._open = self._function.begin_transaction()
        if self._open is None:
            message = f"{self._name}.begin_transaction returned None; expected a transaction"
            raise TypeError(message)

    def pre_commit(self) -> None:
        """Pre-commit what was written since the last time (step 2)."""
        if self._open is not None:
            self._function.pre_commit(self._open)
            self._check_carried(self._open)
            self._function._pending += (PendingTransaction(self._open, self._started),)
            self._open = None

    def _check_carried(self, transaction: Any) -> None:
        """Raise if the next process would not get it: fields that cannot be pickled stay behind."""
        if not self._context.stays_in_process():
            try:
                dump_field(transaction, self._context)
            except Exception as error:
                error.add_note(f"{self._name}: after pre_commit a transaction must be picklable")
                raise

    def snapshot(self, checkpoint: int, savepoint: bool = False) -> None:
        """Give all pending transactions to a checkpoint, or to a savepoint (step 3)."""
        self._merge(checkpoint)
        function = self._function
        if savepoint and function._pending:
            function.keep_for_savepoint(function.pending_transactions())
        own, everyone, contexts = self._saved()
        saved = [(pending.transaction, pending.started) for pending in function._pending]
        own.update(saved)
        everyone.update(saved)
        context = function._user_context
        contexts.update([] if context is None else [context])

    def _merge(self, checkpoint: int | None) -> None:
        """Put together what no checkpoint contains yet."""
        function = self._function
        kept = tuple(pending for pending in function._pending if pending.checkpoint is not None)
        new = [pending for pending in function._pending if pending.checkpoint is None]
        if new:
            merged = function.merge_transactions([pending.transaction for pending in new])
            started = min(pending.started for pending in new)
            function._pending = kept + tuple(
                PendingTransaction(each, started, None if function.is_held(each) else checkpoint)
                for each in merged
            )

    def commit(self, completed: tuple[int, ...]) -> None:
        """Commit the transactions of these checkpoints and of earlier ones (step 4)."""
        for checkpoint in sorted(completed):
            self._commit(
                pending
                for pending in self._function._pending
                if pending.checkpoint is not None and pending.checkpoint <= checkpoint
            )

    def commit_all(self) -> None:
        """Commit what is pending (step 4): there will be no checkpoint."""
        self._merge(None)
        self._commit(self._function._pending)

    def _commit(self, due: Iterable[PendingTransaction]) -> None:
        """Commit as many as possible; those that fail stay pending, and the first is raised."""
        function, failure = self._function, None
        for pending in tuple(due):
            try:
                function.commit(pending.transaction)
            except Exception as error:
                failure = failure or error
                continue
            self._warn_if_late(pending)
            function._pending = tuple(other for other in function._pending if other is not pending)
        if failure is not None:
            raise failure

    def _warn_if_late(self, pending: PendingTransaction) -> None:
        ratio, timeout = self._function._warning_ratio, self._function._timeout
        if ratio is not None and timeout is not None:
            age = self._clock() - pending.started
            if age > ratio * timeout:
                _logger.warning(
                    "the transaction %r was committed %d ms after it was begun, close to its "
                    "timeout of %d ms; take checkpoints more often, or raise the timeout",
                    pending.transaction,
                    age,
                    timeout,
                )

    def abandon(self) -> None:
        """Let go of the open transaction after a failure, as far as that is possible."""
        transaction, self._open = self._open, None
        if transaction is not None:
            self._abort(transaction)

    def close(self) -> None:
        """Let go of all that is not committed."""
        self.abandon()
        pending, self._function._pending = self._function._pending, ()
        for transaction, *_ in pending:
            self._abort(transaction)

    def _abort(self, transaction: Any) -> None:
        try:
            self._function.abort(transaction)
        except Exception:
            _logger.warning(
                "%s could not abort the transaction %r", self._name, transaction, exc_info=True
            )

    def _saved(self) -> tuple[ListState[Any], ListState[Any], ListState[Any]]:
        """Return the states: the own transactions, those of all subtasks, the user contexts."""
        states, declared = self._context.operator_states, self._function.transaction_type
        with_time = declared and Types.TUPLE([type_info_of(declared), Types.LONG()])
        contexts = type_info_of(self._function.user_context_type)
        return (
            states.get_list_state(ListStateDescriptor(_OWN, with_time)),
            states.get_union_list_state(ListStateDescriptor(_ALL, with_time)),
            states.get_union_list_state(ListStateDescriptor(_CONTEXTS, contexts)),
        )
