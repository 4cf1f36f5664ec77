"""A run of a subtask is a function of its head and its input, whatever was left by other runs."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.common import Types
from holdfast.datastream import (
    KeyedCoProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.state import ValueStateDescriptor
from holdfast.errors import JobExecutionError
from holdfast.runtime.wire.blocks import Kind
from holdfast.state.errors import StateStorageError
from holdfast.testing import LocalExecutor

REDUCED = ValueStateDescriptor("reduced")


def sums(env: StreamExecutionEnvironment) -> Any:
    numbers = env.from_source(NumberSequenceSource(1, 40)).set_parallelism(2)
    return numbers.key_by(lambda x: x % 4).sum().uid("sums")


EXPECTED = {key: sum(range(key or 4, 41, 4)) for key in range(4)}


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("way", ["rerun", "kill", "both"])
def test_runs_that_were_lost_leave_no_trace(
    env: StreamExecutionEnvironment, workers: int, way: str
) -> None:
    lost = {"rerun": way != "kill", "kill": way != "rerun"}
    with LocalExecutor(sums(env), quota=3, workers=workers) as run:
        while not run.finished:
            run.epoch(**lost)
        assert run.state("sums", REDUCED) == EXPECTED
    assert len(run.records) == 40


def test_the_files_of_lost_runs_are_left_and_never_read(env: StreamExecutionEnvironment) -> None:
    with LocalExecutor(sums(env), quota=5) as run:
        run.epoch()
        live = set(run.storage.files)
        run.epoch(rerun=[(1, 0)])
        named = {ref.name for level in run._book.heads for c in level for ref in c.files}
        left = set(run.storage.files) - named
        assert len(left) == 1
        assert not left & live
        for name in left:
            run.storage.files[name] = b"damaged"
        run.run_to_end()
        assert run.state("sums", REDUCED) == EXPECTED


def test_files_that_nobody_needs_are_deleted(env: StreamExecutionEnvironment) -> None:
    with LocalExecutor(sums(env), quota=1) as run:
        run.run_to_end()
        named = {ref.name for level in run._book.heads for c in level for ref in c.files}
        assert set(run.storage.files) == named
        assert len(run.reports) == 20


def test_a_lost_file_is_named(env: StreamExecutionEnvironment) -> None:
    with LocalExecutor(sums(env), quota=5, workers=2) as run:
        run.epoch()
        run.storage.files.clear()
        with pytest.raises(StateStorageError, match=r"cannot read state file '0-.*no such file"):
            run.epoch()


def test_a_worker_that_was_away_for_long(env: StreamExecutionEnvironment) -> None:
    """More epochs than a head remembers stamps."""
    stream = sums(env)
    with LocalExecutor(stream, quota=1, workers=19) as run:
        run.run_to_end()
        assert run.state("sums", REDUCED) == EXPECTED


def test_no_epoch_after_the_last(env: StreamExecutionEnvironment) -> None:
    with LocalExecutor(sums(env)) as run:
        run.run_to_end()
        with pytest.raises(JobExecutionError, match="has finished"):
            run.epoch()
        run.cancel()
        run.run_to_end()


def test_reports_tell_what_was_read(env: StreamExecutionEnvironment) -> None:
    with LocalExecutor(sums(env), quota=15) as run:
        run.run_to_end()
    assert [report.read for report in run.reports] == [30, 10]
    assert [report.records for report in run.reports] == [60, 20]
    assert [report.epoch for report in run.reports] == [0, 1]


def test_typed_state_survives(env: StreamExecutionEnvironment) -> None:
    pairs = env.from_collection([("a", 1), ("a", 2)], Types.TUPLE([Types.STRING(), Types.LONG()]))
    with LocalExecutor(pairs.key_by(lambda p: p[0]).sum(1), quota=1, workers=2) as run:
        run.run_to_end()
    assert run.records == [("a", 1), ("a", 3)]


def test_an_exploding_record_does_not_stay_in_memory(env: StreamExecutionEnvironment) -> None:
    """One record becomes many; what waits to leave a subtask is bounded."""
    count, size = 60_000, 1_000
    stream = env.set_parallelism(1).from_collection([0]).flat_map(lambda _: range(count))
    stream.map(lambda n: n.to_bytes(4, "big") * (size // 4)).rebalance().map(len).set_parallelism(2)
    with LocalExecutor(env) as run:
        worker, tasks = run._engine.worker(0), run._book.tasks(0)
        subtask = worker._take(tasks[0], 0)
        tracemalloc.start()
        blocks = subtask.run(tasks[0], ())
        records = sum(block.header.count for block in blocks if block.header.kind == Kind.RECORDS)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert records == count
    assert peak < 50_000_000 < count * size


@pytest.mark.parametrize("size", [1, 5_000])
def test_many_blocks_in_any_order(env: StreamExecutionEnvironment, size: int) -> None:
    """More records than a block takes; every receiver still reads in the order sent."""
    count = 30_000 if size == 1 else 600
    numbers = env.from_source(NumberSequenceSource(0, count - 1)).set_parallelism(1)
    padded = numbers.map(lambda n: (n, bytes(size))).set_parallelism(1)
    received = padded.key_by(lambda pair: pair[0] % 7).map(lambda pair: pair[0])
    with LocalExecutor(received, quota=count, seed=11) as run:
        run.run_to_end()
    for key in range(7):
        assert [n for n in run.records if n % 7 == key] == list(range(key, count, 7))


class Early(KeyedCoProcessFunction):
    """Counts the records of the second input that come before the one of the first."""

    def open(self, context: RuntimeContext) -> None:
        self.known = context.get_state(ValueStateDescriptor("known", Types.BOOLEAN()))

    def process_element1(self, value: int, ctx: Any) -> None:
        self.known.update(True)

    def process_element2(self, value: int, ctx: Any) -> Iterator[int]:
        if not self.known.value():
            yield value


def test_where_streams_meet_the_few_records_of_one_do_not_come_after_all_of_the_other(
    env: StreamExecutionEnvironment,
) -> None:
    numbers = env.from_source(NumberSequenceSource(0, 99_999)).set_parallelism(1)
    hundreds = numbers.filter(lambda n: n % 100 == 0).set_parallelism(1)
    early = (
        hundreds.key_by(lambda n: n // 100)
        .connect(numbers.key_by(lambda n: n // 100))
        .process(Early())
    )
    with LocalExecutor(early, quota=100_000) as run:
        run.run_to_end()
    assert not run.records
