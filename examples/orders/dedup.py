"""Lets each event of an order through once, however often it is delivered."""

from collections.abc import Iterator

from examples.orders.events import OrderEvent
from examples.orders.tallies import Tally, show
from holdfast.common import Duration, Types
from holdfast.datastream import KeyedProcessFunction, RuntimeContext
from holdfast.datastream.functions import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from holdfast.datastream.state import MapState, MapStateDescriptor, StateTtlConfig

__all__ = ["Deduplication"]


class Deduplication(KeyedProcessFunction, CheckpointedFunction):
    """By order: remembers the events that it has seen, for as long as they may come again.

    Remembering orders instead of events, as the textbook does, would drop the rest of an order's
    life after its first event.
    """

    def __init__(self, memory: Duration) -> None:
        """Forget an event after this time; it would be let through again then."""
        self._ttl = StateTtlConfig.new_builder(memory).build()
        self._tally = Tally("duplicates")

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self._tally.initialize_state(context)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self._tally.snapshot_state()

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = MapStateDescriptor("seen", Types.STRING(), Types.BOOLEAN())
        descriptor.enable_time_to_live(self._ttl)
        self._seen: MapState[str, bool] = runtime_context.get_map_state(descriptor)
        show(runtime_context, "events", ["duplicates"], lambda name: self._tally[name])

    def process_element(
        self, value: OrderEvent, ctx: KeyedProcessFunction.Context
    ) -> Iterator[OrderEvent]:
        if value.event_id in self._seen:
            self._tally.add("duplicates", 1)
        else:
            self._seen[value.event_id] = True
            yield value
