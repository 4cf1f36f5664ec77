"""Sources at a pace: they read the same, no faster than told, and do not end before they may."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from holdfast.datastream import ParallelSourceFunction, SourceFunction
from holdfast.datastream.connectors.collection import CollectionSource
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.functions import SourceContext
from holdfast.driver.start import is_fixed
from holdfast.torture.paced_functions import paced_function
from holdfast.torture.paced_sources import paced
from holdfast.torture.pacing import Pace, records_read, set_pace
from tests.spark.witness import until
from tests.torture.agents import agents_ended

#: nothing is read after the first record
STANDSTILL = 1e-9


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "run"
    for inner in ("read", "agents"):
        (directory / inner).mkdir(parents=True)
    with agents_ended(directory):
        yield directory


def read_all(reader: Any) -> list[Any]:
    return [record for batch in reader.read(1000) for record in batch]


def test_a_source_reads_no_faster_than_told_and_does_not_end(run: Path) -> None:
    set_pace(run, STANDSTILL)
    reader = paced(NumberSequenceSource(1, 5), str(run), "s").create_reader(0, 1)
    assert read_all(reader) == [1]
    assert read_all(reader) == []
    set_pace(run, 1e9)
    rest: list[Any] = []

    def read_to_the_end() -> bool:
        rest.extend(read_all(reader))
        return len(rest) == 4

    until(read_to_the_end)
    assert rest == [2, 3, 4, 5]
    assert not reader.finished, "it is held"
    set_pace(run, None)
    until(lambda: reader.finished)
    assert records_read(run) == 5


def test_what_was_read_is_a_part_of_the_position(run: Path) -> None:
    source = paced(NumberSequenceSource(1, 9), str(run), "s")
    reader = source.create_reader(0, 1)
    first = next(iter(reader.read(4)))
    position = reader.position()
    again = source.create_reader(0, 1)
    again.restore(position)
    assert [*first, *read_all(again)] == list(range(1, 10))
    assert again.position()[1] == 9


def test_positions_are_redistributed_with_what_was_read(run: Path) -> None:
    source = paced(NumberSequenceSource(1, 20), str(run), "s")
    reader = source.create_reader(0, 1)
    before = [record for batch in reader.read(5) for record in batch]
    shares = source.redistribute([reader.position()], 2)
    assert [count for _, count in shares] == [3, 2]
    after = []
    for subtask, share in enumerate(shares):
        other = source.create_reader(subtask, 2)
        other.restore(share)
        after += read_all(other)
    assert sorted([*before, *after]) == list(range(1, 21))


def test_a_source_with_a_fixed_parallelism_keeps_it(run: Path) -> None:
    fixed, movable = CollectionSource([1]), NumberSequenceSource(1, 2)
    assert is_fixed(paced(fixed, str(run), "s")) == is_fixed(fixed)
    assert is_fixed(paced(movable, str(run), "s")) == is_fixed(movable)


class Numbers(SourceFunction):
    """Emits numbers, each together with its position."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.next = 1

    def run(self, ctx: SourceContext) -> None:
        while self.next <= self.last:
            with ctx.get_checkpoint_lock():
                ctx.collect(self.next)
                self.next += 1


class Plain(SourceFunction):
    """Emits numbers without the lock."""

    def run(self, ctx: SourceContext) -> None:
        for number in range(1, 4):
            ctx.collect(number)


class Context(SourceContext):
    """Keeps what is emitted."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.records: list[Any] = []

    def collect(self, value: Any) -> None:
        self.records.append(value)

    def collect_with_timestamp(self, value: Any, timestamp: int) -> None:
        raise NotImplementedError

    def emit_watermark(self, timestamp: int) -> None:
        raise NotImplementedError

    def mark_as_temporarily_idle(self) -> None:
        raise NotImplementedError

    def get_checkpoint_lock(self) -> Any:
        return self.lock


@pytest.fixture
def started() -> Iterator[Callable[[SourceFunction, Context], threading.Thread]]:
    threads: list[tuple[SourceFunction, threading.Thread]] = []

    def start(function: SourceFunction, context: Context) -> threading.Thread:
        thread = threading.Thread(target=function.run, args=(context,), daemon=True)
        thread.start()
        threads.append((function, thread))
        return thread

    yield start
    for function, thread in threads:
        function.cancel()
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("function", [Numbers(3), Plain()], ids=["with lock", "without"])
def test_a_loop_waits_without_the_lock(
    run: Path,
    function: SourceFunction,
    started: Callable[[SourceFunction, Context], threading.Thread],
) -> None:
    set_pace(run, STANDSTILL)
    context = Context()
    # as it is sent to a worker
    loop = cloudpickle.loads(cloudpickle.dumps(paced_function(function, str(run), "s")))
    thread = started(loop, context)
    until(lambda: context.records == [1])
    assert context.lock.acquire(timeout=60), "a checkpoint can be taken while it waits"
    context.lock.release()
    set_pace(run, 1e9)
    until(lambda: context.records == [1, 2, 3])
    assert thread.is_alive(), "it is held"
    set_pace(run, None)
    thread.join(60)
    assert not thread.is_alive()
    assert records_read(run) == 3


def test_a_paced_function_is_of_the_same_kind(run: Path) -> None:
    class Parallel(ParallelSourceFunction):
        gives_timestamps = True

        def run(self, ctx: SourceContext) -> None:
            """Emit nothing."""

    made = paced_function(Parallel(), str(run), "s")
    assert isinstance(made, ParallelSourceFunction)
    assert made.gives_timestamps
    assert type(made).__name__ == "Parallel"


def test_attributes_of_a_function_do_not_collide_with_those_of_the_torture(run: Path) -> None:
    function = Numbers(1)
    function.place = "of the user"  # type: ignore[attr-defined]
    context = Context()
    paced_function(function, str(run), "s").run(context)
    assert context.records == [1]


def test_sources_are_released_when_the_torture_was_killed(run: Path) -> None:
    over = subprocess.Popen(["true"])
    over.wait()
    (run / "pace.json").write_text(json.dumps({"rate": STANDSTILL, "process": over.pid}))
    pace = Pace(str(run), "s-0")
    assert pace.room() is None
    assert not pace.held


def test_without_a_pace_there_is_no_limit(run: Path) -> None:
    pace = Pace(str(run), "s-0")
    assert pace.room() is None
    assert not pace.held
