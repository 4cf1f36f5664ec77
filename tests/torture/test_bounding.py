"""Sources without an end: all runs read the same records of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.common import Configuration, Encoder
from holdfast.datastream import (
    ParallelSourceFunction,
    RuntimeContext,
    SourceFunction,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.base import Source, SourceReader
from holdfast.datastream.connectors.collection import CollectionSource
from holdfast.datastream.connectors.file_system import FileSink
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.functions import ListCheckpointed, SourceContext
from holdfast.driver.job.rescaling import rescaled
from holdfast.plan.model import Plan
from holdfast.testing import LocalExecutor
from holdfast.torture import shares
from holdfast.torture.bounding import bounded
from holdfast.torture.environment import environment_for
from holdfast.torture.order import Order, write_order
from holdfast.torture.pacing import set_pace
from holdfast.torture.reading import read_contents
from tests.torture.agents import agents_ended

ENDLESS = 10**15
RECORDS = 101


@pytest.fixture
def order(tmp_path: Path) -> Iterator[Order]:
    made = Order(str(tmp_path / "first"), str(tmp_path / "shared"), "t", "job.py", records=RECORDS)
    write_order(made)
    with agents_ended(made.path):
        yield made


class Numbers(Source):
    """Numbers without an end, of which each subtask reads every other one."""

    def __init__(self, pace: Sequence[int] = (1_000_000,)) -> None:
        """``pace``: how many numbers a subtask has; the last one holds for all further ones."""
        self.pace = pace

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return NumbersReader(subtask, parallelism, self.pace[min(subtask, len(self.pace) - 1)])

    def redistribute(self, positions: Sequence[Any], parallelism: int) -> Sequence[Any]:
        raise NotImplementedError


class NumbersReader(SourceReader):
    def __init__(self, first: int, step: int, most: int) -> None:
        self.first, self.step, self.most = first, step, most
        self.read_so_far = 0

    def restore(self, position: Any) -> None:
        self.read_so_far = position

    def read(self, limit: int) -> Iterator[Sequence[Any]]:
        at, end = self.read_so_far, min(self.most, self.read_so_far + limit)
        self.read_so_far = end
        yield [self.first + number * self.step for number in range(at, end)]

    def position(self) -> Any:
        return self.read_so_far

    @property
    def finished(self) -> bool:
        return False


class Loop(ParallelSourceFunction, ListCheckpointed):
    """The same numbers, several under one lock; the loop never ends by itself."""

    def __init__(self, fewest: int = ENDLESS) -> None:
        """``fewest``: how many numbers all subtasks but the first have."""
        self.fewest = fewest
        self.next = 0
        self.over = threading.Event()

    def __getstate__(self) -> dict[str, Any]:
        return {"fewest": self.fewest, "next": self.next}

    def open(self, runtime_context: RuntimeContext) -> None:
        self.over = threading.Event()
        self.first = runtime_context.get_index_of_this_subtask()
        self.step = runtime_context.get_number_of_parallel_subtasks()

    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[Any]:
        return [self.next]

    def restore_state(self, state: list[Any]) -> None:
        (self.next,) = state

    def run(self, ctx: SourceContext) -> None:
        most = ENDLESS if self.first == 0 else self.fewest
        while not self.over.is_set():
            if self.next >= most:
                self.over.wait()
                return
            with ctx.get_checkpoint_lock():
                for _ in range(min(7, most - self.next)):
                    ctx.collect(self.first + self.next * self.step)
                    self.next += 1

    def cancel(self) -> None:
        self.over.set()


class OtherThread(SourceFunction):
    """A loop whose records are emitted by a thread of its own, while it waits to be cancelled."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def open(self, runtime_context: RuntimeContext) -> None:
        self.over = threading.Event()

    def run(self, ctx: SourceContext) -> None:
        helper = threading.Thread(target=self._emit, args=(ctx,))
        helper.start()
        self.over.wait()
        helper.join()

    def _emit(self, ctx: SourceContext) -> None:
        number = 0
        while not self.over.is_set():
            ctx.collect(number)
            number += 1

    def cancel(self) -> None:
        self.over.set()


def environment(order: Order, source: Source | SourceFunction) -> StreamExecutionEnvironment:
    env = environment_for(order)(Configuration()).set_parallelism(2)
    env.enable_checkpointing(1_000_000)
    is_loop = isinstance(source, SourceFunction)
    numbers = env.add_source(source) if is_loop else env.from_source(source)
    encoder = Encoder.simple_string_encoder()
    numbers.map(lambda number: number).sink_to(FileSink.for_row_format("away", encoder).build())
    return env


def contents(order: Order) -> Counter[str]:
    (found,) = read_contents(order).values()
    return Counter(found.records)


def run_calm(order: Order, source: Source | SourceFunction) -> Counter[str]:
    with LocalExecutor(environment(order, source)) as run:
        run.run_to_end()
    return contents(order)


def run_disturbed(order: Order, source: Source | SourceFunction) -> Counter[str]:
    """Run a job again, which fails twice, the first time before there is a checkpoint."""
    # NB: within the other directory, with which the agents of both runs end
    other = msgspec.structs.replace(order, directory=f"{order.directory}/again")
    write_order(other)
    # NB: so that a loop does not end before the second failure, however fast it is
    set_pace(other.path, 1e6)
    with LocalExecutor(environment(other, source), quota=11) as run:
        run.run_until(lambda: bool(run.reports) and run.reports[-1].read > 0)
        run.recover()
        read = 0
        while read < 30:
            read += run.epoch(checkpoint=True).read
        run.epoch()
        assert run.recover() is not None
        set_pace(other.path, None)
        run.run_to_end()
    return contents(other)


def first_of(parallelism: int) -> Counter[str]:
    """Return the first numbers of sources here: every subtask has its share of them."""
    return Counter(
        str(subtask + number * parallelism)
        for subtask in range(parallelism)
        for number in range(RECORDS // parallelism + (subtask < RECORDS % parallelism))
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (NumberSequenceSource(0, ENDLESS), first_of(1)),
        (CollectionSource(range(1_000)), first_of(1)),
        (CollectionSource(range(60)), Counter(map(str, range(60)))),
        (Numbers(), first_of(2)),
        (Loop(), first_of(2)),
        (OtherThread(), first_of(1)),
    ],
    ids=["numbers", "list", "short list", "own source", "loop", "other thread"],
)
def test_runs_read_the_first_records(
    order: Order, source: Source | SourceFunction, expected: Counter[str]
) -> None:
    assert run_calm(order, source) == expected
    if not isinstance(source, OtherThread):  # it loses its position
        assert run_disturbed(order, source) == expected


def test_a_sequence_can_be_read_by_another_number_of_subtasks(order: Order) -> None:
    source, first = bounded(NumberSequenceSource(1, ENDLESS), order, "s")
    assert first is None
    reader = source.create_reader(0, 1)
    before = [record for batch in reader.read(40) for record in batch]
    after = []
    for subtask, position in enumerate(source.redistribute([reader.position()], 3)):
        other = source.create_reader(subtask, 3)
        other.restore(position)
        after += [record for batch in other.read(ENDLESS) for record in batch]
        assert other.finished
    assert sorted([*before, *after]) == list(range(1, RECORDS + 1))


def test_batches_are_bounded_too(order: Order) -> None:
    source, _ = bounded(NumberSequenceSource(1, ENDLESS).in_batches(), order, "s")
    assert source.batch_type is not None
    rows = [
        row["value"]
        for batches in source.create_reader(1, 2).read(ENDLESS)
        for batch in batches
        for row in batch.rows.to_pylist()
    ]
    assert rows == list(range(51, RECORDS + 1))


@pytest.mark.parametrize("source", [Numbers(), Loop()], ids=["own source", "loop"])
def test_sources_that_count_keep_their_subtasks(
    order: Order, source: Source | SourceFunction
) -> None:
    plan = environment(order, source)._take_plan("job")
    assert parallelisms(plan) == {"source": 2, "map": 2}
    assert parallelisms(rescaled(plan, 1)) == {"source": 2, "map": 1}


def parallelisms(plan: Plan) -> dict[str, int]:
    return {
        op.node.kind: op.parallelism
        for op in plan.operators.values()
        if op.node.kind in ("source", "map")
    }


def test_without_a_number_of_records_a_source_is_as_it_was(order: Order) -> None:
    whole = msgspec.structs.replace(order, records=0)
    source = Numbers()
    assert bounded(source, whole, "s") == (source, None)
    plan = environment(whole, Loop())._take_plan("job")
    assert parallelisms(rescaled(plan, 1)) == {"source": 1, "map": 1}


@pytest.mark.parametrize("source", [Numbers((1_000, 3)), Loop(fewest=3)], ids=["own", "loop"])
def test_a_subtask_that_has_fewer_records_than_its_share_ends_where_it_did(
    order: Order, source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "SILENCE", 0.5)
    found = run_calm(order, source)
    assert found == Counter(map(str, [*range(0, RECORDS + 1, 2), 1, 3, 5]))
    # there is more now, which other runs must not read
    more = Numbers() if isinstance(source, Numbers) else Loop()
    assert run_disturbed(order, more) == found
