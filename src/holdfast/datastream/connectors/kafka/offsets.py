"""Partitions of Kafka: where to start and stop in them, and which subtask reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias
from zlib import crc32

#: a partition in the runtime: topic and number; plain values, for saved positions
Split: TypeAlias = tuple[str, int]
#: offsets from the first, inclusive, to the last, exclusive
OffsetRange: TypeAlias = tuple[int, int]


@dataclass(frozen=True, order=True)
class KafkaTopicPartition:
    """A partition of a topic."""

    topic: str
    partition: int

    @property
    def split(self) -> Split:
        """Return the partition as plain values."""
        return self.topic, self.partition


class KafkaOffsetResetStrategy(Enum):
    """Where to start in a partition without an offset."""

    LATEST = 0
    EARLIEST = 1
    NONE = 2


class OffsetKind(Enum):
    """How an initializer determines offsets."""

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"
    TIMESTAMP = "timestamp"
    OFFSETS = "offsets"


@dataclass(frozen=True)
class KafkaOffsetsInitializer:
    """Where reading starts or stops in each partition."""

    kind: OffsetKind
    reset: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE
    time: int = 0
    given: Mapping[Split, int] = field(default_factory=dict)

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """Use the committed offsets of the consumer group; without any, the strategy.

        With ``NONE`` the job fails if there are none.
        """
        return KafkaOffsetsInitializer(OffsetKind.COMMITTED, offset_reset_strategy)

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """Use the first record whose timestamp is not before this one, in milliseconds."""
        if timestamp < 0:
            message = f"KafkaOffsetsInitializer.timestamp: expected milliseconds; got {timestamp}"
            raise ValueError(message)
        return KafkaOffsetsInitializer(OffsetKind.TIMESTAMP, time=timestamp)

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """Use the oldest record."""
        return KafkaOffsetsInitializer(OffsetKind.EARLIEST)

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """Use the current end."""
        return KafkaOffsetsInitializer(OffsetKind.LATEST)

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """Use these offsets; for other partitions, the strategy."""
        given = {partition.split: offset for partition, offset in offsets.items()}
        return KafkaOffsetsInitializer(OffsetKind.OFFSETS, offset_reset_strategy, given=given)


def describe(split: Split) -> str:
    """Describe a partition in messages."""
    return f"partition {split[1]} of topic '{split[0]}'"


def owner(split: Split, parallelism: int) -> int:
    """Return the subtask that reads a partition: round robin from a start per topic."""
    topic, partition = split
    return (crc32(topic.encode()) + partition) % parallelism


def divide(backlog: Mapping[Split, OffsetRange], limit: int) -> dict[Split, OffsetRange]:
    """Return what an epoch reads: at most ``limit`` offsets, evenly from the partitions.

    It depends on its arguments alone, so a task that is repeated reads the same. If a partition has
    less than its share, the others get the rest.
    """
    ranges: dict[Split, OffsetRange] = {}
    by_size = sorted(backlog.items(), key=lambda item: (item[1][1] - item[1][0], item[0]))
    for done, (split, (first, last)) in enumerate(by_size):
        share = -(-limit // (len(by_size) - done))
        count = min(max(last - first, 0), share)
        limit -= count
        if count:
            ranges[split] = (first, first + count)
    return ranges
