"""Places in Kafka: partitions, where to begin and where to stop in them, and who reads which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias
from zlib import crc32

#: a partition as the runtime knows it: topic and number. Plain, so that saved positions are, too.
Split: TypeAlias = tuple[str, int]
#: offsets from the first up to, and without, the last
OffsetRange: TypeAlias = tuple[int, int]


@dataclass(frozen=True, order=True)
class KafkaTopicPartition:
    """A partition of a topic."""

    topic: str
    partition: int

    @property
    def split(self) -> Split:
        """The same, plain."""
        return self.topic, self.partition


class KafkaOffsetResetStrategy(Enum):
    """Where to begin in a partition for which nothing else says so."""

    LATEST = 0
    EARLIEST = 1
    NONE = 2


class OffsetKind(Enum):
    """What an initializer goes by."""

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"
    TIMESTAMP = "timestamp"
    OFFSETS = "offsets"


@dataclass(frozen=True)
class KafkaOffsetsInitializer:
    """Where reading begins, or stops, in each partition."""

    kind: OffsetKind
    reset: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE
    time: int = 0
    given: Mapping[Split, int] = field(default_factory=dict)

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """What the consumer group has committed; where it has not, as the strategy says.

        With ``NONE`` the job fails then.
        """
        return KafkaOffsetsInitializer(OffsetKind.COMMITTED, offset_reset_strategy)

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """The first record whose timestamp is not before this one, in milliseconds."""
        if timestamp < 0:
            message = f"KafkaOffsetsInitializer.timestamp: expected milliseconds; got {timestamp}"
            raise ValueError(message)
        return KafkaOffsetsInitializer(OffsetKind.TIMESTAMP, time=timestamp)

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """The oldest record there is."""
        return KafkaOffsetsInitializer(OffsetKind.EARLIEST)

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """After the last record of now."""
        return KafkaOffsetsInitializer(OffsetKind.LATEST)

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """These offsets; in partitions that are not among them, as the strategy says."""
        given = {partition.split: offset for partition, offset in offsets.items()}
        return KafkaOffsetsInitializer(OffsetKind.OFFSETS, offset_reset_strategy, given=given)


def describe(split: Split) -> str:
    """A partition, for people."""
    return f"partition {split[1]} of topic '{split[0]}'"


def owner(split: Split, parallelism: int) -> int:
    """The subtask that reads a partition: those of a topic go round, from a place of its own."""
    topic, partition = split
    return (crc32(topic.encode()) + partition) % parallelism


def divide(backlog: Mapping[Split, OffsetRange], limit: int) -> dict[Split, OffsetRange]:
    """What an epoch reads of what there is: at most ``limit`` offsets, evenly over the partitions.

    A function of its arguments alone: a task that is run again reads the same. What a partition has
    less than its share of is shared by the others.
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
