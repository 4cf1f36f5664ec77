"""The order system on PyFlink, as far as it can be written there.

The events, the graph, the states, the time and the outputs are the same. PyFlink has neither
operator state nor sinks in Python, so the batches, and the counts for the live view, are left out;
outputs are lines of JSON in Flink's own file sink. It is tuned as in `pyflink_job`; records are
Python objects, pickled. Nothing here is the example's: its environment has none of what that needs.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from pyflink.common import (  # type: ignore[import-not-found]
    Duration,
    Encoder,
    Time,
    Types,
    WatermarkStrategy,
)
from pyflink.common.watermark_strategy import (  # type: ignore[import-not-found]
    TimestampAssigner,
)
from pyflink.datastream import (  # type: ignore[import-not-found]
    AggregateFunction,
    DataStream,
    KeyedProcessFunction,
    OutputTag,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.connectors.file_system import (  # type: ignore[import-not-found]
    BucketAssigner,
    FileSink,
    FileSource,
    RollingPolicy,
    StreamFormat,
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
from benchmarks.orders.data import ask
from benchmarks.peers.pyflink_job import WORKER_MODE, Metered, environment
from benchmarks.program import parse_task

PICKLED = Types.PICKLED_BYTE_ARRAY()
REJECTED = OutputTag("rejected", PICKLED)
STOCK_CHANGES = OutputTag("stock-changes", PICKLED)
LATE = OutputTag("late", PICKLED)
LOW_STOCK = OutputTag("low-stock", PICKLED)

STEPS = ("created", "paid", "shipped", "delivered", "cancelled")
NEXT: dict[str | None, tuple[str, ...]] = {
    None: ("created",),
    "created": ("paid", "cancelled"),
    "paid": ("shipped", "cancelled"),
    "shipped": ("delivered",),
    "delivered": (),
    "cancelled": (),
}
NEEDED = {"shipped": "paid", "delivered": "shipped"}


class Item(NamedTuple):
    """A line of an order."""

    product: str
    category: str
    quantity: int
    price: Decimal


class Event(NamedTuple):
    """A step in the life of an order."""

    event_id: str
    order_id: str
    user_id: str
    step: str
    timestamp: int
    items: tuple[Item, ...]


class Order(NamedTuple):
    """What is kept of an order."""

    user_id: str
    status: str
    items: tuple[Item, ...]
    times: dict[str, int]


def parse(line: str) -> Event:
    """Read an event."""
    row = json.loads(line)
    items = tuple(
        Item(item["product"], item["category"], item["quantity"], Decimal(item["price"]))
        for item in row["items"]
    )
    return Event(
        row["event_id"], row["order_id"], row["user_id"], row["step"], row["timestamp"], items
    )


def total(event: Event) -> Decimal:
    """What an order costs."""
    return sum((item.quantity * item.price for item in event.items), Decimal(0))


class EventTime(TimestampAssigner):  # type: ignore[misc]
    """An event says when it happened."""

    def extract_timestamp(self, value: Event, record_timestamp: int) -> int:
        """Return the time of an event."""
        return value.timestamp


class Deduplication(Metered, KeyedProcessFunction):  # type: ignore[misc]
    """Lets each event through once; counts what it is given."""

    def open(self, context: RuntimeContext) -> None:
        """Get hold of the state."""
        super().open(context)
        descriptor = MapStateDescriptor("seen", Types.STRING(), Types.BOOLEAN())
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1)).build())
        self.seen = context.get_map_state(descriptor)

    def process_element(self, value: Event, ctx: Any) -> Iterator[Event]:
        """Look whether an event has been here."""
        self.meter.tick()
        if not self.seen.contains(value.event_id):
            self.seen.put(value.event_id, True)
            yield value


class Tracking(KeyedProcessFunction):  # type: ignore[misc]
    """The life of each order, in event time."""

    def open(self, context: RuntimeContext) -> None:
        """Get hold of the state."""
        self.order = context.get_state(ValueStateDescriptor("order", PICKLED))
        self.waiting = context.get_list_state(ListStateDescriptor("waiting", PICKLED))

    def process_element(self, value: Event, ctx: Any) -> Iterator[Any]:
        """Let an event wait for its time."""
        timers = ctx.timer_service()
        watermark = timers.current_watermark()
        if value.timestamp <= watermark:
            yield from self.take(value)
        else:
            self.waiting.add(value)
            timers.register_event_time_timer(watermark + 1)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        """Take the events whose time has come."""
        timers = ctx.timer_service()
        watermark = timers.current_watermark()
        waiting = sorted(self.waiting.get(), key=lambda event: (event.timestamp, event.event_id))
        later = [event for event in waiting if event.timestamp > watermark]
        self.waiting.update(later)
        if later:
            timers.register_event_time_timer(watermark + 1)
        for event in waiting[: len(waiting) - len(later)]:
            yield from self.take(event)

    def take(self, event: Event) -> Iterator[Any]:
        """Take a step, if it can be."""
        order = self.order.value()
        before = None if order is None else order.status
        if event.step not in NEXT[before]:
            yield (
                REJECTED,
                {
                    "event_id": event.event_id,
                    "order_id": event.order_id,
                    "step": event.step,
                    "timestamp": event.timestamp,
                    "reason": reason(order, event.step),
                },
            )
            return
        if order is None:
            order = Order(event.user_id, "created", event.items, {})
        times = {**order.times, event.step: event.timestamp}
        self.order.update(Order(order.user_id, event.step, order.items, times))
        yield {
            "order_id": event.order_id,
            "user_id": order.user_id,
            "status": event.step,
            **{step: times.get(step) for step in STEPS},
        }
        sign = {"created": -1, "cancelled": 1}.get(event.step)
        for item in order.items if sign is not None else ():
            yield STOCK_CHANGES, (item.product, sign * item.quantity, event.order_id)


def reason(order: Order | None, step: str) -> str:
    """Why a step cannot be."""
    if order is None:
        return f"{step} before created"
    needed = NEEDED.get(step, "created")
    if needed in order.times or "cancelled" in order.times:
        return f"{step} after {order.status}"
    return f"{step} before {needed}"


class SumPurchases(AggregateFunction):  # type: ignore[misc]
    """Orders, total, pieces, and pieces by category."""

    def create_accumulator(self) -> Any:
        """Begin with nothing."""
        return 0, Decimal(0), 0, {}

    def add(self, value: Event, accumulator: Any) -> Any:
        """Add an order."""
        orders, amount, pieces, categories = accumulator
        categories = dict(categories)
        for item in value.items:
            categories[item.category] = categories.get(item.category, 0) + item.quantity
            pieces += item.quantity
        return orders + 1, amount + total(value), pieces, categories

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
        for orders, amount, items, categories in elements:
            yield {
                "user_id": key,
                "window_start": window.start,
                "window_end": window.end,
                "orders": orders,
                "total": amount,
                "average": (amount / orders).quantize(Decimal("0.01")),
                "items": items,
                "categories": categories,
            }


class Inventory(KeyedProcessFunction):  # type: ignore[misc]
    """The stock of each product."""

    def open(self, context: RuntimeContext) -> None:
        """Get hold of the state."""
        shelf = Types.TUPLE([Types.LONG(), Types.LONG()])
        self.shelf = context.get_state(ValueStateDescriptor("shelf", shelf))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        """Change the stock of a product."""
        product, change, order_id = value
        before, changes = self.shelf.value() or (1000, 0)
        after, number = before + change, changes + 1
        self.shelf.update((after, number))
        level = {"product": product, "number": number, "change": change, "stock": after}
        yield {**level, "order_id": order_id}
        if after < 10 <= before:
            yield LOW_STOCK, {"product": product, "number": number, "stock": after}


def late_order(event: Event) -> dict[str, Any]:
    """Return what is told of an order that is late."""
    return {
        "order_id": event.order_id,
        "user_id": event.user_id,
        "timestamp": event.timestamp,
        "total": total(event),
    }


def build(env: StreamExecutionEnvironment, files: Iterable[Path], marks: str) -> dict[str, Any]:
    """Make the graph of ``examples/orders/pipeline.py``; returns its outputs by name."""
    lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), *map(str, files))
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
    events = (
        env.from_source(lines.build(), WatermarkStrategy.no_watermarks(), "lines", Types.STRING())
        .map(parse, PICKLED)
        .assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(EventTime()))
    )
    by_order = events.key_by(lambda event: event.order_id, Types.STRING())
    unique = by_order.process(Deduplication(marks), PICKLED)
    created = unique.filter(lambda event: event.step == "created")
    tracked = unique.key_by(lambda event: event.order_id, Types.STRING()).process(
        Tracking(), PICKLED
    )
    statistics = (
        created.key_by(lambda event: event.user_id, Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.hours(1)))
        .side_output_late_data(LATE)
        .aggregate(SumPurchases(), PerUserAndHour(), PICKLED, PICKLED)
    )
    changes = tracked.get_side_output(STOCK_CHANGES)
    stock = changes.key_by(lambda change: change[0], Types.STRING()).process(Inventory(), PICKLED)
    return {
        "statuses": tracked,
        "rejected": tracked.get_side_output(REJECTED),
        "statistics": statistics,
        "late": statistics.get_side_output(LATE).map(late_order, PICKLED),
        "stock": stock,
        "low_stock": stock.get_side_output(LOW_STOCK),
    }


def to_files(stream: DataStream, directory: Path) -> None:
    """Write a stream as lines of JSON, into files that appear with a checkpoint."""
    sink = (
        FileSink.for_row_format(str(directory), Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        .build()
    )
    stream.map(lambda row: json.dumps(row, default=str), Types.STRING()).sink_to(sink)


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    # The embedded interpreter starts from the base installation and knows no virtual environment.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    if task.variant == "process":
        os.environ[WORKER_MODE] = "process"
    env = environment(task)
    # one file per subtask that reads: each is in the order of time, and two are not
    data = Path(ask("make", task.records, env.get_parallelism()))
    output = Path(task.directory) / "output"
    for name, stream in build(env, sorted(data.iterdir()), task.directory).items():
        to_files(stream, output / name)
    env.execute(task.workload)
    differences = ask("check", task.records, output)
    if differences:
        sys.exit(f"the outputs are not what they should be:\n{differences}")
    emit(measured(read_marks(task.directory)))


if __name__ == "__main__":
    # What stands in the main program is pickled by value, and types with a Java side cannot be.
    from benchmarks.orders import pyflink_job

    pyflink_job.main()
