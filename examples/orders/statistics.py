"""What each user ordered in each hour."""

from collections.abc import Iterable, Iterator
from decimal import ROUND_HALF_EVEN, Decimal

from examples.orders.events import OrderEvent, PurchaseStatistics, Record
from holdfast.datastream import AggregateFunction, OutputTag, ProcessWindowFunction, TimeWindow

__all__ = ["LATE", "PerUserAndHour", "Purchases", "SumPurchases"]

#: orders that came when the statistics of their hour had been given out
LATE = OutputTag("late", OrderEvent)

_CENT = Decimal("0.01")


class Purchases(Record, frozen=True):
    """All that is kept of an hour of a user."""

    orders: int
    total: Decimal
    items: int
    categories: dict[str, int]


class SumPurchases(AggregateFunction):
    """Adds up orders as they come."""

    def create_accumulator(self) -> Purchases:
        return Purchases(0, Decimal(0), 0, {})

    def add(self, value: OrderEvent, accumulator: Purchases) -> Purchases:
        categories = dict(accumulator.categories)
        for item in value.items:
            categories[item.category] = categories.get(item.category, 0) + item.quantity
        return Purchases(
            accumulator.orders + 1,
            accumulator.total + value.total,
            accumulator.items + value.pieces,
            categories,
        )

    def get_result(self, accumulator: Purchases) -> Purchases:
        return accumulator

    def merge(self, acc_a: Purchases, acc_b: Purchases) -> Purchases:
        categories = dict(acc_a.categories)
        for category, pieces in acc_b.categories.items():
            categories[category] = categories.get(category, 0) + pieces
        return Purchases(
            acc_a.orders + acc_b.orders,
            acc_a.total + acc_b.total,
            acc_a.items + acc_b.items,
            categories,
        )


class PerUserAndHour(ProcessWindowFunction[Purchases, PurchaseStatistics, str, TimeWindow]):
    """Adds to the sums whose they are, of which hour, and the average."""

    def process(
        self,
        key: str,
        context: ProcessWindowFunction.Context[TimeWindow],
        elements: Iterable[Purchases],
    ) -> Iterator[PurchaseStatistics]:
        window = context.window()
        for sums in elements:
            average = (sums.total / sums.orders).quantize(_CENT, ROUND_HALF_EVEN)
            yield PurchaseStatistics(
                key,
                window.start,
                window.end,
                sums.orders,
                sums.total,
                average,
                sums.items,
                sums.categories,
            )
