"""The functions and streams that Holdfast's programs are made of: plain DataStream API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from benchmarks.program import PARALLELISM, Task
from benchmarks.records import Record, record
from holdfast.common import Configuration, Types, WatermarkStrategy
from holdfast.datastream import (
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.functions import SinkFunction
from holdfast.datastream.state import ValueStateDescriptor

__all__ = ["Count", "CountAndTotal", "Discard", "Largest", "environment", "numbers", "records"]


class CountAndTotal(KeyedProcessFunction):
    """Count and total per user."""

    def open(self, context: RuntimeContext) -> None:
        """Get hold of the state."""
        totals = Types.TUPLE([Types.LONG(), Types.DOUBLE()])
        self.totals = context.get_state(ValueStateDescriptor("totals", totals))

    def process_element(self, value: Record, ctx: Any) -> Iterator[tuple[str, int, float]]:
        """Add a record to its user."""
        count, total = self.totals.value() or (0, 0.0)
        count += 1
        total += value[1]
        self.totals.update((count, total))
        yield value[0], count, total


class Count(KeyedProcessFunction):
    """Count per word."""

    def open(self, context: RuntimeContext) -> None:
        """Get hold of the state."""
        self.count = context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, ctx: Any) -> Iterator[tuple[str, int]]:
        """Count a word."""
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value, count


class Largest(KeyedProcessFunction):
    """The largest amount per group."""

    def open(self, context: RuntimeContext) -> None:
        """Get hold of the state."""
        self.peak = context.get_state(ValueStateDescriptor("peak", Types.DOUBLE()))

    def process_element(self, value: Record, ctx: Any) -> Iterator[tuple[str, int, float]]:
        """Compare a record with the largest so far."""
        peak = self.peak.value()
        if peak is None or value[1] > peak:
            peak = value[1]
            self.peak.update(peak)
        yield value[0], value[2], peak


class Discard(SinkFunction):
    """Throws everything away."""

    def invoke(self, value: Any, context: Any) -> None:
        """Do nothing."""


def environment(
    task: Task, settings: Mapping[str, str] = MappingProxyType({})
) -> StreamExecutionEnvironment:
    """Return an environment whose state files, written with every epoch, are the task's.

    A variant that ends with ``rocksdb`` keeps its state there.
    """
    config = Configuration(dict(settings))
    config.set_string("holdfast.directory", f"{task.directory}/job")
    if task.variant.endswith("rocksdb"):
        config.set_string("state.backend.type", "rocksdb")
        config.set_string("state.backend.rocksdb.localdir", f"{task.directory}/local")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(PARALLELISM)
    return env


def numbers(env: StreamExecutionEnvironment, count: int) -> DataStream:
    """Return the stream of 0 to ``count - 1``."""
    source = NumberSequenceSource(0, count - 1)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")


def records(
    env: StreamExecutionEnvironment, count: int, make: Callable[[int], Record] = record
) -> DataStream:
    """Return the stream of records."""
    return numbers(env, count).map(make)
