"""Purchases per customer and hour, and a side output for what comes too late.

The records carry their own time and come a little out of order; a watermark says how far time is.
Three things are done with the same stream:

- per customer and hour, an aggregate keeps a count and a sum, and a process function that is given
  only their result adds which customer and hour they are of;
- of the whole shop, the largest purchase of each half hour (`window_all`, in one subtask);
- every second purchase of a customer, the last three of them (a global window, a count trigger and
  an evictor, which PyFlink has not).

Prints, among others:

    ann, 09:00 to 10:00: 3 purchases, 45.00 in all
    ann, 10:00 to 11:00: 1 purchases, 8.00 in all
    bob, 09:00 to 10:00: 2 purchases, 52.00 in all
    largest> 09:00 bob bought for 12.00 at 09:20
    last> ann: 20.00, 15.00, 8.00
    too late> ann bought for 5.00 at 08:10

A record is too late if the watermark had passed the end of its window when it came. Watermarks move
between epochs, so this program says where an epoch ends; a real source need not.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from holdfast.common import Duration, Time, WatermarkStrategy
from holdfast.common.watermark_strategy import TimestampAssigner
from holdfast.datastream import (
    AggregateFunction,
    OutputTag,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    TimeWindow,
    WindowFunction,
)
from holdfast.datastream.functions import AllWindowFunction
from holdfast.datastream.window import (
    CountEvictor,
    CountTrigger,
    GlobalWindow,
    GlobalWindows,
    TumblingEventTimeWindows,
)
from holdfast.testing import EndOfEpoch, ScriptedSource


class Purchase(NamedTuple):
    """Somebody bought something, at a time of day in minutes."""

    customer: str
    minute: int
    amount: float

    def __str__(self) -> str:
        return f"{self.customer} bought for {self.amount:.2f} at {clock(self.minute)}"


PURCHASES = [
    Purchase("ann", 545, 10.0),
    Purchase("bob", 560, 12.0),
    Purchase("ann", 590, 20.0),
    Purchase("ann", 575, 15.0),  # out of order, but in time
    Purchase("bob", 599, 40.0),
    Purchase("ann", 610, 8.0),
    EndOfEpoch(),
    Purchase("ann", 490, 5.0),  # two hours late
]
TOO_LATE = OutputTag("too-late")


def clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


class PurchaseTime(TimestampAssigner):
    """The time of a purchase in milliseconds."""

    def extract_timestamp(self, value: Purchase, record_timestamp: int) -> int:
        return value.minute * 60_000


class Total(AggregateFunction):
    """How many, and how much: all that is kept of a window."""

    def create_accumulator(self) -> tuple[int, float]:
        return 0, 0.0

    def add(self, value: Purchase, accumulator: tuple[int, float]) -> tuple[int, float]:
        return accumulator[0] + 1, accumulator[1] + value.amount

    def get_result(self, accumulator: tuple[int, float]) -> tuple[int, float]:
        return accumulator

    def merge(self, acc_a: tuple[int, float], acc_b: tuple[int, float]) -> tuple[int, float]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class PerHour(ProcessWindowFunction[tuple[int, float], str, str, TimeWindow]):
    """Adds to the total of a window whose it is."""

    def process(
        self,
        key: str,
        context: ProcessWindowFunction.Context[TimeWindow],
        elements: Iterable[tuple[int, float]],
    ) -> Iterator[str]:
        window = context.window()
        hours = f"{clock(window.start // 60_000)} to {clock(window.end // 60_000)}"
        for count, total in elements:
            yield f"{key}, {hours}: {count} purchases, {total:.2f} in all"


class Largest(AllWindowFunction[Purchase, str, TimeWindow]):
    """Says of which half hour a purchase was the largest."""

    def apply(self, window: TimeWindow, inputs: Iterable[Purchase]) -> list[str]:
        return [f"{clock(window.start // 60_000)} {purchase}" for purchase in inputs]


class LastOnes(WindowFunction[Purchase, str, str, GlobalWindow]):
    """Lists the amounts."""

    def apply(self, key: str, window: GlobalWindow, inputs: Iterable[Purchase]) -> list[str]:
        return [f"{key}: {', '.join(f'{purchase.amount:.2f}' for purchase in inputs)}"]


def larger(one: Purchase, other: Purchase) -> Purchase:
    return max(one, other, key=lambda purchase: purchase.amount)


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_minutes(20))
    strategy = strategy.with_timestamp_assigner(PurchaseTime())
    purchases = env.from_source(ScriptedSource(PURCHASES), strategy, "purchases")
    by_customer = purchases.key_by(lambda purchase: purchase.customer)

    totals = (
        by_customer.window(TumblingEventTimeWindows.of(Time.hours(1)))
        .side_output_late_data(TOO_LATE)
        .aggregate(Total(), PerHour())
    )
    totals.print()
    totals.get_side_output(TOO_LATE).print("too late")

    half_hours = purchases.window_all(TumblingEventTimeWindows.of(Time.minutes(30)))
    half_hours.reduce(larger, Largest()).print("largest")

    windows = by_customer.window(GlobalWindows.create()).trigger(CountTrigger.of(2))
    windows.evictor(CountEvictor.of(3)).apply(LastOnes()).print("last")
    env.execute("windows")


if __name__ == "__main__":
    main()
