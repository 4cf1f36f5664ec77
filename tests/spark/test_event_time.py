"""Time on Spark: over several epochs, through exchanges, after a failure, and without data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from holdfast.common import Configuration, RestartStrategies, WatermarkStrategy
from holdfast.common.constants import MAX_LONG_VALUE
from holdfast.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessWindowFunction,
    RuntimeContext,
    SourceFunction,
    StreamExecutionEnvironment,
    TimeDomain,
)
from holdfast.datastream.functions import SourceContext
from holdfast.datastream.state import ValueStateDescriptor
from holdfast.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from holdfast.testing import EndOfEpoch, ScriptedSource
from tests.gates import After, Completed, Exists, GatedScript

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.usefixtures("engine")]

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
    """Key, start and count."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context[Any], elements: Iterable[int]
    ) -> Iterator[Any]:
        yield key, context.window().start, *elements


class TellsOf(WithWindow):
    """Makes a file when a certain window of a certain key fires."""

    def __init__(self, file: Path, window: tuple[str, int]) -> None:
        self._file = file
        self._window = window

    def process(
        self, key: str, context: ProcessWindowFunction.Context[Any], elements: Iterable[int]
    ) -> Iterator[Any]:
        yield from super().process(key, context, elements)
        if (key, context.window().start) == self._window:
            self._file.touch()


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


def test_windows_over_epochs(spark: Any, env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    """The watermark comes from two sources through a shuffle; a late record is too late."""
    fired = tmp_path / "fired"
    first = [("a", 1), ("b", 8), ("a", 12), After(Exists(fired)), ("b", 3), ("a", 40)]
    second = [("a", 2), ("b", 15), After(Exists(fired)), ("b", 41)]
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda record, _: record[1]
    )
    records = env.from_source(GatedScript(first, second), strategy)
    windows = records.key_by(lambda record: record[0]).window(TumblingEventTimeWindows.of(10))
    counts = windows.side_output_late_data(LATE).aggregate(Count(), TellsOf(fired, ("b", 0)))
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


class OneRecord(SourceFunction):
    """Gives one record, then nothing until somebody has written a file; and ends."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def open(self, runtime_context: RuntimeContext) -> None:
        self._cancelled = Event()

    def run(self, ctx: SourceContext) -> None:
        ctx.collect("record")
        while not self._file.exists() and not self._cancelled.wait(0.01):
            pass

    def cancel(self) -> None:
        self._cancelled.set()


class Alarm(KeyedProcessFunction):
    """Sets a timer, which sets another one, which writes the file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def open(self, runtime_context: RuntimeContext) -> None:
        self._fired = runtime_context.get_state(ValueStateDescriptor("fired", int))

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> None:
        now = ctx.timer_service().current_processing_time()
        ctx.timer_service().register_processing_time_timer(now + 50)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        assert ctx.time_domain() is TimeDomain.PROCESSING_TIME
        assert timestamp <= ctx.timer_service().current_processing_time()
        self._fired.update((self._fired.value() or 0) + 1)
        yield ctx.get_current_key(), self._fired.value()
        if self._fired.value() == 1:
            ctx.timer_service().register_processing_time_timer(timestamp + 300)
        else:
            self._file.touch()


def test_the_client_knows_watermarks_checkpoints_and_attempts(spark: Any, tmp_path: Path) -> None:
    configuration = Configuration({"execution.checkpointing.dir": str(tmp_path)})
    env = StreamExecutionEnvironment(configuration)
    env.set_parallelism(2).set_buffer_timeout(10)
    env.enable_checkpointing(10)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 0))
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda record, _: record[1]
    )
    script = [("a", 1), After(Completed(tmp_path / "watched")), ("a", 30), ("a", 60)]
    records = env.from_source(GatedScript(script), strategy).key_by(lambda record: record[0])
    windows = records.window(TumblingEventTimeWindows.of(10))
    windows.aggregate(Count(), FailOnce(tmp_path / "failed", 30)).uid("counts").print()
    client = env.execute_async("watched")
    client.get_job_execution_result().result()
    first, second = client.get_attempts()
    assert (first.number, first.checkpoint) == (0, None)
    assert "simulated failure in a window" in first.failure
    assert first.started < first.failed <= second.started
    assert (second.number, second.failure) == (1, None)
    assert second.checkpoint in {one.id for one in client.get_checkpoints()}
    assert client.get_watermarks()["counts"] == MAX_LONG_VALUE


def test_processing_time_timers_fire_without_data(
    spark: Any, env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    """The source says nothing until a second timer has fired, so data cannot have woken it."""
    file = tmp_path / "fired"
    alarms = env.add_source(OneRecord(file)).key_by(lambda name: name).process(Alarm(file))
    assert list(alarms.execute_and_collect()) == [("record", 1), ("record", 2)]
