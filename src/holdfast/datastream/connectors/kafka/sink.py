"""The functions of a ``KafkaSink``: one writes directly, one when a checkpoint is complete."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.datastream.connectors.base import DeliveryGuarantee
from holdfast.datastream.connectors.files.part_files import FileTransaction, Place
from holdfast.datastream.connectors.kafka.client import client_settings, library
from holdfast.datastream.connectors.kafka.records import (
    KafkaSinkContext,
    KafkaSinkError,
    ProducerRecord,
)
from holdfast.datastream.connectors.kafka.staging import KafkaTransaction, StagedRecords
from holdfast.datastream.functions import (
    FunctionSnapshotContext,
    RuntimeContext,
    SinkFunction,
)
from holdfast.datastream.functions.two_phase_commit import TwoPhaseCommitSinkFunction
from holdfast.printable import get_logger

if TYPE_CHECKING:
    from holdfast.datastream.connectors.kafka.producing import (
        RecordProducer,
        TransactionalProducer,
    )
    from holdfast.datastream.connectors.kafka.sink_builder import KafkaSink

#: how often a commit is tried while others take over the transactional id
_TRIES = 3

_logger = get_logger(__name__)


class SinkContext(KafkaSinkContext):
    """The subtask, for a schema; also applies the schema to a record."""

    def __init__(self, sink: KafkaSink, runtime_context: RuntimeContext) -> None:
        """Create the cache of topics."""
        from holdfast.datastream.connectors.kafka.producing import Topics

        self.settings = client_settings(sink.properties)
        self.topics = Topics(self.settings)
        self._serialize = sink.serializer.serialize
        self._subtask = runtime_context.get_index_of_this_subtask()
        self._parallelism = runtime_context.get_number_of_parallel_subtasks()

    def record(self, value: Any, context: SinkFunction.Context) -> ProducerRecord | None:
        """Return the record to write, after checking that Kafka accepts it."""
        timestamp = context.timestamp()
        if timestamp is not None and timestamp < 0:
            timestamp = None  # Kafka has no timestamps before 1970
        record = self._serialize(value, self, timestamp)
        if record is not None:
            self.topics.check(record)
        return record

    def get_parallel_instance_id(self) -> int:
        return self._subtask

    def get_number_of_parallel_instances(self) -> int:
        return self._parallelism

    def get_partitions_for_topic(self, topic: str) -> list[int]:
        return self.topics[topic].partitions


class DirectSinkFunction(SinkFunction):
    """Writes records directly; at least once if every epoch waits for its records."""

    _context: SinkContext
    _producer: RecordProducer

    def __init__(self, sink: KafkaSink) -> None:
        library()
        self._sink = sink
        self._waits = sink.guarantee is DeliveryGuarantee.AT_LEAST_ONCE

    @property
    def sink(self) -> KafkaSink:
        """Return the sink's settings."""
        return self._sink

    def open(self, runtime_context: RuntimeContext) -> None:
        from holdfast.datastream.connectors.kafka.producing import RecordProducer

        self._context = SinkContext(self._sink, runtime_context)
        self._producer = RecordProducer(self._context.settings, self._sink.logs_failures)

    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        """Pass a record to the client."""
        record = self._context.record(value, context)
        if record is not None:
            self._producer.send(record)

    def end_epoch(self) -> None:
        """Wait for the broker if the guarantee needs it; raise failures."""
        if self._waits:
            self._producer.flush()
        else:
            self.end_round()

    def end_round(self) -> None:
        """Raise failures; the client continues to send in the background."""
        self._producer.client.poll(0)
        self._producer.check()

    def close(self) -> None:
        """Wait for records in flight."""
        self._producer.flush()

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __reduce__(self) -> tuple[Any, ...]:
        return DirectSinkFunction, (self._sink,)


class Writers(NamedTuple):
    """Possible leftovers of an attempt.

    Attributes:
        place: the place of its files.
        prefix: the prefix of its transactional ids.
        parallelism: the number of ids.
    """

    place: Place
    prefix: str
    parallelism: int


#: set by the program and by ``open``; all other fields move with the subtask
_NOT_CARRIED = frozenset(
    [
        *("_sink", "_sink_id", "_context", "_staged", "_producer", "_own", "_is_stuck"),
        *("_stays", "_holders", "_holder"),
    ]
)


class TransactionalSinkFunction(TwoPhaseCommitSinkFunction):
    """Writes records to files that wait for their checkpoint, and then to Kafka, in a transaction.

    A commit, in steps:

    1. Take over the transactional id of the transaction, unless this process has it. That fences
      its former owner and aborts the owner's open transaction.
    2. If another process may have begun to commit this transaction, look for its marker. If it
       exists, go to 5.
    3. Record that the commit has begun, if others would not look for the marker otherwise.
    4. Write records and marker, in one transaction of Kafka's.
    5. Delete the records. The note of step 3 is deleted with the next epoch, and the marker
       with the next commit, when no checkpoint to start from contains the transaction.

    What happens if the process dies, or the epoch is repeated:

        before 4         nothing was committed; the next process finds the files, perhaps a note
        within 4         the next process aborts it in step 1, or waits until it is committed
        between 4 and 5  the next process finds the marker
        after 5          the next process finds the note, and no records

    If two processes commit, the later one in step 1 wins. If the earlier one has committed before
    that, it has written the note of step 3, and the later one finds the marker in step 2.

    If functions stay in their processes, only the next attempt can encounter a transaction,
    and it always looks for the marker. So step 3 is skipped; and step 2 is, too, by a process
    that has had the transactional id since before the first record: no other can have committed.
    """

    transaction_type = KafkaTransaction
    user_context_type = Writers
    #: commits of this epoch, and of earlier ones whose traces still exist
    _committed: tuple[KafkaTransaction, ...] = ()
    _committed_before: tuple[KafkaTransaction, ...] = ()
    #: the names of earlier commits, whose markers the next commit removes
    _forgotten: tuple[str, ...] = ()
    #: the names of transactions that a savepoint contains
    _kept: tuple[str, ...] = ()
    #: where the programs wrote from whose state this one continues
    _earlier: tuple[Place, ...] = ()
    _context: SinkContext
    _staged: StagedRecords
    _own: Writers
    #: whether a commit has failed in this process
    _is_stuck = False
    #: whether the function stays in its process
    _stays = False
    #: the owner of the transactional id when a transaction began: for the open one, and by name for
    #: pending ones
    _holder: TransactionalProducer | None = None
    _holders: dict[str, TransactionalProducer | None]
    #: the producer of this subtask's own transactional id, while this process has it
    _producer: TransactionalProducer | None = None

    def __init__(self, sink: KafkaSink, sink_id: str = "") -> None:
        """Take the sink's settings, and the id of an earlier object of this sink or a new one."""
        library()
        self._sink = sink
        self._sink_id = sink_id or uuid.uuid4().hex[:16]

    @property
    def sink(self) -> KafkaSink:
        """Return the sink's settings."""
        return self._sink

    def open(self, runtime_context: RuntimeContext) -> None:
        self._context = SinkContext(self._sink, runtime_context)
        place = Place(runtime_context.get_staging_directory(), self._sink_id)
        subtask = runtime_context.get_index_of_this_subtask()
        self._staged = StagedRecords(place, runtime_context.get_attempt_number(), subtask)
        self._stays, self._holders = runtime_context.stays_in_process(), {}
        parallelism = runtime_context.get_number_of_parallel_subtasks()
        self._own = Writers(place, self._sink.transactional_id_prefix, parallelism)

    def begin_transaction(self) -> KafkaTransaction:
        self._holder = self._producer
        return KafkaTransaction(self._own_id, FileTransaction(self._own.place))

    def invoke(
        self, transaction: KafkaTransaction, value: Any, context: SinkFunction.Context
    ) -> None:
        """Write a record to the file of this run."""
        record = self._context.record(value, context)
        if record is not None:
            self._staged.add(transaction, record)

    def pre_commit(self, transaction: KafkaTransaction) -> None:
        self._staged.finish(transaction)
        self._holders[transaction.name] = self._holder

    def merge_transactions(self, transactions: list[Any]) -> list[Any]:
        """Merge into one Kafka transaction for each checkpoint."""
        parts = [part for transaction in transactions for part in transaction.staged.parts]
        if not parts:
            return []
        for other in transactions[1:]:
            self._holders.pop(other.name, None)
        staged = FileTransaction(transactions[0].staged.place, parts)
        return [KafkaTransaction(transactions[0].transactional_id, staged)]

    def end_epoch(self) -> None:
        """Remove the traces of commits in accepted epochs."""
        for transaction in self._committed_before:
            self._staged.forget(transaction)
        self._forgotten += tuple(transaction.name for transaction in self._committed_before)
        self._committed_before, self._committed = self._committed, ()

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        for transaction in self.pending_transactions():
            self._staged.segments.sync(transaction.staged)

    def commit(self, transaction: KafkaTransaction) -> None:
        """Write to Kafka."""
        self._publish(transaction, recovers=False)

    def recover_and_commit(self, transaction: KafkaTransaction) -> None:
        """Write to Kafka, unless that was done earlier."""
        self._publish(transaction, recovers=True)

    def abort(self, transaction: KafkaTransaction) -> None:
        """Delete the files, unless a savepoint contains them; nothing is in Kafka yet."""
        if transaction.name in self._kept:
            return
        self._staged.discard(transaction)
        self._staged.forget(transaction)
        self._holders.pop(transaction.name, None)

    def keep_for_savepoint(self, transactions: list[Any]) -> None:
        """Note the names of the files: the next attempt deletes what it does not know."""
        self._kept = tuple(transaction.name for transaction in transactions if transaction.name)
        self._staged.segments.keep(transaction.staged for transaction in transactions)

    def initialize_user_context(self) -> Writers:
        """Return what the next attempt must clean up."""
        return self._own

    def finish_recovering_context(self, contexts: list[Any], transactions: list[Any]) -> None:
        """Clean up after earlier attempts: open transactions and files.

        A consumer of committed records waits for every open transaction. Ids of
        transactions that are still to be committed are skipped.
        """
        subtask, wanted = self._staged.subtask, {txn.transactional_id for txn in transactions}
        for number, transactional_id in _ids([*contexts, self._own]):
            mine = number % self._own.parallelism == subtask
            if mine and transactional_id not in wanted:
                self._take_over(transactional_id)
        self._earlier = tuple({used.place for used in contexts} - {self._own.place})
        if subtask == 0:
            keep = [name for transaction in transactions for name in transaction.files]
            self._staged.segments.sweep_earlier(self._earlier, keep)

    def close(self) -> None:
        """Delete all files."""
        self._staged.segments.sweep_own(self._earlier, self._kept)
        self._producer = None

    @property
    def _own_id(self) -> str:
        return _id(self._own.prefix, self._staged.subtask)

    def _publish(self, transaction: KafkaTransaction, recovers: bool) -> None:
        if not transaction.name:
            return  # all its records were skipped
        if self._is_stuck:
            raise KafkaSinkError(
                "Kafka sink: an earlier transaction is not committed, and they keep their order"
            )
        self._is_stuck = True
        for tries_left in reversed(range(_TRIES)):
            try:
                self._write(transaction, recovers)
                break
            except KafkaSinkError as error:
                # its successor aborts what it has left open
                self._producer = None
                if not error.ends_producer or not tries_left:
                    raise
        self._staged.discard(transaction)
        self._holders.pop(transaction.name, None)
        self._committed += (transaction,)
        self._is_stuck = False

    def _write(self, transaction: KafkaTransaction, recovers: bool) -> None:
        """Carry out steps 1 to 4."""
        is_first = self._is_first(transaction)
        producer = self._take_over(transaction.transactional_id)
        if not (is_first or self._is_left_to_do(transaction, producer, recovers)):
            return
        if not self._stays:
            self._staged.begin(transaction)
        producer.commit(transaction.name, self._staged.read(transaction), self._forgotten)
        self._forgotten = ()

    def _is_first(self, transaction: KafkaTransaction) -> bool:
        """Return whether no other process can have tried, because this one had the id."""
        holder = self._holders.get(transaction.name)
        return self._stays and holder is not None and holder is self._producer

    def _is_left_to_do(
        self, transaction: KafkaTransaction, producer: TransactionalProducer, recovers: bool
    ) -> bool:
        """Return whether it is not committed, and the records exist (step 2).

        Call it only when this process has the id: until then another one may complete the commit.
        """
        there, begun = self._staged.is_there(transaction), self._staged.is_begun(transaction)
        if begun and not there:
            return False
        # NB: an earlier attempt may have run on an engine that skips step 3
        is_unsure = begun or not there or recovers or self._stays
        if is_unsure and producer.has_committed(transaction.name):
            return False
        if not there:
            self._report_missing(transaction, recovers)
        return there

    def _take_over(self, transactional_id: str) -> TransactionalProducer:
        """Return the producer of an id; the open transaction of another one is aborted."""
        if transactional_id == self._own_id and self._producer is not None:
            return self._producer
        from holdfast.datastream.connectors.kafka.markers import MARKERS_CONFIG, PARTITIONS
        from holdfast.datastream.connectors.kafka.producing import TransactionalProducer

        markers, topics = self._sink.markers_topic, self._context.topics
        topics.create(markers, PARTITIONS, MARKERS_CONFIG)
        producer = TransactionalProducer(
            self._context.settings, transactional_id, markers, topics[markers].partitions
        )
        if transactional_id == self._own_id:  # producers of other ids are used only once
            self._producer = producer
        return producer

    def _report_missing(self, transaction: KafkaTransaction, may_be_gone: bool) -> None:
        message = (
            f"the records of transaction '{transaction.name}' for Kafka are not below "
            f"'{transaction.staged.place.base}': somebody has deleted them, or they are on the "
            "disk of another machine"
        )
        if not may_be_gone:
            raise KafkaSinkError(message)
        _logger.warning("%s; the job goes on, since they may have been committed", message)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _NOT_CARRIED}

    def __reduce__(self) -> tuple[Any, ...]:
        return TransactionalSinkFunction, (self._sink, self._sink_id)


def _id(prefix: str, number: int) -> str:
    return f"{prefix}-{number}"


def _ids(writers: Iterable[Writers]) -> list[tuple[int, str]]:
    """Return all transactional ids that these have used, each with the number of its subtask."""
    found = {(number, used.prefix) for used in writers for number in range(used.parallelism)}
    return [(number, _id(prefix, number)) for number, prefix in sorted(found)]
