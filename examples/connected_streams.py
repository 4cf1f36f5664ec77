"""Orders and their payments: two streams that meet in one keyed function.

Whichever of the two comes first waits in state for the other one, and a timer ends the waiting.
What stays alone goes to a side output. Prints

    order 1 (30.0) is paid
    order 2 (12.5) is paid
    order 3 is not paid
    order 5: 25.0 ordered, 20.0 paid
    there is no order 4, and 7.5 paid for it
    every order and every payment is told of once
"""

from collections.abc import Iterator

from holdfast.common import Types, WatermarkStrategy
from holdfast.datastream import (
    KeyedCoProcessFunction,
    OutputTag,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.state import ValueStateDescriptor

#: number, time in milliseconds, amount
Booking = tuple[int, int, float]

ORDERS: list[Booking] = [(1, 1_000, 30.0), (2, 2_000, 12.5), (3, 4_000, 99.0), (5, 6_000, 25.0)]
PAYMENTS: list[Booking] = [(2, 2_500, 12.5), (1, 3_000, 30.0), (4, 5_000, 7.5), (5, 7_000, 20.0)]
PATIENCE = 10_000
ALONE = OutputTag("alone", Types.STRING())


class Settle(KeyedCoProcessFunction):
    """Brings an order and its payment together."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.ordered = runtime_context.get_state(ValueStateDescriptor("ordered", Types.DOUBLE()))
        self.paid = runtime_context.get_state(ValueStateDescriptor("paid", Types.DOUBLE()))

    def process_element1(
        self, value: Booking, ctx: KeyedCoProcessFunction.Context
    ) -> Iterator[str]:
        self.ordered.update(value[2])
        yield from self.settle(value, ctx)

    def process_element2(
        self, value: Booking, ctx: KeyedCoProcessFunction.Context
    ) -> Iterator[str]:
        self.paid.update(value[2])
        yield from self.settle(value, ctx)

    def settle(self, value: Booking, ctx: KeyedCoProcessFunction.Context) -> Iterator[str]:
        ordered, paid = self.ordered.value(), self.paid.value()
        if ordered is None or paid is None:
            ctx.timer_service().register_event_time_timer(value[1] + PATIENCE)
            return
        self.ordered.clear()
        self.paid.clear()
        if ordered == paid:
            yield f"order {value[0]} ({ordered}) is paid"
        else:
            yield f"order {value[0]}: {ordered} ordered, {paid} paid"

    def on_timer(
        self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext
    ) -> Iterator[tuple[OutputTag, str]]:
        number, paid = ctx.get_current_key(), self.paid.value()
        if self.ordered.value() is not None:
            yield ALONE, f"order {number} is not paid"
        if paid is not None:
            yield ALONE, f"there is no order {number}, and {paid} paid for it"
        self.ordered.clear()
        self.paid.clear()


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda booking, _: booking[1]
    )
    orders = env.from_collection(ORDERS).assign_timestamps_and_watermarks(strategy)
    payments = env.from_collection(PAYMENTS).assign_timestamps_and_watermarks(strategy)
    settled = (
        orders.connect(payments)
        .key_by(lambda order: order[0], lambda payment: payment[0])
        .process(Settle(), Types.STRING())
        .set_parallelism(2)
    )
    alone = settled.get_side_output(ALONE)
    with settled.union(alone).execute_and_collect("connected streams") as results:
        lines = sorted(results, key=lambda line: (not line.startswith("order"), line))
    for line in lines:
        print(line)
    assert len(lines) == len({number for number, _, _ in ORDERS + PAYMENTS})
    assert sum("is paid" in line for line in lines) == len(
        {(number, amount) for number, _, amount in ORDERS}
        & {(number, amount) for number, _, amount in PAYMENTS}
    )
    print("every order and every payment is told of once")


if __name__ == "__main__":
    main()
