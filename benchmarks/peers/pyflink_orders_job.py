"""The order system of ``examples/orders`` on PyFlink, as far as it can be written there.

The events, the graph, the states and the time are the same. PyFlink has neither operator state nor
sinks in Python, so the batches, and the counts for the live view, are left out; all outputs go to
Flink's discarding sink. It is tuned as in `pyflink_job`; records are Python objects, pickled.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from pyflink.common import Duration, Time, Types, WatermarkStrategy  # type: ignore[import-not-found]
from pyflink.common.watermark_strategy import (  # type: ignore[import-not-found]
    TimestampAssigner,
)
from pyflink.datastream import (  # type: ignore[import-not-found]
    AggregateFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import (  # type: ignore[import-not-found]
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from pyflink.datastream.window import (  # type: ignore[import-not-found]
    TumblingEventTimeWindows,
)

from benchmarks.measure import emit, measured, read_marks
from benchmarks.peers.pyflink_job import Metered, discard, environment, numbers
from benchmarks.program import parse_task
from examples.orders.events import (
    LowStock,
    OrderEvent,
    OrderItem,
    OrderStatus,
    PurchaseStatistics,
    RejectedStep,
    StockChange,
    StockLevel,
)
from examples.orders.shop import PARTITIONS, Shop, deliveries

PICKLED = Types.PICKLED_BYTE_ARRAY()
REJECTED = OutputTag("rejected", PICKLED)
STOCK_CHANGES = OutputTag("stock-changes", PICKLED)
LATE = OutputTag("late", PICKLED)
LOW_STOCK = OutputTag("low-stock", PICKLED)

NEXT: dict[str | None, tuple[str, ...]] = {
    None: ("created",),
    "created": ("paid", "cancelled"),
    "paid": ("shipped", "cancelled"),
    "shipped": ("delivered",),
    "delivered": (),
    "cancelled": (),
}
SHOP = Shop(disorder=True, lateness=0.01, orders_per_slice=5)


class EventTime(TimestampAssigner):  # type: ignore[misc]
    """An event says when it happened."""

    def extract_timestamp(self, value: OrderEvent, record_timestamp: int) -> int:
        """Return the time of an event."""
        return value.timestamp


class Deduplication(KeyedProcessFunction):  # type: ignore[misc]
    """Lets each event through once."""

    def open(self, context: RuntimeContext) -> None:
        """Get hold of the state."""
        descriptor = MapStateDescriptor("seen", Types.STRING(), Types.BOOLEAN())
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1)).build())
        self.seen = context.get_map_state(descriptor)

    def process_element(self, value: OrderEvent, ctx: Any) -> Iterator[OrderEvent]:
        """Look whether an event has been here."""
        if not self.seen.contains(value.event_id):
            self.seen.put(value.event_id, True)
            yield value


@dataclass(frozen=True)
class Order:
    """What is kept of an order."""

    user_id: str
    status: str
    items: tuple[OrderItem, ...]
    times: dict[str, int] = field(default_factory=dict)


class Tracking(Metered, KeyedProcessFunction):  # type: ignore[misc]
    """The life of each order, in event time; counts what it is given."""

    def open(self, context: RuntimeContext) -> None:
        """Get hold of the state."""
        super().open(context)
        self.order = context.get_state(ValueStateDescriptor("order", PICKLED))
        self.waiting = context.get_list_state(ListStateDescriptor("waiting", PICKLED))

    def process_element(self, value: OrderEvent, ctx: Any) -> Iterator[Any]:
        """Let an event wait for its time."""
        self.meter.tick()
        if value.timestamp <= ctx.timer_service().current_watermark():
            yield from self.take(value)
        else:
            self.waiting.add(value)
            ctx.timer_service().register_event_time_timer(value.timestamp)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        """Take the events whose time has come."""
        waiting = sorted(self.waiting.get(), key=lambda event: (event.timestamp, event.event_id))
        self.waiting.update([event for event in waiting if event.timestamp > timestamp])
        for event in waiting:
            if event.timestamp <= timestamp:
                yield from self.take(event)

    def take(self, event: OrderEvent) -> Iterator[Any]:
        """Take a step, if it can be."""
        order = self.order.value()
        before = None if order is None else order.status
        if event.step not in NEXT[before]:
            yield (
                REJECTED,
                RejectedStep(
                    event.event_id,
                    event.order_id,
                    event.step,
                    event.timestamp,
                    f"{event.step} after {before}",
                ),
            )
            return
        if order is None:
            order = Order(event.user_id, "created", event.items)
        times = {**order.times, event.step: event.timestamp}
        order = replace(order, status=event.step, times=times)
        self.order.update(order)
        yield OrderStatus(event.order_id, order.user_id, event.step, **times)
        sign = {"created": -1, "cancelled": 1}.get(event.step)
        for item in order.items if sign is not None else ():
            yield STOCK_CHANGES, StockChange(item.product, sign * item.quantity, event.order_id)


class SumPurchases(AggregateFunction):  # type: ignore[misc]
    """Orders, total, pieces, and pieces by category."""

    def create_accumulator(self) -> Any:
        """Begin with nothing."""
        return 0, Decimal(0), 0, {}

    def add(self, value: OrderEvent, accumulator: Any) -> Any:
        """Add an order."""
        categories: Counter[str] = Counter()
        for item in value.items:
            categories[item.category] += item.quantity
        return self.merge(accumulator, (1, value.total, value.pieces, categories))

    def get_result(self, accumulator: Any) -> Any:
        """Return the sums."""
        return accumulator

    def merge(self, a: Any, b: Any) -> Any:
        """Add sums."""
        categories = dict(a[3])
        for category, pieces in b[3].items():
            categories[category] = categories.get(category, 0) + pieces
        return a[0] + b[0], a[1] + b[1], a[2] + b[2], categories


class PerUserAndHour(ProcessWindowFunction):  # type: ignore[misc]
    """Adds to the sums whose they are."""

    def process(self, key: str, context: Any, elements: Iterable[Any]) -> Iterator[Any]:
        """Give the statistics of a window."""
        window = context.window()
        for orders, total, items, categories in elements:
            average = (total / orders).quantize(Decimal("0.01"))
            yield PurchaseStatistics(
                key, window.start, window.end, orders, total, average, items, categories
            )


class Inventory(KeyedProcessFunction):  # type: ignore[misc]
    """The stock of each product."""

    def open(self, context: RuntimeContext) -> None:
        """Get hold of the state."""
        shelf = Types.TUPLE([Types.LONG(), Types.LONG()])
        self.shelf = context.get_state(ValueStateDescriptor("shelf", shelf))

    def process_element(self, value: StockChange, ctx: Any) -> Iterator[Any]:
        """Change the stock of a product."""
        before, changes = self.shelf.value() or (1000, 0)
        after = before + value.change
        self.shelf.update((after, changes + 1))
        yield StockLevel(value.product, changes + 1, value.change, after, value.order_id)
        if after < 10 <= before:
            yield LOW_STOCK, LowStock(value.product, changes + 1, after)


def arriving(number: int) -> list[OrderEvent]:
    """Return what arrives in a slice of a partition."""
    return deliveries(SHOP, number % PARTITIONS, number // PARTITIONS)


def build(env: StreamExecutionEnvironment, records: int, marks: str) -> None:
    """Make the graph of ``examples/orders/pipeline.py``."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
    slices = numbers(env, SHOP.slices_for(records) * PARTITIONS)
    events = slices.flat_map(arriving, PICKLED).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(EventTime())
    )
    by_order = events.key_by(lambda event: event.order_id, Types.STRING())
    unique = by_order.process(Deduplication(), PICKLED)
    created = unique.filter(lambda event: event.step == "created")
    tracked = unique.key_by(lambda event: event.order_id, Types.STRING()).process(
        Tracking(marks), PICKLED
    )
    statistics = (
        created.key_by(lambda event: event.user_id, Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.hours(1)))
        .side_output_late_data(LATE)
        .aggregate(SumPurchases(), PerUserAndHour(), PICKLED, PICKLED)
    )
    changes = tracked.get_side_output(STOCK_CHANGES)
    stock = changes.key_by(lambda change: change.product, Types.STRING()).process(
        Inventory(), PICKLED
    )
    discard(tracked.union(tracked.get_side_output(REJECTED)))
    discard(statistics.union(statistics.get_side_output(LATE)))
    discard(stock.union(stock.get_side_output(LOW_STOCK)))
    discard(created)


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    # The embedded interpreter starts from the base installation and knows no virtual environment.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    env = environment(task)
    build(env, task.records, task.directory)
    env.execute(task.workload)
    emit(measured(read_marks(task.directory)))


if __name__ == "__main__":
    # What stands in the main program is pickled by value, and types with a Java side cannot be.
    from benchmarks.peers import pyflink_orders_job

    pyflink_orders_job.main()
