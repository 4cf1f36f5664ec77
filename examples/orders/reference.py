"""What must come out of the job, computed from all events at once, in plain Python.

Nothing here is shared with the functions of the job: no state, no time, no windows, no order of
arrival. Results are rows as they stand in the job's output files.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from msgspec.structs import asdict

from examples.orders.events import OrderEvent

__all__ = ["Expected", "Row", "expect", "purchases"]

#: an output, as JSON has it
Row = dict[str, Any]

_HOUR = 3_600_000
#: how far out of order an event may be that is not late
_DISORDER = 5_000
#: what a step must come after: exactly this status
_AFTER: dict[str, list[str | None]] = {
    "created": [None],
    "paid": ["created"],
    "shipped": ["paid"],
    "delivered": ["shipped"],
    "cancelled": ["created", "paid"],
}
_RANK = ["created", "paid", "shipped", "delivered", "cancelled"]


@dataclass
class Expected:
    """What must come out, whatever the epochs.

    Attributes:
        changes: the changes of each product's stock, in no order.
        created: the first step of every order, by order.
        behind: the orders that arrived more than five seconds after something that was later.
    """

    statuses: list[Row] = field(default_factory=list)
    rejected: list[Row] = field(default_factory=list)
    changes: dict[str, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))
    created: dict[str, OrderEvent] = field(default_factory=dict)
    behind: set[str] = field(default_factory=set)


def expect(deliveries: Iterable[OrderEvent]) -> Expected:
    """What must come out for events that were delivered, some of them more than once."""
    expected = Expected()
    orders: dict[str, dict[str, OrderEvent]] = defaultdict(dict)
    newest = 0
    for event in deliveries:
        newest = max(newest, event.timestamp)
        if event.event_id not in orders[event.order_id] and event.timestamp < newest - _DISORDER:
            expected.behind.add(event.order_id)
        orders[event.order_id][event.event_id] = event
    for order_id, events in orders.items():
        _live(order_id, sorted(events.values(), key=lambda event: event.timestamp), expected)
    return expected


def _live(order_id: str, events: list[OrderEvent], expected: Expected) -> None:
    """One order, step by step."""
    status: str | None = None
    order: Row = {}
    for event in events:
        if event.step == "created":
            expected.created[order_id] = event
        if status not in _AFTER[event.step]:
            expected.rejected.append(_rejected(event, status))
            continue
        status = event.step
        if status == "created":
            order = {"order_id": order_id, "user_id": event.user_id, **dict.fromkeys(_RANK)}
        order = {**order, "status": status, status: event.timestamp}
        expected.statuses.append(order)
        sign = {"created": -1, "cancelled": 1}.get(status, 0)
        for item in expected.created[order_id].items if sign else ():
            expected.changes[item.product].append((order_id, sign * item.quantity))


def _rejected(event: OrderEvent, status: str | None) -> Row:
    row = asdict(event)
    del row["user_id"], row["items"]
    if status is None:
        return {**row, "reason": f"{event.step} before created"}
    over = status in ("delivered", "cancelled") or event.step == "cancelled"
    if over or _RANK.index(event.step) <= _RANK.index(status):
        return {**row, "reason": f"{event.step} after {status}"}
    return {**row, "reason": f"{event.step} before {_AFTER[event.step][0]}"}


def purchases(orders: Iterable[OrderEvent], late: Collection[str]) -> Iterator[Row]:
    """The statistics of all hours of all users, without the orders that were told to be late."""
    hours: dict[tuple[str, int], list[OrderEvent]] = defaultdict(list)
    for order in orders:
        if order.order_id not in late:
            hours[order.user_id, order.timestamp // _HOUR].append(order)
    for (user, hour), bought in hours.items():
        items = [item for order in bought for item in order.items]
        total = sum((item.quantity * item.price for item in items), Decimal(0))
        categories: dict[str, int] = defaultdict(int)
        for item in items:
            categories[item.category] += item.quantity
        yield {
            "user_id": user,
            "window_start": hour * _HOUR,
            "window_end": (hour + 1) * _HOUR,
            "orders": len(bought),
            "total": str(total),
            "average": str(round(total / len(bought), 2)),
            "items": sum(categories.values()),
            "categories": dict(categories),
        }
