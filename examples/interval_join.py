"""Which clicks led to an order: an interval join of two streams, by user and by time.

An order is joined with the clicks of its user in the ten minutes before it; one from exactly ten
minutes before counts no more. Clicks and orders wait in state until nothing can join them, and each
pair has the later of its two timestamps, so windows and timers may follow. Prints

    ann: outdoor at minute 5 led to a tent at minute 12
    ann: sale at minute 11 led to a tent at minute 12
    ann: sale at minute 11 led to a stove at minute 15
    ben: home at minute 20 led to a lamp at minute 20
    the same pairs as a nested loop over all clicks and orders
"""

from collections.abc import Iterator

from holdfast.common import Time, WatermarkStrategy
from holdfast.datastream import DataStream, ProcessJoinFunction, StreamExecutionEnvironment

#: user, minute, what
Event = tuple[str, int, str]

MINUTE = 60_000
CLICKS: list[Event] = [
    ("ann", 5, "outdoor"),
    ("ben", 1, "home"),
    ("ann", 11, "sale"),
    ("ben", 20, "home"),
    ("ann", 16, "help"),
]
ORDERS: list[Event] = [("ann", 12, "a tent"), ("ann", 15, "a stove"), ("ben", 20, "a lamp")]


class LedTo(ProcessJoinFunction[Event, Event, str]):
    """A line for each pair."""

    def process_element(
        self, left: Event, right: Event, ctx: ProcessJoinFunction.Context
    ) -> Iterator[str]:
        clicked = ctx.get_left_timestamp() // MINUTE
        ordered = ctx.get_right_timestamp() // MINUTE
        yield f"{left[0]}: {left[2]} at minute {clicked} led to {right[2]} at minute {ordered}"


def nested_loop() -> list[str]:
    return [
        f"{user}: {page} at minute {clicked} led to {thing} at minute {ordered}"
        for who, ordered, thing in ORDERS
        for user, clicked, page in CLICKS
        if user == who and clicked <= ordered < clicked + 10
    ]


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Time.minutes(20))

    def stream(events: list[Event]) -> DataStream:
        return env.from_collection(events).assign_timestamps_and_watermarks(
            strategy.with_timestamp_assigner(lambda event, _: event[1] * MINUTE)
        )

    clicks, orders = stream(CLICKS), stream(ORDERS)
    pairs = (
        clicks.key_by(lambda click: click[0])
        .interval_join(orders.key_by(lambda order: order[0]))
        .between(Time.minutes(0), Time.minutes(10))
        .upper_bound_exclusive()
        .process(LedTo())
        .set_parallelism(2)
    )
    with pairs.execute_and_collect("interval join") as results:
        found = sorted(results, key=nested_loop().index)
    for line in found:
        print(line)
    assert found == nested_loop()
    print("the same pairs as a nested loop over all clicks and orders")


if __name__ == "__main__":
    main()
