"""The whole order job, in this process, through lives that hypothesis thinks up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import examples.orders.tracking
from examples.orders.events import (
    DELIVERED,
    LateOrder,
    LowStock,
    OrderItem,
    OrderStatus,
    PurchaseStatistics,
    Record,
    RejectedStep,
    Step,
    StockLevel,
)
from examples.orders.files import write
from examples.orders.job import Backend
from examples.orders.pipeline import Outputs
from examples.orders.tracking import KEPT
from examples.orders.verify import read
from holdfast.checkpoint.errors import CheckpointError
from holdfast.checkpoint.events import CheckpointStatus
from holdfast.common import Types
from holdfast.common.typeinfo import type_info_of
from holdfast.datastream import KeyedProcessFunction, RuntimeContext
from holdfast.datastream.formats.columns import schema_of
from holdfast.datastream.state import StateTtlConfig, ValueStateDescriptor
from holdfast.testing import CollectingSink, LocalExecutor
from tests.examples.orders.running import SMALL, check, job
from tests.examples.orders.running import settings as job_settings
from tests.lives import CHECKPOINT, CRASH, EPOCH, Life, lives

RESULTS = [OrderStatus, RejectedStep, PurchaseStatistics, LateOrder, StockLevel, LowStock]

BACKENDS: tuple[Backend, ...] = ("hashmap", "rocksdb")

#: an event of a life: the driver is killed, and the same program started again
KILL = "kill"


def orders_lives() -> st.SearchStrategy[Life]:
    event = st.sampled_from([EPOCH, CHECKPOINT, CHECKPOINT, CRASH, KILL, 1, 2, 3])
    events = st.lists(event, max_size=9).map(tuple)
    return st.builds(
        lambda life, events: replace(life, events=events), lives(st.integers(60, 400)), events
    )


def live(life: Life, directory: Path) -> int:
    """Run the job to its end through a life; returns the most subtasks that it ever had.

    With every savepoint it changes to the other state backend.
    """
    parallelism, savepoint, events = life.parallelism, None, list(life.events)
    backends = BACKENDS if life.seed % 2 else BACKENDS[::-1]
    most = parallelism
    while parallelism:
        most = max(most, parallelism)
        env = job(job_settings(directory, parallelism, backends[0]), savepoint)
        with LocalExecutor(env, workers=life.workers, quota=life.quota, seed=life.seed) as run:
            event = _run(run, events)
            if isinstance(event, int):
                savepoint = _stop(run, directory)
                parallelism = event if savepoint else 0
                backends = backends[::-1]
            elif event is None:
                parallelism = 0
            else:
                own = any(one.status is CheckpointStatus.COMPLETED for one in run.checkpoints)
                savepoint = None if own else savepoint
    return most


def _run(run: LocalExecutor, events: list[Any]) -> Any:
    """Live through the events; returns the one that ends this start of the program, if any."""
    while events and not run.finished:
        event = events.pop(0)
        if event == CRASH:
            run.recover()
        elif event == KILL or isinstance(event, int):
            return event
        else:
            run.epoch(checkpoint=event == CHECKPOINT)
    run.run_to_end()
    return None


def _stop(run: LocalExecutor, directory: Path) -> str | None:
    """Stop with a savepoint; None if the job came to its end instead."""
    try:
        return run.savepoint(directory / "savepoints", stop=True)
    except CheckpointError:
        assert run.finished
        return None


@settings(max_examples=6, deadline=None, phases=[Phase.generate])
@given(life=orders_lives())
def test_nothing_is_lost_and_nothing_is_twice_whatever_happens(life: Life) -> None:
    with TemporaryDirectory() as directory:
        chosen = job_settings(Path(directory))
        # a rescaled job has the incomplete batches of each number of subtasks at most once
        assert check(chosen, live(life, Path(directory))) == []


def test_all_kinds_of_output_are_there(tmp_path: Path) -> None:
    """Or the test above would prove little."""
    live(Life(quota=200), tmp_path)
    output = Path(job_settings(tmp_path).output)
    for name in ("statuses", "rejected", "statistics", "late", "stock", "low_stock"):
        assert len(read(output / name)) > 5, name
    starts = {row["window_start"] for row in read(output / "statistics")}
    assert len(starts) >= 2
    assert list((output / "batches").glob("batches-*"))


def test_files_give_the_same(tmp_path: Path) -> None:
    write(SMALL, tmp_path / "events")
    chosen = replace(job_settings(tmp_path), files=tmp_path / "events")
    with LocalExecutor(job(chosen), quota=300, workers=2) as run:
        run.run_to_end()
    assert check(chosen, 2) == []


@pytest.mark.parametrize("result", RESULTS, ids=lambda cls: cls.__name__)
def test_every_result_can_be_a_row_of_a_table(result: type[Record]) -> None:
    """For ``--sink parquet``, which needs Spark."""
    assert tuple(schema_of(type_info_of(result)).names) == result.__struct_fields__


class GrownOrderState(Record, frozen=True):
    """`OrderState` as it may be in the next version of the program."""

    user_id: str
    status: Step
    items: tuple[OrderItem, ...]
    times: dict[str, int] = msgspec.field(default_factory=dict)
    warehouse: str = "main"


class Deliveries(KeyedProcessFunction):
    """Something new: how many orders each user has got."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: OrderStatus, ctx: Any) -> Iterator[tuple[str, int]]:
        self.count.update((self.count.value() or 0) + 1)
        yield value.user_id, self.count.value()


def test_a_changed_program_goes_on_from_a_savepoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a new field in the state of orders, and a new branch in the graph."""
    chosen = job_settings(tmp_path)
    with LocalExecutor(job(chosen), quota=60) as run:
        for _ in range(4):
            run.epoch(checkpoint=True)
        savepoint = run.savepoint(tmp_path / "savepoints", stop=True)
    before = read(Path(chosen.output, "statuses"))
    assert len(before) > 100

    monkeypatch.setattr(examples.orders.tracking, "OrderState", GrownOrderState)
    delivered = CollectingSink()

    def more(outputs: Outputs) -> None:
        received = outputs.statuses.filter(lambda status: status.status == DELIVERED)
        counts = received.key_by(lambda status: status.user_id, str).process(Deliveries())
        counts.uid("deliveries").add_sink(delivered)

    with LocalExecutor(job(chosen, savepoint, more), quota=500) as run:
        run.epoch()
        descriptor = ValueStateDescriptor("order", GrownOrderState)
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(KEPT).build())
        orders = run.state("tracking", descriptor)
        run.run_to_end()
    assert check(chosen, 2) == []
    assert {order.warehouse for order in orders.values()} == {"main"}
    after = [row for row in read(Path(chosen.output, "statuses")) if row["status"] == DELIVERED]
    new = len(after) - sum(row["status"] == DELIVERED for row in before)
    assert len(delivered.records) == new > 10
