"""``FlinkKafkaConsumer``: Kafka as a source function, with its offsets in union list state.

Flink has replaced it by ``KafkaSource``, which is faster here, too. It is kept for programs that
use it, and as an example of a source function that takes part in checkpoints.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Self

from holdfast.common import DeserializationSchema, TypeInformation, Types
from holdfast.datastream.connectors.kafka.client import library
from holdfast.datastream.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    Split,
)
from holdfast.datastream.connectors.kafka.planner import Subscription
from holdfast.datastream.connectors.kafka.reader import (
    COMMIT_INTERVAL,
    MAX_NUM_PENDING_CHECKPOINTS,
    KafkaReader,
)
from holdfast.datastream.connectors.kafka.source import KafkaSource
from holdfast.datastream.functions import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    ParallelSourceFunction,
    RuntimeContext,
    SourceContext,
)
from holdfast.datastream.state import ListState, ListStateDescriptor
from holdfast.printable import get_logger

_logger = get_logger(__name__)

#: the name of the state in Flink
OFFSETS_STATE_NAME = "topic-partition-offset-states"
_DISCOVERY = "flink.partition-discovery.interval-millis"
_AT_ONCE = 10_000
#: pause when there is nothing new, in seconds
_PAUSE = 0.005


class OffsetCommitMode(Enum):
    """When the offsets of the consumer group are committed to Kafka."""

    DISABLED = "disabled"
    ON_CHECKPOINTS = "on checkpoints"
    KAFKA_PERIODIC = "periodic"

    @staticmethod
    def from_configuration(
        enable_auto_commit: bool, enable_commit_on_checkpoint: bool, enable_checkpointing: bool
    ) -> OffsetCommitMode:
        """Decide as Flink does: with checkpoints, on them or never; without, as the client does."""
        if enable_checkpointing:
            wanted = enable_commit_on_checkpoint
            return OffsetCommitMode.ON_CHECKPOINTS if wanted else OffsetCommitMode.DISABLED
        return OffsetCommitMode.KAFKA_PERIODIC if enable_auto_commit else OffsetCommitMode.DISABLED


class FlinkKafkaConsumerBase(ParallelSourceFunction, CheckpointedFunction, CheckpointListener):
    """The base of all consumers of Kafka."""

    gives_timestamps = True

    def __init__(
        self,
        topics: str | Sequence[str],
        deserialization_schema: DeserializationSchema,
        properties: Mapping[str, str],
    ) -> None:
        """Start from the offsets of the group by default."""
        library()
        self._topics = (topics,) if isinstance(topics, str) else tuple(topics)
        self._schema = deserialization_schema
        self._properties = {key: str(value) for key, value in properties.items()}
        self._commits_on_checkpoints = True
        self._filters_restored = True
        self.set_start_from_group_offsets()

    def set_commit_offsets_on_checkpoints(self, commit_on_checkpoints: bool) -> Self:
        """Set whether offsets are committed with checkpoints, in a job that takes them."""
        self._commits_on_checkpoints = commit_on_checkpoints
        return self

    def set_start_from_earliest(self) -> Self:
        """Start from the oldest record, unless the job is restored from a checkpoint."""
        self._start = KafkaOffsetsInitializer.earliest()
        return self

    def set_start_from_latest(self) -> Self:
        """Start after the last record, unless the job is restored from a checkpoint."""
        self._start = KafkaOffsetsInitializer.latest()
        return self

    def set_start_from_timestamp(self, startup_offsets_timestamp: int) -> Self:
        """Start from the first record that is not older, in milliseconds."""
        self._start = KafkaOffsetsInitializer.timestamp(startup_offsets_timestamp)
        return self

    def set_start_from_group_offsets(self) -> Self:
        """Start from the group's offsets; without any, by ``auto.offset.reset`` (latest)."""
        reset = self._properties.get("auto.offset.reset", "latest").upper()
        self._start = KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy[reset])
        return self

    def disable_filter_restored_partitions_with_subscribed_topics(self) -> Self:
        """Keep the offsets of topics that the consumer no longer reads."""
        self._filters_restored = False
        return self

    def get_produced_type(self) -> TypeInformation | None:
        """Return the type of the records."""
        return self._schema.get_produced_type()

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Take the offsets of all subtasks; each selects its own."""
        row = Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG()])
        store = context.get_operator_state_store()
        self._union_offsets: ListState[tuple[str, int, int]] = store.get_union_list_state(
            ListStateDescriptor(OFFSETS_STATE_NAME, row)
        )
        #: by partition, in order; None without a checkpoint
        self._restored: dict[Split, int] | None = None
        if context.is_restored():
            found = sorted(self._union_offsets.get())
            self._restored = {(topic, number): offset for topic, number, offset in found}

    def open(self, runtime_context: RuntimeContext) -> None:
        """Find the partitions of this subtask, and their starting offsets."""
        subtask = runtime_context.get_index_of_this_subtask()
        if self._restored is None:
            _logger.info("Consumer subtask %d has no restore state.", subtask)
        parallelism = runtime_context.get_number_of_parallel_subtasks()
        source = self._source()
        self._reader = KafkaReader(source, subtask, parallelism)
        self._reader.open(runtime_context.get_metrics_group())
        # NB: a loop never reads a record twice, whatever engine runs it
        self._reader.run_free()
        places = {split: (offset, None) for split, offset in (self._restored or {}).items()}
        self._reader.restore((places, {}, False))
        self._planner = source.create_planner(self._restored is not None)
        self._planner.run_free()
        self._reader.follow(self._planner.plan())
        #: the offsets of this subtask, which change together with what it emits
        self._offsets = self._reader.offsets()
        if not self._filters_restored:
            self._offsets = {**(self._restored or {}), **self._offsets}
        self._pending: dict[int, dict[Split, int]] = {}
        self._mode = OffsetCommitMode.from_configuration(
            self._properties.get("enable.auto.commit", "true").lower() == "true",
            self._commits_on_checkpoints,
            runtime_context.is_checkpointing_enabled(),
        )
        self._next_commit = 0.0
        self._stopped = threading.Event()

    def run(self, ctx: SourceContext) -> None:
        """Emit records; the lock makes emitting and moving the offset one step."""
        while not self._stopped.is_set():
            self._reader.follow(self._planner.plan())
            count = 0
            for batch in self._reader.read(_AT_ONCE):
                with ctx.get_checkpoint_lock():
                    self._emit(batch, ctx)
                    split: Any = batch.split
                    self._offsets[split] = self._reader.offsets()[split]
                count += len(batch)
                if self._stopped.is_set():
                    return
            self._offsets |= {
                s: at for s, at in self._reader.offsets().items() if s not in self._offsets
            }
            self._commit_periodically()
            if not count:
                self._stopped.wait(_PAUSE)

    def _emit(self, batch: Sequence[tuple[Any, int]], ctx: SourceContext) -> None:
        for record, timestamp in batch:
            if self._schema.is_end_of_stream(record):
                self._stopped.set()
                return
            ctx.collect_with_timestamp(record, timestamp)

    def cancel(self) -> None:
        self._stopped.set()

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Save the offsets, and remember them until the checkpoint is complete."""
        if self._stopped.is_set():
            _logger.debug("snapshot_state() called on closed source")
            return
        self._union_offsets.clear()
        for (topic, number), offset in sorted(self._offsets.items()):
            self._union_offsets.add((topic, number, offset))
        if self._mode is OffsetCommitMode.ON_CHECKPOINTS:
            self._pending[context.get_checkpoint_id()] = dict(self._offsets)
            while len(self._pending) > MAX_NUM_PENDING_CHECKPOINTS:
                del self._pending[min(self._pending)]

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Commit the offsets of the checkpoint, which cover those of earlier ones."""
        if self._mode is not OffsetCommitMode.ON_CHECKPOINTS:
            return
        offsets = self._pending.get(checkpoint_id)
        self._pending = {n: o for n, o in self._pending.items() if n > checkpoint_id}
        if offsets is None:
            _logger.warning("checkpoint %d is complete, but not known here", checkpoint_id)
        else:
            self._reader.commit(offsets)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Drop its offsets."""
        self._pending.pop(checkpoint_id, None)

    def close(self) -> None:
        self._stopped.set()
        self._reader.close()
        self._planner.close()

    def _commit_periodically(self) -> None:
        if self._mode is OffsetCommitMode.KAFKA_PERIODIC and time.monotonic() >= self._next_commit:
            interval = int(self._properties.get("auto.commit.interval.ms", COMMIT_INTERVAL))
            self._next_commit = time.monotonic() + interval / 1000
            self._reader.commit(self._offsets)

    def _source(self) -> KafkaSource:
        properties = dict(self._properties)
        if _DISCOVERY in properties:
            properties["partition.discovery.interval.ms"] = properties[_DISCOVERY]
        return KafkaSource(Subscription(self._topics), properties, self._schema, self._start)


class FlinkKafkaConsumer(FlinkKafkaConsumerBase):
    """Reads topics of Kafka; use it with ``add_source``.

    Args:
        topics: one or several.
        deserialization_schema: decodes the values of messages.
        properties: those of Kafka's clients; ``bootstrap.servers`` and ``group.id`` at least.
    """

    def __init__(
        self,
        topics: str | Sequence[str],
        deserialization_schema: DeserializationSchema,
        properties: Mapping[str, str],
    ) -> None:
        """Warn: use ``KafkaSource``, as of Flink 1.16."""
        warnings.warn(
            "FlinkKafkaConsumer is deprecated, as in Flink; use KafkaSource",
            DeprecationWarning,
            stacklevel=2,
        )
        super().__init__(topics, deserialization_schema, properties)
