"""The job: from a stream of order events to statuses, statistics, stock and batches.

    events ─ by order ─ deduplication
                          ├─ tracking ─┬─► statuses
                          │            ├─► rejected steps
                          │            └─ by product ─ inventory ─┬─► stock
                          │                                       └─► low stock
                          └─ created ─┬─ by user and hour ─ statistics ─┬─► statistics
                                      │                                 └─► late orders
                                      └─► batches of a hundred

Five branches and seven outputs, and still one Spark job per epoch. Every operator with state has a
uid, so that the job can change around its state.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from examples.orders.dedup import Deduplication
from examples.orders.events import (
    CREATED,
    LateOrder,
    OrderEvent,
    OrderStatus,
    PurchaseStatistics,
    StockLevel,
)
from examples.orders.faults import FailOnce
from examples.orders.inventory import INITIAL_STOCK, LOW_STOCK, Inventory
from examples.orders.statistics import LATE, PerUserAndHour, Purchases, SumPurchases
from examples.orders.tracking import REJECTED, STOCK_CHANGES, OrderTracking
from holdfast.common import Duration, Time, WatermarkStrategy
from holdfast.common.watermark_strategy import TimestampAssigner
from holdfast.datastream import DataStream, DataStreamUtils
from holdfast.datastream.window import TumblingEventTimeWindows

__all__ = ["Outputs", "PipelineSettings", "build", "watermarks"]

#: how far out of order events may be
OUT_OF_ORDER = Duration.of_seconds(5)


@dataclass(frozen=True)
class PipelineSettings:
    """What the functions need to be told.

    Attributes:
        remember: how long an event may be delivered again.
        initial_stock: of every product.
        fault: raises within the job, for those who want to see it recover.
    """

    remember: Duration = field(default_factory=lambda: Duration.of_days(1))
    initial_stock: int = INITIAL_STOCK
    fault: FailOnce | None = None


class Outputs(NamedTuple):
    """The streams that come out; ``orders`` are those for the batches."""

    statuses: DataStream
    rejected: DataStream
    statistics: DataStream
    late: DataStream
    stock: DataStream
    low_stock: DataStream
    orders: DataStream


class EventTime(TimestampAssigner):
    """An event says when it happened."""

    def extract_timestamp(self, value: OrderEvent, record_timestamp: int) -> int:
        return value.timestamp


def watermarks() -> WatermarkStrategy:
    """Event time, with five seconds for what is out of order."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(OUT_OF_ORDER)
    return strategy.with_timestamp_assigner(EventTime())


def build(events: DataStream, settings: PipelineSettings) -> Outputs:
    """The job, from events with timestamps to its outputs."""
    unique = (
        events.key_by(_order_id, str)
        .process(Deduplication(settings.remember))
        .uid("deduplication")
        .name("deduplication")
    )
    if settings.fault is not None:
        unique = unique.map(settings.fault).name("fault")
    created = unique.filter(lambda event: event.step == CREATED).name("created orders")

    # an event that goes on is still with its order: there is nothing to shuffle
    by_order = DataStreamUtils.reinterpret_as_keyed_stream(unique, _order_id, str)
    tracked = by_order.process(OrderTracking(), OrderStatus).uid("tracking").name("tracking")
    statistics = (
        created.key_by(lambda event: event.user_id, str)
        .window(TumblingEventTimeWindows.of(Time.hours(1)))
        .side_output_late_data(LATE)
        .aggregate(SumPurchases(), PerUserAndHour(), Purchases, PurchaseStatistics)
        .uid("statistics")
        .name("statistics")
    )
    stock = (
        tracked.get_side_output(STOCK_CHANGES)
        .key_by(lambda change: change.product, str)
        .process(Inventory(settings.initial_stock), StockLevel)
        .uid("inventory")
        .name("inventory")
    )
    return Outputs(
        tracked,
        tracked.get_side_output(REJECTED),
        statistics,
        statistics.get_side_output(LATE).map(_late_order, LateOrder).name("late orders"),
        stock,
        stock.get_side_output(LOW_STOCK),
        created,
    )


def _order_id(event: OrderEvent) -> str:
    return event.order_id


def _late_order(event: OrderEvent) -> LateOrder:
    return LateOrder(event.order_id, event.user_id, event.timestamp, event.total)
