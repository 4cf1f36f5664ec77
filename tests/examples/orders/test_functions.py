"""Each function of the order system by itself."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from examples.orders.batch_sink import BatchSink
from examples.orders.dedup import Deduplication
from examples.orders.events import (
    LowStock,
    OrderEvent,
    OrderItem,
    OrderStatus,
    RejectedStep,
    Step,
    StockChange,
    StockLevel,
)
from examples.orders.files import decode_event, encode_event
from examples.orders.inventory import LOW_STOCK, Inventory
from examples.orders.statistics import Purchases, SumPurchases
from examples.orders.tracking import REJECTED, STOCK_CHANGES, OrderTracking
from holdfast.common import Configuration, Duration
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.testing import (
    Crash,
    EndOfEpoch,
    KeyedHarness,
    LocalExecutor,
    ScriptedSource,
)
from tests.examples.orders.running import recovery

LAMP = OrderItem("P1", "home", 2, Decimal("19.99"))
BOOK = OrderItem("P2", "books", 1, Decimal("7.50"))


def event(step: Step, timestamp: int, order: str = "o1", items: Any = None) -> OrderEvent:
    items = ((LAMP, BOOK) if items is None else items) if step == "created" else ()
    return OrderEvent(f"{order}/{step}/{timestamp}", order, "ann", step, timestamp, items)


def test_an_event_is_the_same_after_json() -> None:
    created = event("created", 1)
    assert decode_event(encode_event(created).decode()) == created
    assert created.total == Decimal("47.48")
    assert created.pieces == 3


# Deduplication


def dedup() -> KeyedHarness:
    return KeyedHarness(Deduplication(Duration.of_hours(1)), lambda e: e.order_id)


def test_an_event_passes_once_however_often_it_comes() -> None:
    harness = dedup()
    created, paid = event("created", 1), event("paid", 2)
    assert harness.process(created, created, paid, created, paid) == [created, paid]
    assert harness.metrics == {"events.duplicates": 3}


def test_events_of_two_orders_are_told_apart() -> None:
    one, other = event("created", 1), replace(event("created", 1, "o2"), event_id="o1/created/1")
    assert dedup().process(one, other) == [one, other]


def test_what_was_seen_is_known_after_a_restart() -> None:
    harness = dedup()
    harness.process(event("created", 1))
    restored = KeyedHarness(
        Deduplication(Duration.of_hours(1)), lambda e: e.order_id, restore=harness.snapshot()
    )
    assert restored.process(event("created", 1), event("paid", 2)) == [event("paid", 2)]


def test_an_event_is_forgotten_after_its_time() -> None:
    harness = dedup()
    created = event("created", 1)
    harness.process(created)
    harness.clock.advance("59 min")
    assert harness.process(created) == []
    harness.clock.advance("2 min")
    assert harness.process(created) == [created]


# Tracking


def tracking(**settings: Any) -> KeyedHarness:
    return KeyedHarness(
        OrderTracking(), lambda e: e.order_id, side_outputs=[REJECTED, STOCK_CHANGES], **settings
    )


def test_an_order_has_a_time_for_each_step() -> None:
    harness = tracking()
    harness.process(event("created", 10), event("paid", 20), event("shipped", 30))
    assert harness.advance_watermark(20) == [
        OrderStatus("o1", "ann", "created", created=10),
        OrderStatus("o1", "ann", "paid", created=10, paid=20),
    ]
    harness.process(event("delivered", 40))
    statuses = harness.advance_watermark(100)
    assert statuses[-1] == OrderStatus("o1", "ann", "delivered", 10, 20, 30, 40)
    assert harness.side_outputs[REJECTED] == []


def test_events_that_arrive_out_of_order_are_taken_in_order() -> None:
    harness = tracking()
    assert harness.process(event("paid", 20), event("created", 10)) == []
    assert [status.status for status in harness.advance_watermark(50)] == ["created", "paid"]


def test_a_late_event_does_not_wait() -> None:
    harness = tracking()
    harness.advance_watermark(100)
    statuses = harness.process(event("created", 10), event("paid", 20))
    assert [status.status for status in statuses] == ["created", "paid"]


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ("paid", "paid before created"),
        ("created shipped", "shipped before paid"),
        ("created paid delivered", "delivered before shipped"),
        ("created cancelled paid", "paid after cancelled"),
        ("created paid shipped cancelled", "cancelled after shipped"),
        ("created paid shipped delivered cancelled", "cancelled after delivered"),
        ("created created", "created after created"),
        ("created paid shipped paid", "paid after shipped"),
    ],
)
def test_a_step_that_cannot_be_is_told_apart(steps: str, reason: str) -> None:
    harness = tracking()
    made = [event(step, 10 * n) for n, step in enumerate(steps.split(), 1)]  # type: ignore[arg-type]
    harness.process(*made)
    statuses = harness.advance_watermark(1000)
    last = made[-1]
    rejected = RejectedStep(last.event_id, "o1", last.step, last.timestamp, reason)
    assert harness.side_outputs[REJECTED] == [rejected]
    assert [status.status for status in statuses] == [one.step for one in made[:-1]]


def test_a_rejected_step_changes_nothing() -> None:
    harness = tracking()
    steps: list[Step] = ["created", "paid", "delivered", "shipped"]
    harness.process(*(event(step, n) for n, step in enumerate(steps)))
    last = harness.advance_watermark(10)[-1]
    assert last == OrderStatus("o1", "ann", "shipped", created=0, paid=1, shipped=3)


def test_stock_leaves_with_an_order_and_comes_back_when_it_is_cancelled() -> None:
    harness = tracking()
    harness.process(event("created", 1), event("cancelled", 2), event("cancelled", 3))
    harness.advance_watermark(10)
    changes = [(change.product, change.change) for change in harness.side_outputs[STOCK_CHANGES]]
    assert changes == [("P1", -2), ("P2", -1), ("P1", 2), ("P2", 1)]


def test_waiting_events_and_counts_survive_a_restart_with_more_subtasks() -> None:
    harness = tracking()
    orders = [f"o{number}" for number in range(20)]
    harness.process(*(event("created", 1, order) for order in orders))
    harness.advance_watermark(1)
    harness.process(*(event("paid", 2, order) for order in orders))
    snapshot = harness.snapshot()
    assert harness.metrics["orders.created"] == 20
    counts: Counter[str] = Counter()
    paid = []
    for subtask in range(3):
        restored = tracking(parallelism=3, subtask=subtask, restore=snapshot)
        paid += restored.advance_watermark(2)
        counts.update(restored.metrics)
    assert sorted(status.order_id for status in paid) == sorted(orders)
    assert counts["orders.paid"] == 20
    assert counts["orders.created"] == 0


def test_an_order_is_forgotten_when_nothing_happens_to_it() -> None:
    harness = tracking()
    harness.advance_watermark(100)
    harness.process(event("created", 1))
    harness.clock.advance("91 d")
    harness.process(event("paid", 2))
    assert [step.reason for step in harness.side_outputs[REJECTED]] == ["paid before created"]


# Inventory


def inventory(initial_stock: int = 12, **settings: Any) -> KeyedHarness:
    function = Inventory(initial_stock)
    return KeyedHarness(function, lambda c: c.product, side_outputs=[LOW_STOCK], **settings)


def changes(*amounts: int) -> list[StockChange]:
    return [StockChange("P1", amount, f"o{n}") for n, amount in enumerate(amounts)]


def test_the_stock_of_a_product_runs() -> None:
    levels = inventory().process(*changes(-2, 1))
    assert levels == [StockLevel("P1", 1, -2, 10, "o0"), StockLevel("P1", 2, 1, 11, "o1")]


def test_there_is_one_warning_when_stock_falls_below_ten() -> None:
    harness = inventory()
    harness.process(*changes(-2, -1, -1, -5))
    assert harness.side_outputs[LOW_STOCK] == [LowStock("P1", 2, 9)]
    assert harness.metrics == {"stock.low": 1}


def test_there_is_another_one_after_enough_came_back() -> None:
    harness = inventory()
    harness.process(*changes(-3, 3, -4, 1, -1))
    assert [warning.number for warning in harness.side_outputs[LOW_STOCK]] == [1, 3]
    assert harness.metrics == {"stock.low": 1}


def test_stock_is_known_after_a_restart() -> None:
    harness = inventory()
    harness.process(*changes(-3))
    restored = inventory(restore=harness.snapshot())
    assert restored.process(*changes(-1)) == [StockLevel("P1", 2, -1, 8, "o0")]
    assert restored.side_outputs[LOW_STOCK] == []
    assert restored.metrics == {"stock.low": 1}


# Statistics


def test_purchases_add_up_in_any_order() -> None:
    sums = SumPurchases()
    orders = [event("created", 1), event("created", 2, "o2", (BOOK,)), event("created", 3, "o3")]
    one = sums.create_accumulator()
    for order in orders:
        one = sums.add(order, one)
    merged = sums.create_accumulator()
    for order in reversed(orders):
        merged = sums.merge(sums.add(order, sums.create_accumulator()), merged)
    assert one == merged
    assert one == Purchases(3, Decimal("102.46"), 7, {"home": 4, "books": 3})


def test_an_accumulator_is_not_changed() -> None:
    sums = SumPurchases()
    before = sums.add(event("created", 1), sums.create_accumulator())
    sums.add(event("created", 2), before)
    assert before.categories == {"home": 2, "books": 1}


# Batches


def batches(directory: Path) -> list[list[str]]:
    """The order ids in each batch that can be seen."""
    lines = [
        line
        for file in sorted(directory.glob("batches-*"))
        for line in file.read_text().splitlines()
    ]
    return [[order["order_id"] for order in json.loads(line)] for line in lines]


def batch_job(
    tmp_path: Path, script: list[Any], parallelism: int = 1, **settings: str
) -> LocalExecutor:
    configuration = {
        "execution.checkpointing.interval": "1 min",
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        **settings,
    }
    env = StreamExecutionEnvironment(Configuration(configuration))
    orders = env.from_source(ScriptedSource(script)).uid("orders").rebalance()
    sink = orders.add_sink(BatchSink(str(tmp_path / "batches"), 3)).uid("batches")
    sink.set_parallelism(parallelism)
    return LocalExecutor(env, workers=2)


def orders(first: int, last: int) -> list[OrderEvent]:
    return [event("created", 1, f"o{number}") for number in range(first, last)]


def test_batches_are_full_until_the_end(tmp_path: Path) -> None:
    with batch_job(tmp_path, orders(0, 8)) as run:
        run.run_to_end()
    found = batches(tmp_path / "batches")
    assert sorted(len(batch) for batch in found) == [2, 3, 3]
    assert Counter(order for batch in found for order in batch) == Counter(
        f"o{number}" for number in range(8)
    )
    assert not list((tmp_path / "batches").glob(".*"))


def test_a_batch_appears_with_its_checkpoint(tmp_path: Path) -> None:
    with batch_job(tmp_path, [*orders(0, 4), EndOfEpoch(), EndOfEpoch(), *orders(4, 5)]) as run:
        run.epoch()
        run.epoch(checkpoint=True)
        assert batches(tmp_path / "batches") == []
        run.epoch()
        assert batches(tmp_path / "batches") == [["o0", "o1", "o2"]]


def test_what_is_in_the_buffer_survives_a_failure(tmp_path: Path) -> None:
    script = [*orders(0, 4), EndOfEpoch(), *orders(4, 6), EndOfEpoch(), Crash(), *orders(6, 8)]
    with batch_job(tmp_path, script) as run:
        run.epoch(checkpoint=True)
        run.epoch()
        with pytest.raises(Exception, match="SimulatedCrash"):
            run.epoch()
        assert run.recover() == 1
        run.run_to_end()
    found = Counter(order for batch in batches(tmp_path / "batches") for order in batch)
    assert found == Counter(f"o{number}" for number in range(8))
    assert not list((tmp_path / "batches").glob(".*"))


def test_buffers_of_more_subtasks_than_before_make_whole_batches(tmp_path: Path) -> None:
    script = [*orders(0, 8), EndOfEpoch(), EndOfEpoch(), *orders(8, 12)]
    with batch_job(tmp_path, script, parallelism=4) as run:
        run.epoch()
        savepoint = run.savepoint(tmp_path / "savepoints", stop=True)
    assert batches(tmp_path / "batches") == []
    with batch_job(tmp_path, script, parallelism=1, **recovery(savepoint)) as run:
        run.run_to_end()
    found = batches(tmp_path / "batches")
    assert [len(batch) for batch in found] == [3] * 4
    assert len({order for batch in found for order in batch}) == 12
