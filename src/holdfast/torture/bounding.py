"""Gives sources without an end the same end in all runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from holdfast.datastream.connectors.base import Source
from holdfast.datastream.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    OffsetKind,
    Split,
)
from holdfast.datastream.connectors.kafka.source import KafkaSource
from holdfast.torture.order import Order


def bounded(source: Source, order: Order, name: str) -> Source:
    """Return a source that ends where it ends in the other runs, if it is known how to do that."""
    if isinstance(source, KafkaSource):
        return _bounded_topics(source, order, name)
    return source


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
