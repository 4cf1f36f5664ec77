"""A shop that never closes: order events in any number, the same ones for the same seed.

Event time is cut into slices of four seconds, and the orders into partitions, as those of a Kafka
topic. What arrives in a slice of a partition is a pure function of the settings and the two
numbers (`deliveries`), so a position is three small numbers, any part of the stream can be made
again, and a result can be checked by computing it from the same events.

Events arrive with everything that makes a stream hard, as much of it as one asks for:

- disorder: within a slice, events arrive in any order. That is less than the five seconds which
  the job waits for;
- duplicates: an event arrives again, at once or some slices later;
- lateness: an order was taken while the shop's line was down. Its whole life arrives at once, hours
  after it happened;
- steps that cannot be: delivered before shipped, anything after cancelled.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from examples.orders.events import (
    CANCELLED,
    CREATED,
    DELIVERED,
    PAID,
    SHIPPED,
    OrderEvent,
    OrderItem,
    Step,
)

__all__ = ["PARTITIONS", "Shop", "all_deliveries", "deliveries"]

PARTITIONS = 4
#: 2026-01-01 08:58 UTC: soon an hour is over
START = 1_767_257_880_000
SLICE_MS = 4_000
#: how long ago an order happened that arrives late
LATE_BY_MS = 6 * 3_600_000

#: what becomes of orders, and of how many in a hundred
LIVES: tuple[tuple[int, tuple[Step, ...]], ...] = (
    (74, (CREATED, PAID, SHIPPED, DELIVERED)),
    (9, (CREATED, CANCELLED)),
    (7, (CREATED, PAID, CANCELLED)),
    (4, (CREATED, PAID, DELIVERED, SHIPPED)),
    (3, (CREATED, CANCELLED, PAID)),
    (2, (CREATED, PAID, SHIPPED, DELIVERED, CANCELLED)),
    (1, (PAID, CREATED)),
)
EVENTS_PER_ORDER = sum(weight * len(life) for weight, life in LIVES) / 100
#: the slice of each step, counted from that of the first; two in one slice may change places
LAGS = (0, 0, 10, 25, 60)
#: after how many slices an event is delivered again
REPEATS = (0, 3, 12)

CATEGORIES = ("books", "electronics", "garden", "music", "sports", "toys")
USERS = 1_000
PRODUCTS = 300


@dataclass(frozen=True)
class Shop:
    """How much happens in the shop, and how badly it arrives.

    Attributes:
        seed: another one is another history.
        slices: how many slices there are; None for no end.
        rate: about how many events arrive in a second; None for as fast as they are read.
        orders_per_slice: new orders in a slice of a partition.
        duplicates: the share of events that are delivered twice.
        disorder: whether events arrive out of order.
        lateness: the share of orders that arrive late.
    """

    seed: int = 1
    slices: int | None = None
    rate: float | None = None
    orders_per_slice: int = 1
    duplicates: float = 0.0
    disorder: bool = False
    lateness: float = 0.0

    @property
    def events_per_slice(self) -> float:
        """About how many events arrive in a slice, of all partitions, each counted once."""
        return self.orders_per_slice * PARTITIONS * EVENTS_PER_ORDER

    def slices_for(self, events: int) -> int:
        """How many slices have about so many events."""
        return max(1, round(events / self.events_per_slice))


class _Order(NamedTuple):
    """What the shop knows of an order from the beginning; each step has its time and its repeat."""

    order_id: str
    user_id: str
    items: tuple[OrderItem, ...]
    life: tuple[Step, ...]
    times: tuple[int, ...]
    repeats: tuple[int | None, ...]
    late: bool

    def event(self, number: int) -> OrderEvent:
        step = self.life[number]
        items = self.items if step == CREATED else ()
        name = f"{self.order_id}/{number}"
        return OrderEvent(name, self.order_id, self.user_id, step, self.times[number], items)


def deliveries(shop: Shop, partition: int, number: int) -> list[OrderEvent]:
    """The events that arrive in a slice of a partition, in the order in which they arrive."""
    arriving = [order.event(step) for order, step in _steps(shop, partition, number)]
    for distance in REPEATS:
        arriving += [
            order.event(step)
            for order, step in _steps(shop, partition, number - distance)
            if order.repeats[step] == distance
        ]
    arriving.sort(key=lambda event: event.timestamp)
    if shop.disorder:
        random.Random(f"{shop.seed}/{partition}/{number}/arrival").shuffle(arriving)
    # NB: of an order that arrives late, the steps keep their order: nobody waits for them any more
    for order in _orders(shop, partition, number):
        if order.late:
            arriving += [order.event(step) for step in range(len(order.life))]
    return arriving


def all_deliveries(shop: Shop) -> Iterator[OrderEvent]:
    """All events of a shop that closes, in one of the orders in which they may arrive."""
    if shop.slices is None:
        raise ValueError("a shop without an end has no last event; give it a number of slices")
    for number in range(shop.slices):
        for partition in range(PARTITIONS):
            yield from deliveries(shop, partition, number)


def _steps(shop: Shop, partition: int, number: int) -> Iterator[tuple[_Order, int]]:
    """The steps that happen in a slice and arrive in time."""
    for step, lag in enumerate(LAGS):
        for order in _orders(shop, partition, number - lag):
            if step < len(order.life) and not order.late:
                yield order, step


@lru_cache(maxsize=2 * PARTITIONS * (max(LAGS) + max(REPEATS)))
def _orders(shop: Shop, partition: int, number: int) -> tuple[_Order, ...]:
    """The orders that begin in a slice of a partition."""
    if number < 0:
        return ()
    dice = random.Random(f"{shop.seed}/{partition}/{number}")
    name = f"{partition}-{number}"
    return tuple(
        _order(shop, f"{name}-{place}", number, dice) for place in range(shop.orders_per_slice)
    )


def _order(shop: Shop, name: str, number: int, dice: random.Random) -> _Order:
    life = dice.choices([life for _, life in LIVES], [weight for weight, _ in LIVES])[0]
    late = dice.random() < shop.lateness
    back = LATE_BY_MS if late else 0
    times = tuple(
        START + (number + LAGS[step]) * SLICE_MS + _moment(step, dice) - back
        for step in range(len(life))
    )
    repeats = tuple(dice.choice(REPEATS) if dice.random() < shop.duplicates else None for _ in life)
    user = f"user-{int(USERS * dice.random() ** 2)}"  # some come more often than others
    return _Order(f"order-{name}", user, _items(dice), life, times, repeats, late)


def _moment(step: int, dice: random.Random) -> int:
    """When in its slice a step happens: one before another, where two are in the same slice."""
    first = 0 if LAGS.index(LAGS[step]) == step else SLICE_MS // 2
    return first + dice.randrange(SLICE_MS // 2)


def _items(dice: random.Random) -> tuple[OrderItem, ...]:
    numbers = {int(PRODUCTS * dice.random() ** 2) for _ in range(dice.choice((1, 1, 2, 2, 3)))}
    return tuple(
        OrderItem(
            f"P{number:03d}",
            CATEGORIES[number % len(CATEGORIES)],
            dice.choice((1, 1, 1, 2, 3)),
            _price(number),
        )
        for number in sorted(numbers)
    )


def _price(number: int) -> Decimal:
    return Decimal(499 + number * 137 % 19_500) / 100
