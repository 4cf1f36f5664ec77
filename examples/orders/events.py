"""What goes through the order system: events of orders, and what the functions make of them.

All of it is msgspec structs: they are quickly made, small on the way between subtasks, and read and
write JSON by themselves. Money is ``Decimal``; times are milliseconds since 1970.
"""

from decimal import Decimal
from typing import Literal

import msgspec

__all__ = [
    "CANCELLED",
    "CREATED",
    "DELIVERED",
    "PAID",
    "SHIPPED",
    "STEPS",
    "LateOrder",
    "LowStock",
    "OrderEvent",
    "OrderItem",
    "OrderStatus",
    "PurchaseStatistics",
    "RejectedStep",
    "Step",
    "StockChange",
    "StockLevel",
]

Step = Literal["created", "paid", "shipped", "delivered", "cancelled"]

CREATED: Step = "created"
PAID: Step = "paid"
SHIPPED: Step = "shipped"
DELIVERED: Step = "delivered"
CANCELLED: Step = "cancelled"
STEPS: tuple[Step, ...] = (CREATED, PAID, SHIPPED, DELIVERED, CANCELLED)


class Record(msgspec.Struct, frozen=True, gc=False):
    """What does not change once it is made, and refers to nothing that refers back to it."""


class OrderItem(Record, frozen=True):
    """A line of an order; the price is that of one piece."""

    product: str
    category: str
    quantity: int
    price: Decimal


class OrderEvent(Record, frozen=True):
    """A step in the life of an order.

    Attributes:
        event_id: unique among those of the order; an event that is delivered again has it, too.
        timestamp: when it happened, which is not when it arrives.
        items: of a created order; the later steps do not repeat them.
    """

    event_id: str
    order_id: str
    user_id: str
    step: Step
    timestamp: int
    items: tuple[OrderItem, ...] = ()

    @property
    def total(self) -> Decimal:
        """What the items cost together."""
        return sum((item.quantity * item.price for item in self.items), Decimal(0))

    @property
    def pieces(self) -> int:
        """How many pieces were ordered."""
        return sum(item.quantity for item in self.items)


class OrderStatus(Record, frozen=True):
    """Where an order stands after a step, and when it came to each."""

    order_id: str
    user_id: str
    status: str
    created: int | None = None
    paid: int | None = None
    shipped: int | None = None
    delivered: int | None = None
    cancelled: int | None = None


class RejectedStep(Record, frozen=True):
    """A step that cannot be, and why."""

    event_id: str
    order_id: str
    step: str
    timestamp: int
    reason: str


class PurchaseStatistics(Record, frozen=True):
    """What a user ordered within an hour; ``categories`` counts pieces."""

    user_id: str
    window_start: int
    window_end: int
    orders: int
    total: Decimal
    average: Decimal
    items: int
    categories: dict[str, int]


class LateOrder(Record, frozen=True):
    """An order that came when the statistics of its hour had been given out."""

    order_id: str
    user_id: str
    timestamp: int
    total: Decimal


class StockChange(Record, frozen=True):
    """Pieces that leave the stock of a product, or come back."""

    product: str
    change: int
    order_id: str


class StockLevel(Record, frozen=True):
    """The stock of a product after a change; ``number`` counts the changes of the product."""

    product: str
    number: int
    change: int
    stock: int
    order_id: str


class LowStock(Record, frozen=True):
    """A product of which there is little left; ``number`` is that of the change that made it so."""

    product: str
    number: int
    stock: int
