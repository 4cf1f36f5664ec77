"""``KafkaSource`` and its builder, under PyFlink's names."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.common.serialization import DeserializationSchema
from holdfast.datastream.connectors._kafka_client import KafkaMetadata, library
from holdfast.datastream.connectors._kafka_decoding import (
    BadRecords,
    KafkaRecordDeserializationSchema,
)
from holdfast.datastream.connectors._kafka_offsets import (
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
    Split,
    owner,
)
from holdfast.datastream.connectors._kafka_planner import KafkaPlanner, Subscription
from holdfast.datastream.connectors._kafka_reader import KafkaReader
from holdfast.datastream.connectors.base import EpochPlanner, Source, SourceReader
from holdfast.datastream.output_tag import OutputTag
from holdfast.errors import JobDefinitionError

_DISCOVERY = "partition.discovery.interval.ms"
_DEFAULT_DISCOVERY = 10_000
_COMMITS = "commit.offsets.on.checkpoint"


@dataclass(frozen=True)
class KafkaSource(Source):
    """The messages of Kafka's topics; use ``builder()``.

    Every partition is read by one subtask. How far an epoch reads is fixed before it runs, so each
    message affects the state exactly once. Messages have Kafka's timestamps, and every partition
    has a watermark of its own.
    """

    subscription: Subscription
    properties: Mapping[str, str]
    schema: DeserializationSchema | KafkaRecordDeserializationSchema
    start: KafkaOffsetsInitializer = field(default_factory=KafkaOffsetsInitializer.earliest)
    stop: KafkaOffsetsInitializer | None = None
    bad_records: BadRecords | OutputTag = BadRecords.FAIL

    #: for the planner of the graph: records come with timestamps
    gives_timestamps = True

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """Begin to describe a source."""
        return KafkaSourceBuilder()

    @property
    def stops(self) -> bool:
        """Whether it ends."""
        return self.stop is not None

    @property
    def commits_on_checkpoints(self) -> bool:
        """Whether its group's offsets are committed when a checkpoint is complete."""
        return "group.id" in self.properties and _is_true(self.properties.get(_COMMITS, "true"))

    @property
    def commits_periodically(self) -> bool:
        """Whether they are, now and then, in a job without checkpoints."""
        wanted = _is_true(self.properties.get("enable.auto.commit", "false"))
        return "group.id" in self.properties and wanted

    @property
    def listens(self) -> bool:
        """Whether the offsets of the last epoch are to be committed."""
        return self.commits_periodically

    @property
    def side_outputs(self) -> bool:
        """Whether messages that do not decode go to a side output."""
        return isinstance(self.bad_records, OutputTag)

    def create_planner(self, restored: bool) -> EpochPlanner:
        """What asks Kafka, in the driver, how far its topics are."""
        millis = int(self.properties.get(_DISCOVERY, _DEFAULT_DISCOVERY))
        seconds = millis / 1000 if millis > 0 else math.inf
        metadata = KafkaMetadata(self.properties)
        return KafkaPlanner(metadata, self.subscription, self.start, self.stop, seconds, restored)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        """Partitions are divided over the subtasks."""
        return KafkaReader(self, subtask, parallelism)

    def redistribute(self, positions: Sequence[Any], parallelism: int) -> Sequence[Any]:
        """Each partition goes on where it was, with the subtask that it belongs to now."""
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
        """Begin with nothing; made by ``KafkaSource.builder``."""
        self._subscription: Subscription | None = None
        self._properties: dict[str, str] = {}
        self._schema: DeserializationSchema | KafkaRecordDeserializationSchema | None = None
        self._start = KafkaOffsetsInitializer.earliest()
        self._stop: KafkaOffsetsInitializer | None = None
        self._bad: BadRecords | OutputTag = BadRecords.FAIL

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder:
        """Where brokers are: ``host:port``, several with commas."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """The consumer group whose offsets are committed, and may be begun with."""
        return self.set_property("group.id", group_id)

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        """Read these topics, all partitions that they have and get."""
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
        """Where to begin in a job that does not go on from a checkpoint; at the oldest record."""
        self._start = starting_offsets_initializer
        return self

    def set_unbounded(
        self, stopping_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Where to stop; as ``set_bounded``, since a stream that ends is one all the same."""
        return self.set_bounded(stopping_offsets_initializer)

    def set_bounded(
        self, stopping_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Where to stop, as of when the job starts; the job ends when all partitions are there."""
        self._stop = stopping_offsets_initializer
        return self

    def set_value_only_deserializer(
        self, deserialization_schema: DeserializationSchema
    ) -> KafkaSourceBuilder:
        """Records are the values of messages; a message without one is left out."""
        self._schema = _checked("set_value_only_deserializer", deserialization_schema)
        return self

    def set_deserializer(
        self, record_deserializer: KafkaRecordDeserializationSchema
    ) -> KafkaSourceBuilder:
        """Records are made of whole messages, with key, headers and place."""
        if not isinstance(record_deserializer, KafkaRecordDeserializationSchema):
            kind = type(record_deserializer).__name__
            message = f"set_deserializer: expected a KafkaRecordDeserializationSchema; got {kind}"
            raise TypeError(message)
        self._schema = record_deserializer
        return self

    def set_bad_records(self, handling: BadRecords | OutputTag) -> KafkaSourceBuilder:
        """What becomes of a message that does not decode: the job fails, unless told otherwise.

        ``BadRecords.SKIP`` leaves it out and counts it in the metric ``numRecordsInErrors``. An
        ``OutputTag`` sends it, as a ``KafkaRecord`` with the error, to that side output.
        """
        self._bad = handling
        return self

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder:
        """How brokers call this job's clients in their logs."""
        return self.set_property("client.id.prefix", prefix)

    def set_property(self, key: str, value: str) -> KafkaSourceBuilder:
        """Any property of Kafka's clients, or of Flink's connector."""
        self._properties[key] = str(value)
        return self

    def set_properties(self, props: Mapping[str, str]) -> KafkaSourceBuilder:
        """Several of them."""
        for key, value in props.items():
            self.set_property(key, value)
        return self

    def build(self) -> KafkaSource:
        """The source.

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
        return KafkaSource(
            self._subscription,
            dict(self._properties),
            self._schema,
            self._start,
            self._stop,
            self._bad,
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
