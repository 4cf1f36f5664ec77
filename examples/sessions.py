"""Sessions of visitors of a web site, and what a late click does to them.

A session of a visitor ends when no click has come for ten minutes. A click that arrives late may
make a session longer that was given already, or two sessions one; then the new one is given again,
because windows are kept for an hour after their end.

    ann, 09:00 to 09:14: home, shoes
    ann, 09:20 to 09:30: cart
    bob, 09:01 to 09:11: home
    ann, 09:00 to 09:30: home, shoes, cart, size 42
    ann, 09:40 to 10:10: pay
    ann, 10:30 to 10:40: home

The click on "size 42" at 09:13 came after both sessions it belongs to had ended: it brings them
together. And the visitor who pays is given half an hour: the gap may depend on the click.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from holdfast.common import Duration, WatermarkStrategy
from holdfast.common.watermark_strategy import TimestampAssigner
from holdfast.datastream import ProcessWindowFunction, StreamExecutionEnvironment, TimeWindow
from holdfast.datastream.window import EventTimeSessionWindows, SessionWindowTimeGapExtractor
from holdfast.testing import EndOfEpoch, ScriptedSource

MINUTE = 60_000


class Click(NamedTuple):
    """A visitor looks at a page, at a time of day in minutes."""

    visitor: str
    minute: int
    page: str


CLICKS = [
    Click("ann", 540, "home"),
    Click("bob", 541, "home"),
    Click("ann", 544, "shoes"),
    Click("ann", 560, "cart"),
    Click("ann", 580, "pay"),
    EndOfEpoch(),  # time is at 09:40 now, and the first three sessions are given
    Click("ann", 553, "size 42"),
    Click("ann", 630, "home"),
]


class ClickTime(TimestampAssigner):
    """The time of a click in milliseconds."""

    def extract_timestamp(self, value: Click, record_timestamp: int) -> int:
        return value.minute * MINUTE


class Patience(SessionWindowTimeGapExtractor):
    """Who pays has to look for a card."""

    def extract(self, element: Click) -> int:
        return (30 if element.page == "pay" else 10) * MINUTE


class Describe(ProcessWindowFunction[Click, str, str, TimeWindow]):
    """Says who looked at what, and when."""

    def process(
        self,
        key: str,
        context: ProcessWindowFunction.Context[TimeWindow],
        elements: Iterable[Click],
    ) -> Iterator[str]:
        window = context.window()
        pages = ", ".join(click.page for click in elements)
        yield f"{key}, {clock(window.start)} to {clock(window.end)}: {pages}"


def clock(timestamp: int) -> str:
    minutes = timestamp // MINUTE
    return f"{minutes // 60:02}:{minutes % 60:02}"


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    strategy = strategy.with_timestamp_assigner(ClickTime())
    clicks = env.from_source(ScriptedSource(CLICKS), strategy, "clicks")
    sessions = clicks.key_by(lambda click: click.visitor).window(
        EventTimeSessionWindows.with_dynamic_gap(Patience())
    )
    sessions.allowed_lateness(Duration.of_hours(1)).process(Describe()).print()
    env.execute("sessions")


if __name__ == "__main__":
    main()
