"""Windows on Spark: over several epochs, with watermarks through exchanges, and after a failure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.common import Configuration, RestartStrategies, WatermarkStrategy
from holdfast.datastream import (
    AggregateFunction,
    OutputTag,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from holdfast.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from holdfast.testing import EndOfEpoch, ScriptedSource

pytestmark = pytest.mark.spark

LATE = OutputTag("late")


class Count(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class WithWindow(ProcessWindowFunction[int, Any, str, Any]):
    """Key, start and count; and how many windows of the key there were before."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context[Any], elements: Iterable[int]
    ) -> Iterator[Any]:
        yield key, context.window().start, *elements


class FailOnce(WithWindow):
    """Fails when a certain window fires, once in the life of its marker file."""

    def __init__(self, marker: Path, start: int) -> None:
        self._marker = marker
        self._start = start

    def process(
        self, key: str, context: ProcessWindowFunction.Context[Any], elements: Iterable[int]
    ) -> Iterator[Any]:
        if context.window().start == self._start and not self._marker.exists():
            self._marker.touch()
            msg = "simulated failure in a window"
            raise RuntimeError(msg)
        return super().process(key, context, elements)


def test_windows_over_epochs(spark: Any, env: StreamExecutionEnvironment) -> None:
    """The watermark comes from two sources through a shuffle; a late record is too late."""
    first = [("a", 1), ("b", 8), EndOfEpoch(), ("a", 12), EndOfEpoch(), ("b", 3), ("a", 40)]
    second = [("a", 2), EndOfEpoch(), ("b", 15), EndOfEpoch(), ("b", 41)]
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda record, _: record[1]
    )
    records = env.from_source(ScriptedSource(first, second), strategy)
    windows = records.key_by(lambda record: record[0]).window(TumblingEventTimeWindows.of(10))
    counts = windows.side_output_late_data(LATE).aggregate(Count(), WithWindow())
    given = list(counts.union(counts.get_side_output(LATE)).execute_and_collect())
    expected = [("a", 0, 2), ("a", 10, 1), ("a", 40, 1), ("b", 0, 1), ("b", 10, 1), ("b", 40, 1)]
    assert sorted(record for record in given if len(record) == 3) == expected
    assert [record for record in given if len(record) == 2] == [("b", 3)]


def test_sessions_go_on_after_a_failure(spark: Any, tmp_path: Path) -> None:
    configuration = Configuration()
    configuration.set_string("execution.checkpointing.dir", str(tmp_path / "checkpoints"))
    env = StreamExecutionEnvironment(configuration).set_parallelism(2).set_buffer_timeout(10)
    env.enable_checkpointing(10)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 10))
    script: list[Any] = []
    for time in range(0, 400, 20):
        script += [("abc"[time // 20 % 3], time + step) for step in (0, 5, 2)]
        script.append(EndOfEpoch())
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(10).with_timestamp_assigner(
        lambda record, _: record[1]
    )
    records = env.from_source(ScriptedSource(script), strategy)
    windows = records.key_by(lambda record: record[0]).window(EventTimeSessionWindows.with_gap(8))
    counts = windows.aggregate(Count(), FailOnce(tmp_path / "failed", 200))
    given = set(counts.execute_and_collect())
    assert (tmp_path / "failed").exists()
    assert given == {("abc"[time // 20 % 3], time, 3) for time in range(0, 400, 20)}
