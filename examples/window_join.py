"""Advertisements that are shown, and clicks on them, brought together minute by minute.

A join gives each pair of a view and a click that have one key in one minute: the same advertisement
and visitor. A co-group is given both sides as they are, of which one may be empty: so it can count,
and see views without a click. PyFlink has neither of the two.

    join> ann clicked on boots after 4 s
    join> bob clicked on boots after 11 s
    rate> 09:00 boots: 2 clicks, 3 views
    rate> 09:00 kettles: 0 clicks, 1 views
    rate> 09:01 boots: 1 clicks, 1 views

The click of eve at 09:01:05 finds nothing to be joined with: its view was in the minute before.
What belongs together by its distance in time, whatever minute it is in, needs an interval join.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from holdfast.common import Time, WatermarkStrategy
from holdfast.datastream import (
    CoGroupFunction,
    DataStream,
    JoinFunction,
    StreamExecutionEnvironment,
)
from holdfast.datastream.window import TumblingEventTimeWindows

NINE = 9 * 3600


class Seen(NamedTuple):
    """An advertisement is shown to somebody, or clicked on, so many seconds after nine."""

    advertisement: str
    visitor: str
    second: int


VIEWS = [
    Seen("boots", "ann", 3),
    Seen("kettles", "ann", 8),
    Seen("boots", "bob", 20),
    Seen("boots", "eve", 50),
    Seen("boots", "bob", 70),
]
CLICKS = [Seen("boots", "ann", 7), Seen("boots", "bob", 31), Seen("boots", "eve", 65)]


class Clicked(JoinFunction[Seen, Seen, str]):
    """How long it took."""

    def join(self, first: Seen, second: Seen) -> str:
        seconds = second.second - first.second
        return f"{first.visitor} clicked on {first.advertisement} after {seconds} s"


class Rate(CoGroupFunction[Seen, Seen, str]):
    """How many views, and how many clicks."""

    def co_group(self, first: Iterable[Seen], second: Iterable[Seen]) -> Iterator[str]:
        views, clicks = list(first), list(second)
        one = (views or clicks)[0]
        minute = (NINE + one.second) // 60
        time = f"{minute // 60:02}:{minute % 60:02}"
        yield f"{time} {one.advertisement}: {len(clicks)} clicks, {len(views)} views"


def by_time(stream: DataStream) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda seen, _: (NINE + seen.second) * 1000
    )
    return stream.assign_timestamps_and_watermarks(strategy)


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    views, clicks = by_time(env.from_collection(VIEWS)), by_time(env.from_collection(CLICKS))
    minutes = TumblingEventTimeWindows.of(Time.minutes(1))

    (
        views.join(clicks)
        .where(lambda view: (view.advertisement, view.visitor))
        .equal_to(lambda click: (click.advertisement, click.visitor))
        .window(minutes)
        .apply(Clicked())
        .print("join")
    )
    (
        views.co_group(clicks)
        .where(lambda view: view.advertisement)
        .equal_to(lambda click: click.advertisement)
        .window(minutes)
        .apply(Rate())
        .print("rate")
    )
    env.execute("window join")


if __name__ == "__main__":
    main()
