"""``KafkaSource`` and its builder, under PyFlink's names."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.common.serialization import DeserializationSchema
from holdfast.datastream.columns.types import BatchTypeInfo
from holdfast.datastream.connectors.base import EpochPlanner, Source, SourceReader
from holdfast.datastream.connectors.kafka.client import KafkaMetadata, library
from holdfast.datastream.connectors.kafka.decoding import (
    BadRecords,
    Decoder,
    KafkaRecordDeserializationSchema,
)
from holdfast.datastream.connectors.kafka.offsets import (
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
    Split,
    owner,
)
from holdfast.datastream.connectors.kafka.planner import KafkaPlanner, Subscription
from holdfast.datastream.connectors.kafka.reader import KafkaReader
from holdfast.datastream.output_tag import OutputTag
from holdfast.errors import JobDefinitionError

if TYPE_CHECKING:
    from holdfast.metrics import Counter

_DISCOVERY = "partition.discovery.interval.ms"
_DEFAULT_DISCOVERY = 10_000
_COMMITS = "commit.offsets.on.checkpoint"


@dataclass(frozen=True)
class KafkaSource(Source):
    """The messages of Kafka's topics; use ``builder()``.

    Every partition is read by one subtask. How far an epoch reads is fixed before it runs, so each
    message affects the state exactly once. Messages have Kafka's timestamps, and every partition
    has its own watermark.
    """

    subscription: Subscription
    properties: Mapping[str, str]
    schema: DeserializationSchema | KafkaRecordDeserializationSchema
    start: KafkaOffsetsInitializer = field(default_factory=KafkaOffsetsInitializer.earliest)
    stop: KafkaOffsetsInitializer | None = None
    bad_records: BadRecords | OutputTag = BadRecords.FAIL
    batch_type: BatchTypeInfo | None = None

    #: for the planner: records have timestamps
    gives_timestamps = True

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """Start building a source."""
        return KafkaSourceBuilder()

    @property
    def stops(self) -> bool:
        """Return whether it is bounded."""
        return self.stop is not None

    @property
    def commits_on_checkpoints(self) -> bool:
        """Return whether its group's offsets are committed when a checkpoint is complete."""
        return "group.id" in self.properties and _is_true(self.properties.get(_COMMITS, "true"))

    @property
    def commits_periodically(self) -> bool:
        """Return whether they are committed periodically, in a job without checkpoints."""
        wanted = _is_true(self.properties.get("enable.auto.commit", "false"))
        return "group.id" in self.properties and wanted

    @property
    def listens(self) -> bool:
        """Return whether the offsets of the last epoch must be committed."""
        return self.commits_periodically

    @property
    def side_outputs(self) -> bool:
        """Return whether messages that cannot be decoded go to a side output."""
        return isinstance(self.bad_records, OutputTag)

    def create_planner(self, restored: bool) -> EpochPlanner:
        """Return the planner, which asks Kafka for the ends of topics, in the driver."""
        millis = int(self.properties.get(_DISCOVERY, _DEFAULT_DISCOVERY))
        seconds = millis / 1000 if millis > 0 else math.inf
        metadata = KafkaMetadata(self.properties)
        return KafkaPlanner(metadata, self.subscription, self.start, self.stop, seconds, restored)

    def create_decoder(self, errors: Counter) -> Decoder:
        """Return what makes records or batches of messages; ``errors`` counts those it cannot."""
        if self.batch_type is None:
            return Decoder(self.schema, self.bad_records, errors)
        # NB: pyarrow takes long to load
        from holdfast.datastream.connectors.kafka.batches import BatchDecoder

        assert isinstance(self.schema, DeserializationSchema)
        return BatchDecoder(self.schema, self.bad_records, errors, self.batch_type)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        """Return a reader; partitions are divided between the subtasks."""
        return KafkaReader(self, subtask, parallelism)

    def redistribute(self, positions: Sequence[Any], parallelism: int) -> Sequence[Any]:
        """Assign each partition, with its offset, to its new subtask."""
        shares: list[dict[Split, Any]] = [{} for _ in range(parallelism)]
        pending: list[dict[int, dict[Split, int]]] = [{} for _ in range(parallelism)]
        for places, waiting, _ in positions:
            for split, place in places.items():
                shares[owner(split, parallelism)][split] = place
            for checkpoint, offsets in waiting.items():
                for split, offset in offsets.items():
                    mine = pending[owner(split, parallelism)]
                    mine.setdefault(checkpoint, {})[split] = offset
        planned = all(told for _, _, told in positions)
        return [(share, waiting, planned) for share, waiting in zip(shares, pending, strict=True)]


class KafkaSourceBuilder:
    """Builds a ``KafkaSource``.

    >>> from holdfast.common import SimpleStringSchema
    >>> source = (
    ...     KafkaSource.builder()
    ...     .set_bootstrap_servers("localhost:9092")
    ...     .set_topics("orders")
    ...     .set_group_id("billing")
    ...     .set_starting_offsets(KafkaOffsetsInitializer.earliest())
    ...     .set_value_only_deserializer(SimpleStringSchema())
    ...     .build()
    ... )
    """

    def __init__(self) -> None:
        """Start empty; use ``KafkaSource.builder``."""
        self._subscription: Subscription | None = None
        self._properties: dict[str, str] = {}
        self._schema: DeserializationSchema | KafkaRecordDeserializationSchema | None = None
        self._start = KafkaOffsetsInitializer.earliest()
        self._stop: KafkaOffsetsInitializer | None = None
        self._bad: BadRecords | OutputTag = BadRecords.FAIL
        self._batch_type: BatchTypeInfo | None = None

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder:
        """Set the addresses of the brokers: ``host:port``, separated by commas."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """Set the consumer group whose offsets are committed, and may be started from."""
        return self.set_property("group.id", group_id)

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        """Read all partitions of these topics, also those added later."""
        return self._subscribe(Subscription(topics=topics))

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder:
        """Read all topics, present and future, whose whole name matches a regular expression."""
        re.compile(topic_pattern)
        return self._subscribe(Subscription(pattern=topic_pattern))

    def set_partitions(self, partitions: Collection[KafkaTopicPartition]) -> KafkaSourceBuilder:
        """Read these partitions only."""
        return self._subscribe(Subscription(splits=tuple(sorted(p.split for p in partitions))))

    def set_starting_offsets(
        self, starting_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Set where a job without a checkpoint starts; the default is the oldest record."""
        self._start = starting_offsets_initializer
        return self

    def set_unbounded(
        self, stopping_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Set the stopping offsets; the same as ``set_bounded``."""
        return self.set_bounded(stopping_offsets_initializer)

    def set_bounded(
        self, stopping_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Set the stopping offsets, as of the job's start; then the source ends."""
        self._stop = stopping_offsets_initializer
        return self

    def set_value_only_deserializer(
        self, deserialization_schema: DeserializationSchema
    ) -> KafkaSourceBuilder:
        """Decode the values of messages; messages without a value are skipped."""
        self._schema = _checked("set_value_only_deserializer", deserialization_schema)
        return self

    def set_deserializer(
        self, record_deserializer: KafkaRecordDeserializationSchema
    ) -> KafkaSourceBuilder:
        """Decode whole messages, with key, headers and offset."""
        if not isinstance(record_deserializer, KafkaRecordDeserializationSchema):
            kind = type(record_deserializer).__name__
            message = f"set_deserializer: expected a KafkaRecordDeserializationSchema; got {kind}"
            raise TypeError(message)
        self._schema = record_deserializer
        return self

    def set_bad_records(self, handling: BadRecords | OutputTag) -> KafkaSourceBuilder:
        """Set what to do with a message that cannot be decoded; by default the job fails.

        ``BadRecords.SKIP`` skips it and counts it in the metric ``numRecordsInErrors``. An
        ``OutputTag`` sends it, as a ``KafkaRecord`` with the error, to that side output.
        """
        self._bad = handling
        return self

    def as_batches(self, schema: Any) -> KafkaSourceBuilder:
        """Give batches with these columns, for functions of batches.

        The messages that have arrived are decoded together, by the deserializer of values. A field
        that a message does not have is null.

        Args:
            schema: a ``pyarrow.Schema``, a dataclass, or a named row type.
        """
        self._batch_type = BatchTypeInfo(schema)
        return self

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder:
        """Set the prefix of client ids, which brokers use in their logs."""
        return self.set_property("client.id.prefix", prefix)

    def set_property(self, key: str, value: str) -> KafkaSourceBuilder:
        """Set any property of Kafka's clients, or of Flink's connector."""
        self._properties[key] = str(value)
        return self

    def set_properties(self, props: Mapping[str, str]) -> KafkaSourceBuilder:
        """Set several properties."""
        for key, value in props.items():
            self.set_property(key, value)
        return self

    def build(self) -> KafkaSource:
        """Return the source.

        Raises:
            JobDefinitionError: when something is missing; also the package for Kafka.
        """
        library()
        if "bootstrap.servers" not in self._properties:
            raise _missing("where brokers are", "set_bootstrap_servers")
        if self._subscription is None:
            raise _missing("what to read", "set_topics, set_topic_pattern or set_partitions")
        if self._schema is None:
            raise _missing("how messages decode", "set_value_only_deserializer or set_deserializer")
        if self._batch_type and not isinstance(self._schema, DeserializationSchema):
            raise JobDefinitionError(
                "as_batches: only the values of messages can be decoded to batches; call "
                "set_value_only_deserializer, or call to_batches(schema) behind the source"
            )
        return KafkaSource(
            self._subscription,
            dict(self._properties),
            self._schema,
            self._start,
            self._stop,
            self._bad,
            self._batch_type,
        )

    def _subscribe(self, subscription: Subscription) -> KafkaSourceBuilder:
        if self._subscription is not None:
            raise JobDefinitionError(
                f"a KafkaSource reads topics, a pattern or partitions; it has {self._subscription} "
                f"and is given {subscription}"
            )
        self._subscription = subscription
        return self


def _missing(what: str, calls: str) -> JobDefinitionError:
    return JobDefinitionError(f"a KafkaSource has to know {what}; call {calls} before build()")


def _checked(call: str, schema: Any) -> DeserializationSchema:
    if isinstance(schema, DeserializationSchema):
        return schema
    message = f"{call}: expected a DeserializationSchema; got {type(schema).__name__}: {schema!r}"
    raise TypeError(message)


def _is_true(text: str) -> bool:
    return text.lower() == "true"
