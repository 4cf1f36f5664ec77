"""Scripts: records and events as elements of the input."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.datastream import (
    ProcessFunction,
    RuntimeContext,
    SinkFunction,
    StreamExecutionEnvironment,
)
from holdfast.errors import JobDefinitionError, UserFunctionError
from holdfast.testing import (
    AdvanceClock,
    CollectingSink,
    Crash,
    EndOfEpoch,
    LocalExecutor,
    ManualClock,
    ScriptedSource,
    collect,
)

if TYPE_CHECKING:
    from tests.conftest import Executor


def epochs_of(env: StreamExecutionEnvironment, *script: Any, quota: int = 100) -> list[list[Any]]:
    """The records that each epoch reads."""
    epochs = []
    with LocalExecutor(env.from_source(ScriptedSource(script)), quota=quota) as run:
        while not run.finished:
            seen = len(run.records)
            run.epoch()
            epochs.append(run.records[seen:])
    return epochs


E, A = EndOfEpoch(), AdvanceClock("1s")


@pytest.mark.parametrize(
    ("script", "epochs"),
    [
        ([], [[]]),
        ([1, 2], [[1, 2]]),
        ([1, E, 2], [[1], [2]]),
        ([1, E], [[1]]),
        ([E, E, 1], [[], [], [1]]),
        ([1, A, 2, A], [[1], [2], []]),
        ([1, E, A, 2], [[1], [2]]),
        ([A, 1], [[1]]),
        ([A, A, 1], [[], [1]]),
    ],
)
def test_where_epochs_end(
    env: StreamExecutionEnvironment, script: list[Any], epochs: list[list[Any]]
) -> None:
    assert epochs_of(env, *script) == epochs


def test_the_quota_ends_epochs_too(env: StreamExecutionEnvironment) -> None:
    assert epochs_of(env, 1, 2, 3, E, 4, quota=2) == [[1, 2], [3], [4]]


def test_works_on_both_executors(env: StreamExecutionEnvironment, executor: Executor) -> None:
    stream = env.from_source(ScriptedSource([1, 2, EndOfEpoch(), 3, EndOfEpoch()], [10]))
    got = executor.collect(stream.key_by(lambda n: n % 10).sum())
    assert sorted(got) == [1, 2, 3, 10]


def test_crash_and_again(env: StreamExecutionEnvironment) -> None:
    """The epoch of the crash is lost as a whole, and run again as a whole."""
    source = ScriptedSource([1, EndOfEpoch(), 2, Crash(), 3, EndOfEpoch(), 4])
    seen = CollectingSink()
    stream = env.from_source(source)
    stream.add_sink(seen).set_parallelism(1)
    with LocalExecutor(stream.key_by(lambda _: 0).sum(), workers=2) as run:
        with pytest.raises(UserFunctionError, match=r"SimulatedCrash: .* at element 3 in read"):
            run.run_to_end()
        assert run.records == [1]
        run.run_to_end()
    assert run.records == [1, 3, 6, 10]
    assert seen.records == [1, 2, 2, 3, 4]


def test_every_crash_happens_once(env: StreamExecutionEnvironment) -> None:
    stream = env.from_source(ScriptedSource([Crash(), 1, Crash(), 2]))
    with LocalExecutor(stream) as run:
        for _ in range(2):
            with pytest.raises(UserFunctionError, match="SimulatedCrash"):
                run.run_to_end()
        run.run_to_end()
    assert run.records == [1, 2]


class Stamps(SinkFunction):
    def __init__(self, kept: CollectingSink) -> None:
        self.kept = kept

    def open(self, runtime_context: RuntimeContext) -> None:
        self.kept.open(runtime_context)

    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        self.kept.invoke((value, context.current_processing_time()), context)


@pytest.mark.parametrize("again", [False, True])
def test_the_clock_moves_between_epochs(env: StreamExecutionEnvironment, again: bool) -> None:
    kept = CollectingSink()
    script = [1, 2, AdvanceClock("5s"), 3, AdvanceClock(timedelta(minutes=1)), EndOfEpoch(), 4]
    stream = env.from_source(ScriptedSource(script))
    stream.rebalance().add_sink(Stamps(kept)).set_parallelism(1)
    with LocalExecutor(env, clock=ManualClock(1000)) as run:
        while not run.finished:
            run.epoch(rerun=[(0, 0)] if again else ())
        assert run.clock() == 66_000
    assert kept.records == [(1, 1000), (2, 1000), (3, 6000), (4, 66_000)]


def test_a_script_for_each_subtask(env: StreamExecutionEnvironment) -> None:
    class Numbered(ProcessFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.subtask = runtime_context.get_index_of_this_subtask()

        def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
            yield self.subtask, value

    stream = env.from_source(ScriptedSource([1, 2], [3], []))
    assert stream.get_execution_environment()._graph[0].parallelism == 3
    numbered = stream.process(Numbered()).set_parallelism(3)
    assert sorted(collect(numbered)) == [(0, 1), (0, 2), (1, 3)]


def test_not_as_many_subtasks_as_scripts(env: StreamExecutionEnvironment) -> None:
    stream = env.from_source(ScriptedSource([1], [2])).set_parallelism(3)
    with pytest.raises(JobDefinitionError, match="of 2 scripts cannot run in 3 subtasks"):
        collect(stream)


def test_no_script() -> None:
    with pytest.raises(ValueError, match="expected at least one script"):
        ScriptedSource()


@pytest.mark.spark
def test_a_clock_that_cannot_be_moved(env: StreamExecutionEnvironment, spark: Any) -> None:
    env.from_source(ScriptedSource([1, AdvanceClock("5s")])).print()
    with pytest.raises(UserFunctionError, match=r"AdvanceClock works only .* in a LocalExecutor"):
        env.execute()
