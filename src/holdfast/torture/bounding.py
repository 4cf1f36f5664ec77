"""Gives sources without an end the same end in all runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from holdfast.datastream.connectors._sequence import SequenceSource
from holdfast.datastream.connectors.base import Source
from holdfast.datastream.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    OffsetKind,
    Split,
)
from holdfast.datastream.connectors.kafka.source import KafkaSource
from holdfast.torture.order import Order
from holdfast.torture.shares import FirstRecords


def bounded(source: Source, order: Order, name: str) -> tuple[Source, FirstRecords | None]:
    """Return a source that ends where it ends in the other runs.

    If it does not know by itself where that is, its subtasks count: they read the first records.
    """
    if isinstance(source, KafkaSource):
        return _bounded_topics(source, order, name), None
    if order.records and isinstance(source, SequenceSource):
        return _Beginning(source, order.records), None
    return source, first_records(order, name)


def first_records(order: Order, name: str) -> FirstRecords | None:
    """Return which records are read of a source without an end; None: all."""
    return FirstRecords(order.shared, name, order.records) if order.records else None


class _Beginning(SequenceSource):
    """The first records of a sequence, whichever subtask reads them."""

    def __init__(self, source: SequenceSource, records: int) -> None:
        self._source = source
        self._records = records
        self.batch_type = source.batch_type

    @property
    def parallelism_limit(self) -> int | None:
        return self._source.parallelism_limit

    def sequence(self) -> Sequence[Any]:
        return _First(self._source.sequence(), self._records)


class _First(Sequence[Any]):
    """The beginning of a sequence; slices are those of the sequence."""

    def __init__(self, records: Sequence[Any], count: int) -> None:
        self._records = records
        self._count = min(len(records), count)
        if hasattr(records, "at_once"):
            self.at_once = records.at_once

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: Any) -> Any:
        return self._records[place]


class _Bounds(msgspec.Struct):
    """Where the partitions of a Kafka source begin and end."""

    topic: str
    partition: int
    first: int
    last: int


def _bounded_topics(source: KafkaSource, order: Order, name: str) -> KafkaSource:
    """Return the source with the offsets of the first run; it commits none."""
    path = Path(order.shared) / f"topics-{name}.json"
    if not path.exists():
        found = _bounds(source, order.records)
        path.write_bytes(msgspec.json.encode(found))
    bounds = msgspec.json.decode(path.read_bytes(), type=list[_Bounds])
    quiet = {"commit.offsets.on.checkpoint": "false", "enable.auto.commit": "false"}
    return replace(
        source,
        properties={**source.properties, **quiet},
        start=_at({(bound.topic, bound.partition): bound.first for bound in bounds}),
        stop=_at({(bound.topic, bound.partition): bound.last for bound in bounds}),
    )


def _at(offsets: dict[Split, int]) -> KafkaOffsetsInitializer:
    # NB: a partition that was added since then is empty for these runs
    reset = KafkaOffsetResetStrategy.LATEST
    return KafkaOffsetsInitializer(OffsetKind.OFFSETS, reset, given=offsets)


def _bounds(source: KafkaSource, records: int) -> list[_Bounds]:
    planner = source.create_planner(restored=False)
    try:
        plan = planner.plan()
    finally:
        planner.close()
    share = -(-records // max(1, len(plan.starts)))
    found = []
    for (topic, partition), start in sorted(plan.starts.items()):
        last = plan.ends[topic, partition] if start.stop is None else start.stop
        last = min(last, start.offset + share) if records else last
        found.append(_Bounds(topic, partition, start.offset, max(start.offset, last)))
    return found
