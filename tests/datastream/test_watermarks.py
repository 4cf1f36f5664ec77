"""How watermarks travel: the minimum over all inputs and their subtasks that are not idle."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import Configuration, WatermarkStrategy
from holdfast.common.watermark_generators import WatermarkGenerator, WatermarkOutput
from holdfast.datastream import (
    CoProcessFunction,
    DataStream,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    StreamExecutionEnvironment,
)
from holdfast.runtime.event_time import Watermark, combine
from holdfast.testing import AdvanceClock, EndOfEpoch, LocalExecutor, ScriptedSource
from tests.crashing import undisturbed
from tests.lives import Life, live, lives

pytestmark = pytest.mark.usefixtures("disturbance")

MIN = -(2**63)
MAX = 2**63 - 1
IDLE = -1

#: what a source subtask reads, epoch by epoch: timestamps, or IDLE
Epochs = list[list[int]]


class Obedient(WatermarkGenerator):
    """The watermark is the largest timestamp so far; the input is idle after an IDLE."""

    def __init__(self) -> None:
        self.largest, self.idle = MIN, False

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        self.idle = event_timestamp == IDLE
        self.largest = max(self.largest, event_timestamp)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        output.emit_watermark(self.largest)
        if self.idle:
            output.mark_idle()


def obedient(assigner: Any) -> WatermarkStrategy:
    return WatermarkStrategy.for_generator(Obedient).with_timestamp_assigner(assigner)


class Probe(ProcessFunction):
    """The epoch of each record, and the watermark that it sees."""

    def process_element(
        self, value: tuple[int, int], ctx: ProcessFunction.Context
    ) -> Iterable[tuple[int, int]]:
        yield value[0], ctx.timer_service().current_watermark()


class CoProbe(CoProcessFunction):
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any]:
        yield value[0], ctx.timer_service().current_watermark()

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any]:
        yield value[0], ctx.timer_service().current_watermark()


class KeyedCoProbe(KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        yield value[0], ctx.timer_service().current_watermark()

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        yield value[0], ctx.timer_service().current_watermark()


def source(env: StreamExecutionEnvironment, *subtasks: Epochs) -> DataStream:
    """Records (epoch, timestamp) of these subtasks, with watermarks."""
    scripts = []
    for epochs in subtasks:
        script: list[Any] = []
        for number, epoch in enumerate(epochs):
            script += [*((number, timestamp) for timestamp in epoch), EndOfEpoch()]
        scripts.append(script[:-1])
    stream = env.from_source(ScriptedSource(*scripts))
    return stream.assign_timestamps_and_watermarks(obedient(lambda record, _: record[1]))


def expected(subtasks: list[Epochs]) -> dict[int, int]:
    """The watermark that the records of each epoch see."""
    seen, watermark = {}, MIN
    largest = [MIN] * len(subtasks)
    for number, epochs in enumerate(zip_longest(*subtasks)):
        seen[number] = watermark
        live = []
        for place, epoch in enumerate(epochs):
            if number + 1 >= len(subtasks[place]):
                live.append(MAX)
            else:
                largest[place] = max([largest[place], *epoch])
                live += [largest[place]] if epoch[-1] != IDLE else []
        watermark = max(watermark, min(live)) if live else watermark
    return seen


timestamps = st.integers(0, 50) | st.just(IDLE)
subtask = st.lists(st.lists(timestamps, min_size=1, max_size=3), min_size=1, max_size=5)


@undisturbed
@settings(max_examples=60, deadline=None)
@given(
    st.lists(subtask, min_size=2, max_size=4),
    st.sampled_from(["union", "connect", "keyed"]),
    st.integers(1, 2),
    lives(),
)
def test_the_minimum_over_all_live_inputs(
    subtasks: list[Epochs], how: str, first: int, life: Life
) -> None:
    def build(env: StreamExecutionEnvironment) -> DataStream:
        left, right = source(env, *subtasks[:first]), source(env, *subtasks[first:])
        if how == "union":
            return left.union(right).rebalance().process(Probe())
        if how == "connect":
            return left.rebalance().connect(right.rebalance()).process(CoProbe())
        keyed = left.connect(right).key_by(lambda record: record[1], lambda record: record[1])
        return keyed.process(KeyedCoProbe())

    first = min(first, len(subtasks) - 1)
    seen = expected(subtasks)
    records = live(build, life)
    assert len(records) == sum(len(epoch) for epochs in subtasks for epoch in epochs)
    assert dict.fromkeys(records).keys() == set(seen.items())


watermarks = st.builds(Watermark, st.integers(-5, 5), st.booleans())


@given(st.lists(watermarks), watermarks)
def test_a_watermark_never_goes_back(inputs: list[Watermark], before: Watermark) -> None:
    now = combine(inputs, before)
    assert now.time >= before.time
    assert now.idle == all(watermark.idle for watermark in inputs)


def test_time_moves_through_all_levels_in_one_epoch(env: StreamExecutionEnvironment) -> None:
    stream = source(env, [[5], [9], [12]])
    for _ in range(3):
        stream = stream.rebalance().map(lambda record: record)
    assert sorted(live(lambda _: stream.process(Probe()), Life())) == [(0, MIN), (1, 5), (2, 9)]


def test_an_idle_input_does_not_hold_up_the_other(env: StreamExecutionEnvironment) -> None:
    strategy = (
        WatermarkStrategy.for_monotonous_timestamps()
        .with_timestamp_assigner(lambda record, _: record[1])
        .with_idleness(10)
    )
    # the second input falls silent after its first record, and has not ended
    silent: list[Any] = [(0, 1), EndOfEpoch(), *[AdvanceClock(5)] * 4, EndOfEpoch(), EndOfEpoch()]
    busy: list[Any] = []
    for number in range(8):
        busy += [(number, 10 * number), EndOfEpoch()]
    left = env.from_source(ScriptedSource(busy)).assign_timestamps_and_watermarks(strategy)
    right = env.from_source(ScriptedSource([*silent, (99, 2)]))
    both = left.connect(right.assign_timestamps_and_watermarks(strategy))
    with LocalExecutor(both.process(CoProbe())) as run:
        run.run_to_end()
    seen = dict(run.records)
    assert (seen[1], seen[2]) == (-1, 0)  # waits for the second one
    assert seen[5] == 39  # which is idle by now
    assert seen[7] == 59


def test_an_idle_operator_says_so_to_those_behind_it(env: StreamExecutionEnvironment) -> None:
    idle = source(env, [[1], [IDLE], [IDLE], [IDLE]]).filter(lambda record: False)
    busy = source(env, [[5], [6], [7], [8]])
    both = idle.rebalance().map(lambda record: record).union(busy)
    with LocalExecutor(both.rebalance().process(Probe())) as run:
        run.run_to_end()
    assert sorted(run.records) == [(0, MIN), (1, 1), (2, 6), (3, 7)]


class Punctuated(WatermarkGenerator):
    """Records of odd timestamps say that nothing before them is to come."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        if event_timestamp % 2:
            output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


@pytest.mark.parametrize("on_source", [True, False])
def test_a_generator_that_speaks_when_it_sees_a_record(
    env: StreamExecutionEnvironment, on_source: bool
) -> None:
    strategy = WatermarkStrategy.for_generator(Punctuated).with_timestamp_assigner(
        lambda record, _: record[1]
    )
    script = [(0, 5), (0, 8), EndOfEpoch(), (1, 10), EndOfEpoch(), (2, 7), (2, 3), EndOfEpoch()]
    source = ScriptedSource([*script, (3, 12)])
    if on_source:
        stream = env.from_source(source, strategy)
    else:
        stream = env.from_source(source).assign_timestamps_and_watermarks(strategy)
    with LocalExecutor(stream.rebalance().process(Probe()), workers=2) as run:
        run.run_to_end()
    assert sorted(run.records) == [(0, MIN), (0, MIN), (1, 5), (2, 5), (2, 5), (3, 7)]


class AtTheEnd(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(MAX)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield timestamp, ctx.timer_service().current_watermark()


@pytest.mark.parametrize(
    "strategy", [WatermarkStrategy.no_watermarks(), WatermarkStrategy.for_generator(Punctuated)]
)
def test_the_end_of_the_input_brings_the_last_watermark(
    env: StreamExecutionEnvironment, strategy: WatermarkStrategy
) -> None:
    """Whatever the generator says: every timer fires, in the epoch of the last record."""
    strategy = strategy.with_timestamp_assigner(lambda record, _: record[1])
    stream = env.from_source(ScriptedSource([(0, 5), EndOfEpoch(), (1, 6)]), strategy)
    with LocalExecutor(stream.key_by(lambda record: record[0]).process(AtTheEnd())) as run:
        run.epoch()
        assert run.records == []
        run.epoch()
        assert run.records == [(MAX, MAX)] * 2


def test_a_generator_that_was_made_on_the_spot(env: StreamExecutionEnvironment) -> None:
    """Such classes cannot be pickled by name."""

    class Local(Obedient):
        pass

    strategy = WatermarkStrategy.for_generator(Local).with_timestamp_assigner(lambda r, _: r[1])
    stream = env.from_source(ScriptedSource([(0, 7), EndOfEpoch(), (1, 8)]))
    probe = stream.assign_timestamps_and_watermarks(strategy).process(Probe())
    with LocalExecutor(probe, workers=2) as run:
        run.run_to_end()
    assert run.records == [(0, MIN), (1, 7)]


class Gone(Obedient):
    """A generator that the job has no more when it goes on."""


@undisturbed
@pytest.mark.parametrize("before", ["none", "gone", "idle", "bounded"])
@pytest.mark.parametrize("after", ["none", "obedient", "bounded"])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_job_that_goes_on_with_another_strategy(
    before: str, after: str, parallelism: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watermark stays where it was until the new one is ahead."""
    strategies = {
        "none": None,
        "gone": WatermarkStrategy.for_generator(Gone),
        "idle": WatermarkStrategy.for_generator(Gone).with_idleness(1000),
        "obedient": WatermarkStrategy.for_generator(Obedient),
        "bounded": WatermarkStrategy.for_bounded_out_of_orderness(2),
    }
    reached = {"none": MIN, "gone": 7, "idle": 7, "bounded": 4}[before]

    def job(strategy: str, restore: str | None, parallelism: int) -> DataStream:
        settings = {"execution.savepoint.path": restore} if restore else {}
        env = StreamExecutionEnvironment(Configuration(settings)).set_parallelism(parallelism)
        script = [(0, 7), EndOfEpoch(), (1, 3), EndOfEpoch(), (2, 20), EndOfEpoch(), (3, 30)]
        chosen = strategies[strategy]
        if chosen is not None:
            chosen = chosen.with_timestamp_assigner(lambda record, _: record[1])
        source = env.from_source(ScriptedSource(script), chosen).uid("source")
        return source.rebalance().process(Probe()).uid("probe")

    with LocalExecutor(job(before, None, 1)) as run:
        run.epoch()
        path = run.savepoint(tmp_path, stop=True)
        assert run.records == [(0, MIN), (1, reached)]
    monkeypatch.delattr("tests.datastream.test_watermarks.Gone")
    with LocalExecutor(job(after, path, parallelism)) as run:
        run.run_to_end()
    assert run.records[0] == (2, reached)
    assert run.records[1][0] == 3
    assert run.records[1][1] == {"none": reached, "obedient": 20, "bounded": 17}[after]


def test_a_timestamp_that_is_no_int(env: StreamExecutionEnvironment) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda record, _: record / 2
    )
    stream = env.from_collection([3]).assign_timestamps_and_watermarks(strategy)
    with (
        LocalExecutor(stream) as run,
        pytest.raises(Exception, match=r"must return milliseconds as an int; got 1\.5 \(float\)"),
    ):
        run.run_to_end()
