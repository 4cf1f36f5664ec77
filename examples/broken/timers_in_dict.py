"""MISTAKE: deadlines are in a dict instead of timers.

An order is confirmed when a later one is five ahead. Which orders wait is known to a field only:
after a failure nobody waits for them any more, and they are never confirmed. Register a timer, and
keep what it needs in keyed state.
"""

from collections.abc import Iterator

from holdfast.common import Encoder
from holdfast.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from holdfast.datastream.connectors.file_system import FileSink
from holdfast.datastream.connectors.number_seq import NumberSequenceSource

LATER = 5


class Confirm(KeyedProcessFunction):
    """Confirms orders that are old enough."""

    def __init__(self) -> None:
        #: by shop: how many orders came, and at which count each waiting order is due
        self.clock: dict[int, int] = {}
        self.due: dict[int, dict[int, int]] = {}  # the mistake

    def process_element(
        self, value: tuple[int, int], ctx: KeyedProcessFunction.Context
    ) -> Iterator[str]:
        shop, order = value
        now = self.clock[shop] = self.clock.get(shop, 0) + 1
        waiting = self.due.setdefault(shop, {})
        waiting[order] = now + LATER
        for ready in [known for known, due in waiting.items() if due <= now]:
            del waiting[ready]
            yield f"order {ready} of shop {shop} is confirmed"


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1).enable_checkpointing(1000)
    orders = env.from_source(NumberSequenceSource(1, 500)).map(lambda order: (order % 3, order))
    sink = FileSink.for_row_format("broken-output", Encoder.simple_string_encoder())
    orders.key_by(lambda order: order[0]).process(Confirm()).sink_to(sink.build())
    env.execute("timers in a dict")


if __name__ == "__main__":
    main()
