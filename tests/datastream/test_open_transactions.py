"""Transactions that stay open from one checkpoint to the next, where subtasks stay where they are.

Nothing is run again then: a failure ends the attempt. Checkpoints are those of the other engine,
so a job may go on with either.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.datastream import SinkFunction
from holdfast.datastream.connectors.file_system import RollingPolicy
from holdfast.graph.nodes import Node
from holdfast.graph.operations import SinkOperation
from holdfast.plan.model import Defaults, Level, Plan, PlannedOperator
from holdfast.runtime.failures import OperatorFailed
from holdfast.runtime.level import LevelOperators
from holdfast.runtime.worker.job_code import make_job_code
from holdfast.state.backend import HeapKeyedStateBackend
from tests.datastream.sink_engine import SinkEngine
from tests.datastream.test_file_sink import hidden, parts, records, sink
from tests.datastream.test_two_phase_commit import Merging, Sink, World

#: a process that is killed does not close its files
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def local(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def test_one_transaction_from_checkpoint_to_checkpoint(world: World) -> None:
    job = SinkEngine(Sink(world), stays=True)
    job.epoch(2)
    job.epoch(2)
    assert world.open == {0: [0, 1, 2, 3]}
    job.epoch(1, checkpoint=True)
    assert world.prepared == {0: [0, 1, 2, 3, 4]}
    job.epoch(1)
    assert world.committed == {0: [0, 1, 2, 3, 4]}
    assert world.open == {1: [5]}
    job.finish()
    assert world.visible == list(range(6))


def test_what_was_pre_committed_does_not_wait_for_a_checkpoint_of_the_next_attempt(
    world: World,
) -> None:
    job = SinkEngine(Sink(world), stays=True)
    job.epoch(3, checkpoint=True)
    job.epoch(2)
    job.restart()
    job.epoch()
    assert world.visible == [0, 1, 2]
    job.finish()
    assert world.visible == [0, 1, 2]


def test_a_checkpoint_that_is_complete_late_shows_nothing_of_later_ones(world: World) -> None:
    job = SinkEngine(Sink(world), stays=True)
    job.epoch(2, checkpoint=True, complete=None)
    job.epoch(2)
    job.epoch(2)
    assert world.visible == [0, 1]
    job.finish()
    assert world.visible == list(range(6))


def test_without_checkpoints_each_round_counts(world: World) -> None:
    job = SinkEngine(Sink(world), stays=True, checkpoints=False)
    job.epoch(2)
    job.epoch(2)
    assert world.visible == [0, 1]
    job.finish()
    assert world.visible == [0, 1, 2, 3]


ROUNDS = st.fixed_dictionaries(
    {
        "records": st.integers(0, 5),
        "checkpoint": st.booleans(),
        "complete": st.sampled_from([True, False, None]),
    }
)
#: the parallelism of the next attempt, and whether its subtasks stay
RESTARTS = st.tuples(st.integers(1, 3), st.booleans())
GHOSTS = st.integers(0, 20)
HISTORIES = st.lists(st.one_of(ROUNDS, ROUNDS, ROUNDS, RESTARTS, GHOSTS), max_size=15)


def replay(job: SinkEngine, event: Any) -> None:
    if isinstance(event, tuple):
        parallelism, stays = event
        job.restart(parallelism, stays=stays)
    elif isinstance(event, int):
        for ghost in job.ghosts[event : event + 1]:
            with contextlib.suppress(OperatorFailed):  # it may fail, if it does no harm
                ghost()
    else:
        job.epoch(**event)


@settings(max_examples=200, deadline=None)
@given(history=HISTORIES, parallelism=st.integers(1, 3), kind=st.sampled_from([Sink, Merging]))
def test_any_history_shows_each_record_once(
    history: list[Any], parallelism: int, kind: type[Sink]
) -> None:
    world = World()
    job = SinkEngine(kind(world), parallelism, stays=True)
    for event in history:
        replay(job, event)
        shown = world.visible
        assert len(shown) == len(set(shown)), "nothing is seen twice"
        assert set(shown) <= set(range(job.completed.position)), "nothing is seen too early"
    job.finish()
    assert world.visible == list(range(job.position)), "nothing is lost"


@settings(max_examples=60, deadline=None)
@given(history=HISTORIES, parallelism=st.integers(1, 3))
def test_any_history_of_files(history: list[Any], parallelism: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        base = f"{folder}/out"
        rolling = RollingPolicy.default_rolling_policy(part_size=6)
        job = SinkEngine(sink(base, rolling=rolling), parallelism, stays=True)
        for event in history:
            replay(job, event)
            shown = records(base)
            assert len(shown) == len(set(shown)), "nothing is seen twice"
            assert set(shown) <= set(range(job.completed.position)), "nothing is seen too early"
        job.finish()
        assert records(base) == list(range(job.position)), "nothing is lost"


def test_a_segment_is_written_until_the_checkpoint(local: str) -> None:
    job = SinkEngine(sink(local), stays=True)
    for _ in range(5):
        job.epoch(2)
    assert len(hidden(local)) == 1
    job.epoch(checkpoint=True)
    job.epoch()
    assert list(parts(local).values()) == [list(range(10))]


def test_files_are_split_by_age_and_idleness_between_checkpoints(local: str) -> None:
    rolling = RollingPolicy.default_rolling_policy(1000, 5000, 2000)
    job = SinkEngine(sink(local, rolling=rolling), stays=True)
    for pause in ("1 s", "1 s", "1 s", "1 s", "1 s", "2 s", "1 s"):
        job.epoch(1)
        job.clock.advance(pause)
        job.epoch()
    job.finish()
    assert [parts(local)[name] for name in sorted(parts(local))] == [
        [0, 1, 2, 3, 4],
        [5],
        [6],
    ]


class Told(SinkFunction):
    """A sink of a user who knows of epochs only."""

    told: list[str] = []  # noqa: RUF012 - what all objects were told

    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        """Nothing."""

    def end_epoch(self) -> None:
        self.told.append("epoch")


class ToldOfRounds(Told):
    def end_round(self) -> None:
        self.told.append("round")


@pytest.mark.parametrize(
    ("function", "expected"), [(Told(), ["epoch"] * 2), (ToldOfRounds(), ["round", "epoch"])]
)
def test_sinks_are_told_where_no_checkpoint_is(function: SinkFunction, expected: list[str]) -> None:
    node = Node(0, "sink", "sink", SinkOperation(function))
    planned = PlannedOperator(node, "sink", 0, 0, 1, 128, (), ())
    level = Level(0, 1, (0,), ())
    plan = Plan("test", {0: planned}, (), (level,), Defaults(1))
    backend = HeapKeyedStateBackend(range(128), 128)
    operators = LevelOperators(make_job_code("job", plan, ""), level, 0, 0, backend, lambda: 0)
    Told.told.clear()
    operators.end_epoch(barrier=False)
    operators.end_epoch()
    assert Told.told == expected
