"""The life of each order: created, paid, shipped, delivered, or cancelled, with a time per step."""

from collections.abc import Iterable
from typing import Any

import msgspec

from examples.orders.events import (
    CANCELLED,
    CREATED,
    DELIVERED,
    PAID,
    SHIPPED,
    STEPS,
    OrderEvent,
    OrderItem,
    OrderStatus,
    Record,
    RejectedStep,
    Step,
    StockChange,
)
from examples.orders.tallies import Tally, show
from holdfast.common import Duration
from holdfast.datastream import KeyedProcessFunction, OutputTag, RuntimeContext
from holdfast.datastream.functions import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from holdfast.datastream.state import (
    ListState,
    ListStateDescriptor,
    StateTtlConfig,
    ValueState,
    ValueStateDescriptor,
)

__all__ = ["KEPT", "REJECTED", "STOCK_CHANGES", "OrderState", "OrderTracking"]

#: how long an order is kept to which nothing happens
KEPT = Duration.of_days(90)

#: steps that cannot be
REJECTED = OutputTag("rejected", RejectedStep)
#: what leaves the stock with an order, and comes back when it is cancelled
STOCK_CHANGES = OutputTag("stock-changes", StockChange)

#: the steps that may come after a status; None is before the first
_NEXT: dict[Step | None, tuple[Step, ...]] = {
    None: (CREATED,),
    CREATED: (PAID, CANCELLED),
    PAID: (SHIPPED, CANCELLED),
    SHIPPED: (DELIVERED,),
    DELIVERED: (),
    CANCELLED: (),
}
#: what must have happened to an order before a step
_NEEDED: dict[Step, Step] = {SHIPPED: PAID, DELIVERED: SHIPPED}
#: the steps that change the stock: pieces leave it, or come back
_STOCK_SIGNS: dict[Step, int] = {CREATED: -1, CANCELLED: 1}


class OrderState(Record, frozen=True):
    """What is kept of an order; a field that is added needs a default."""

    user_id: str
    status: Step
    items: tuple[OrderItem, ...]
    times: dict[str, int] = msgspec.field(default_factory=dict)


class OrderTracking(KeyedProcessFunction, CheckpointedFunction):
    """By order: gives the status after each step.

    Events arrive out of order, and whether a step can be depends on those before it. So an event
    waits until the watermark has come to its time: then everything before it is there. One that is
    late finds the watermark past it, and does not wait.
    """

    def __init__(self, keep: Duration = KEPT) -> None:
        """Forget an order when nothing has happened to it for this time."""
        self._ttl = StateTtlConfig.new_builder(keep).build()
        self._by_status = Tally(*STEPS)

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self._by_status.initialize_state(context)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self._by_status.snapshot_state()

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("order", OrderState)
        descriptor.enable_time_to_live(self._ttl)
        self._order: ValueState[OrderState] = runtime_context.get_state(descriptor)
        self._waiting: ListState[OrderEvent] = runtime_context.get_list_state(
            ListStateDescriptor("waiting", OrderEvent)
        )
        show(runtime_context, "orders", STEPS, lambda step: self._by_status[step])

    def process_element(
        self, value: OrderEvent, ctx: KeyedProcessFunction.Context
    ) -> Iterable[Any]:
        timers = ctx.timer_service()
        watermark = timers.current_watermark()
        if value.timestamp <= watermark:
            return self._take(value)
        self._waiting.add(value)
        # one timer for all events of the order: as soon as time has moved, see who waits
        timers.register_event_time_timer(watermark + 1)
        return ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        timers = ctx.timer_service()
        watermark = timers.current_watermark()
        waiting = sorted(self._waiting.get(), key=lambda event: (event.timestamp, event.event_id))
        later = [event for event in waiting if event.timestamp > watermark]
        self._waiting.update(later)
        if later:
            timers.register_event_time_timer(watermark + 1)
        due = waiting[: len(waiting) - len(later)]
        return [result for event in due for result in self._take(event)]

    def _take(self, event: OrderEvent) -> list[Any]:
        """Take a step, if it can be."""
        order = self._order.value()
        before = None if order is None else order.status
        if event.step not in _NEXT[before]:
            return [(REJECTED, _rejected(event, order))]
        if order is None:
            order = OrderState(event.user_id, CREATED, event.items)
        times = {**order.times, event.step: event.timestamp}
        self._order.update(OrderState(order.user_id, event.step, order.items, times))
        self._count(before, event.step)
        status = OrderStatus(event.order_id, order.user_id, event.step, **times)
        return [status, *_stock_changes(event, order.items)]

    def _count(self, before: Step | None, after: Step) -> None:
        if before is not None:
            self._by_status.add(before, -1)
        self._by_status.add(after, 1)


def _rejected(event: OrderEvent, order: OrderState | None) -> RejectedStep:
    reason = _reason(order, event.step)
    return RejectedStep(event.event_id, event.order_id, event.step, event.timestamp, reason)


def _reason(order: OrderState | None, step: Step) -> str:
    """Why a step cannot be: something is missing before it, or something has happened already."""
    if order is None:
        return f"{step} before created"
    needed = _NEEDED.get(step, CREATED)
    if needed in order.times or CANCELLED in order.times:
        return f"{step} after {order.status}"
    return f"{step} before {needed}"


def _stock_changes(
    event: OrderEvent, items: tuple[OrderItem, ...]
) -> list[tuple[OutputTag, StockChange]]:
    sign = _STOCK_SIGNS.get(event.step)
    if sign is None:
        return []
    return [
        (STOCK_CHANGES, StockChange(item.product, sign * item.quantity, event.order_id))
        for item in items
    ]
