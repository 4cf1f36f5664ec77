"""The stock of each product, and a warning when there is little left."""

from collections.abc import Iterator
from typing import Any

from examples.orders.events import LowStock, Record, StockChange, StockLevel
from examples.orders.tallies import Tally, show
from holdfast.datastream import KeyedProcessFunction, OutputTag, RuntimeContext
from holdfast.datastream.functions import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from holdfast.datastream.state import ValueState, ValueStateDescriptor

__all__ = ["INITIAL_STOCK", "LOW", "LOW_STOCK", "Inventory", "Shelf"]

INITIAL_STOCK = 1000
#: below this there is a warning
LOW = 10
#: the warnings
LOW_STOCK = OutputTag("low-stock", LowStock)


class Shelf(Record, frozen=True):
    """How much there is of a product, and how many changes led there."""

    stock: int
    changes: int = 0


class Inventory(KeyedProcessFunction, CheckpointedFunction):
    """By product: gives the stock after each change; warns when it falls below ten, not after.

    It warns again if enough was given back meanwhile.
    """

    def __init__(self, initial_stock: int = INITIAL_STOCK) -> None:
        """Begin with this much of every product."""
        self._full = Shelf(initial_stock)
        self._tally = Tally("low")

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self._tally.initialize_state(context)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self._tally.snapshot_state()

    def open(self, runtime_context: RuntimeContext) -> None:
        self._shelf: ValueState[Shelf] = runtime_context.get_state(
            ValueStateDescriptor("shelf", Shelf)
        )
        show(runtime_context, "stock", ["low"], lambda name: self._tally[name])

    def process_element(
        self, value: StockChange, ctx: KeyedProcessFunction.Context
    ) -> Iterator[Any]:
        before = self._shelf.value() or self._full
        after = Shelf(before.stock + value.change, before.changes + 1)
        self._shelf.update(after)
        yield StockLevel(value.product, after.changes, value.change, after.stock, value.order_id)
        fell, rose = after.stock < LOW <= before.stock, before.stock < LOW <= after.stock
        if fell:
            yield LOW_STOCK, LowStock(value.product, after.changes, after.stock)
        if fell or rose:
            self._tally.add("low", 1 if fell else -1)
