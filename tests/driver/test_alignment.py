"""Watermark alignment: sources wait for the slowest of their group."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.common import Configuration, Duration, WatermarkStrategy
from holdfast.common.constants import MAX_LONG_VALUE, MIN_LONG_VALUE
from holdfast.datastream import DataStream, ProcessFunction, StreamExecutionEnvironment
from holdfast.datastream.connectors.base import Source, SourceReader, SplitRecords
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.driver.watermark_alignment import WatermarkGroups
from holdfast.errors import JobDefinitionError
from holdfast.runtime.event_time import StampingTime
from holdfast.testing import (
    AdvanceClock,
    Crash,
    EndOfEpoch,
    LocalExecutor,
    ManualClock,
    ScriptedSource,
)
from tests.conftest import OnSpark

#: as many records are read before watermarks are looked at
STEP = 1024
DRIFT = 5_000


def aligned(drift: int = DRIFT, group: str = "group", **idle: int) -> WatermarkStrategy:
    strategy = (
        WatermarkStrategy.for_monotonous_timestamps()
        .with_timestamp_assigner(lambda record, _: record[1])
        .with_watermark_alignment(group, Duration.of_millis(drift))
    )
    return strategy.with_idleness(Duration.of_millis(idle["idle"])) if idle else strategy


def script(name: str, count: int, step: int) -> list[Any]:
    return [(name, number * step) for number in range(count)]


def times(run: LocalExecutor, *names: str) -> list[int]:
    """The watermarks of sources after the last epoch; the smallest number before the first one."""
    found = {uid: time for (uid, _), time in run._job.book.watermarks.items()}
    by_name = {op.name.removeprefix("Source: "): op.uid for op in run.plan.operators.values()}
    return [found.get(by_name[name], MIN_LONG_VALUE) for name in names]


def two(
    env: StreamExecutionEnvironment, fast: list[Any], slow: list[Any], **idle: int
) -> DataStream:
    streams = [
        env.from_source(ScriptedSource(records), aligned(**idle), name)
        for name, records in (("fast", fast), ("slow", slow))
    ]
    return streams[0].union(streams[1])


def test_a_source_is_at_most_the_drift_and_a_few_records_ahead(env: Any) -> None:
    fast, slow = script("fast", 20_000, 10), script("slow", 20_000, 1)
    drifts = []
    with LocalExecutor(two(env, fast, slow), quota=3_000) as run:
        while not run.finished:
            run.epoch()
            ahead, behind = times(run, "fast", "slow")
            if behind != MAX_LONG_VALUE:
                drifts.append(ahead - behind)
        assert sorted(run.records) == sorted(fast + slow)
    assert len(drifts) > 5
    assert max(drifts) <= DRIFT + STEP * 10


def test_without_alignment_it_is_not_bounded(env: Any) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda record, _: record[1]
    )
    fast = env.from_source(ScriptedSource(script("fast", 9_000, 10)), strategy, "fast")
    slow = env.from_source(ScriptedSource(script("slow", 9_000, 1)), strategy, "slow")
    with LocalExecutor(fast.union(slow), quota=3_000) as run:
        run.epoch()
        ahead, behind = times(run, "fast", "slow")
        assert ahead - behind > DRIFT + STEP * 10


def test_a_source_that_has_ended_holds_nobody_up(env: Any) -> None:
    fast, slow = script("fast", 5_000, 1_000), script("slow", 3, 1)
    with LocalExecutor(two(env, fast, slow)) as run:
        run.run_to_end()
        assert sorted(run.records) == sorted(fast + slow)


def test_a_source_that_is_idle_holds_nobody_up_and_others_wait_when_it_is_not_any_more(
    env: Any,
) -> None:
    fast = script("fast", 5_000, 100)
    slow = [("slow", 0), *[AdvanceClock(500)] * 4, ("slow", 1), EndOfEpoch(), ("slow", 2)]
    with LocalExecutor(two(env, fast, slow, idle=1_000)) as run:
        run.epoch()
        while times(run, "fast")[0] <= DRIFT + STEP * 100:  # it is let go when the other is idle
            run.epoch()
        assert times(run, "slow")[0] == -1
        run.run_to_end()
        assert sorted(run.records) == sorted([*fast, ("slow", 0), ("slow", 1), ("slow", 2)])


def test_a_paused_source_does_not_become_idle(env: Any) -> None:
    """If it did, the end of the other one would be the end of time, and all that follows late."""
    fast = script("fast", 3_000, 100)
    slow = [("slow", 0), *[AdvanceClock(500), ("slow", 0)] * 6]
    with LocalExecutor(two(env, fast, slow, idle=1_000)) as run:
        run.run_until(lambda: times(run, "slow")[0] == MAX_LONG_VALUE)
        assert run.clock() == 3_000
        before = times(run, "fast")[0]
        assert DRIFT < before < 3_000 * 100
        assert not run._job.book.idle
        run.run_to_end()
        assert len(run.records) == 3_007


def test_no_idle_timeout_runs_while_a_source_is_paused() -> None:
    clock = ManualClock()
    time = StampingTime(clock, aligned(idle=1_000))
    time.saw("record", 100)
    time.watermark = time.generate()
    assert time.hold(50) == (True, [None])
    clock.advance(2_000)  # within a long epoch
    assert not time.generate().idle
    again = StampingTime(clock, aligned(idle=1_000))
    again.load(time.dump())
    assert again.hold(200) == (False, [])
    assert not again.generate().idle  # not read for long, but not since it was let go
    clock.advance(1_000)
    assert again.generate().idle


def test_paused_subtasks_wait_for_the_slowest_one_of_their_own_source(env: Any) -> None:
    fast, slow = script("fast", 8_000, 10), script("slow", 8_000, 1)
    stream = env.from_source(ScriptedSource(fast, slow), aligned(), "both").uid("both")
    drifts = []
    with LocalExecutor(stream, quota=3_000) as run:
        while not run.finished:
            run.epoch()
            marks = run._job.book.watermarks
            ahead, behind = marks["both", 0], marks["both", 1]
            if behind != MAX_LONG_VALUE:
                drifts.append(ahead - behind)
        assert sorted(run.records) == sorted(fast + slow)
    assert len(drifts) > 2
    assert max(drifts) <= DRIFT + STEP * 10


def test_groups_do_not_wait_for_each_other(env: Any) -> None:
    one = env.from_source(ScriptedSource(script("one", 5_000, 1_000)), aligned(group="one"), "one")
    other = env.from_source(
        ScriptedSource([("other", 0), *[EndOfEpoch()] * 50]), aligned(group="other"), "other"
    )
    with LocalExecutor(one.union(other)) as run:
        run.run_until(lambda: len(run.records) == 5_001)
        assert len(run.reports) < 20


@pytest.mark.parametrize("workers", [1, 2])
def test_results_are_exact_through_crashes_reruns_and_a_restore(
    env: Any, tmp_path: Path, workers: int
) -> None:
    env.configure(Configuration().set_string("execution.checkpointing.dir", str(tmp_path)))
    env.enable_checkpointing(1_000_000)
    fast = script("fast", 6_000, 10)
    slow = script("slow", 6_000, 1)
    broken = [*slow[:4_500], Crash(), *slow[4_500:]]
    with LocalExecutor(two(env, fast, broken), quota=1_500, workers=workers) as run:
        run.epoch()
        run.epoch(checkpoint=True, rerun=True)
        kept = list(run.records)
        with pytest.raises(Exception, match="the script crashes here"):
            run.run_to_end()
        assert run.recover() is not None
        del run.records[len(kept) :]
        first = run.epoch()
        assert first.read == 0  # watermarks are compared before anything is read
        run.run_to_end()
        assert sorted(run.records) == sorted(fast + slow)


class _Lead(ProcessFunction):
    """How far a record is ahead of the slow source, of which this subtask has seen so much."""

    slow = 0

    def process_element(
        self, value: tuple[str, int], ctx: ProcessFunction.Context
    ) -> Iterable[tuple[str, int, int]]:
        name, time = value
        if name == "slow":
            self.slow = time
        yield name, time, time - self.slow


@pytest.mark.spark
def test_on_spark_a_source_waits_for_the_others_of_its_group(env: Any, spark: Any) -> None:
    last = 29_999
    fast, slow = script("fast", 30_000, 10), script("slow", last + 1, 1)
    seen = OnSpark().collect(two(env, fast, slow).process(_Lead()).set_parallelism(1))
    assert sorted((name, time) for name, time, _ in seen) == sorted(fast + slow)
    leads = [lead for _, time, lead in seen if time - lead < last]
    assert DRIFT <= max(leads) <= DRIFT + STEP * 10


# Splits


class _TwoSplits(Source):
    """A source of one subtask with two splits, of which one is ten times as fast."""

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _TwoSplitsReader()


class _TwoSplitsReader(SourceReader):
    count = 8_000

    def __init__(self) -> None:
        self._at = {"fast": 0, "slow": 0}
        self._find_splits()
        self._paused: Collection[Hashable] = ()

    def restore(self, position: Any) -> None:
        self._at = dict(position)
        self._find_splits()

    def position(self) -> Any:
        return dict(self._at)

    def pause(self, splits: Collection[Hashable]) -> None:
        self._paused = splits

    def read(self, limit: int) -> Iterator[SplitRecords]:
        for split, step in (("fast", 10), ("slow", 1)):
            at = self._at[split]
            if split not in self._paused and at < self.count:
                self._at[split] = stop = min(at + limit // 2, self.count)
                yield SplitRecords(split, [(split, number * step) for number in range(at, stop)])
        self._find_splits()

    def _find_splits(self) -> None:
        self.splits = [split for split, at in self._at.items() if at < self.count]

    @property
    def finished(self) -> bool:
        return min(self._at.values()) >= self.count


def test_splits_of_a_subtask_wait_for_the_slowest_one(env: Any) -> None:
    stream = env.from_source(_TwoSplits(), aligned(), "splits").set_parallelism(1)
    with LocalExecutor(stream, quota=3_000) as run:
        for _ in range(200):
            if run.finished:
                break
            run.epoch()
            fast = [time for name, time in run.records if name == "fast"]
            slow = [time for name, time in run.records if name == "slow"]
            assert max(fast) - max(slow, default=0) <= DRIFT + STEP * 10 or len(slow) == 8_000
        assert len(run.records) == len(set(run.records)) == 16_000


# Where it is refused


def test_it_is_refused_on_a_stream(env: Any) -> None:
    with pytest.raises(JobDefinitionError, match=r"only a source can be paused; pass the strategy"):
        env.from_collection([]).assign_timestamps_and_watermarks(aligned())


def test_it_is_refused_where_there_are_no_watermarks(env: Any) -> None:
    strategy = WatermarkStrategy.no_watermarks().with_watermark_alignment("group", 1)
    with pytest.raises(
        JobDefinitionError, match=r"\(group 'group'\), but it generates no watermarks"
    ):
        env.from_source(NumberSequenceSource(1, 2), strategy)


def test_it_is_refused_for_rows_and_source_functions(env: Any) -> None:
    from holdfast.datastream.connectors.dataframe import DataFrameSource
    from holdfast.datastream.connectors.function import FunctionSource
    from holdfast.datastream.functions import SourceContext, SourceFunction

    class Nothing(SourceFunction):
        def run(self, ctx: SourceContext) -> None: ...

        def cancel(self) -> None: ...

    for source in (DataFrameSource(None), FunctionSource(Nothing())):
        with pytest.raises(JobDefinitionError, match=f"a {type(source).__name__} cannot be paused"):
            env.from_source(source, aligned())


# Ceilings


def test_ceilings_are_the_lowest_watermark_and_the_drift_of_each_source(env: Any) -> None:
    env.from_source(ScriptedSource([1], [2]), aligned(10), "a").uid("a").print()
    env.from_source(ScriptedSource([1]), aligned(20), "b").uid("b").print()
    env.from_source(ScriptedSource([1]), aligned(20, "other"), "c").uid("c").print()
    groups = WatermarkGroups(env._plan("job"))
    none = {"a": MIN_LONG_VALUE, "b": MIN_LONG_VALUE, "c": MIN_LONG_VALUE}
    assert groups.ceilings({}, ()) == none
    assert groups.ceilings({("a", 1): 5}, ()) == none | {"a": 15, "b": 25}
    marks = {("a", 0): 7, ("a", 1): 5, ("b", 0): 3, ("c", 0): MAX_LONG_VALUE}
    assert groups.ceilings(marks, ()) == {"a": 13, "b": 23, "c": MAX_LONG_VALUE}
    assert groups.ceilings(marks, {("b", 0)}) == {"a": 15, "b": 25, "c": MAX_LONG_VALUE}
    idle = {("b", 0), ("a", 0), ("a", 1)}
    assert groups.ceilings(marks, idle)["a"] == MAX_LONG_VALUE
