"""MISTAKE: what was seen before is remembered in a set.

The shop sends every order twice, the second time a while later. The set is in no checkpoint: after
a failure the second copies are taken for new orders. Keep it in keyed state, with a TTL, as the
order system in ``examples/orders/dedup.py`` does.
"""

from collections.abc import Iterator

from holdfast.common import Encoder
from holdfast.datastream import FlatMapFunction, StreamExecutionEnvironment
from holdfast.datastream.connectors.file_system import FileSink
from holdfast.datastream.connectors.number_seq import NumberSequenceSource

AGAIN = 60


class Deduplicate(FlatMapFunction):
    """Passes on the first copy of an order."""

    def __init__(self) -> None:
        self.seen: set[int] = set()  # the mistake

    def flat_map(self, value: int) -> Iterator[str]:
        if value not in self.seen:
            self.seen.add(value)
            yield f"order {value}"


def copies(number: int) -> list[int]:
    """An order, and the second copy of an earlier one."""
    return [number] if number <= AGAIN else [number, number - AGAIN]


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1).enable_checkpointing(1000)
    orders = env.from_source(NumberSequenceSource(1, 500)).flat_map(copies)
    sink = FileSink.for_row_format("broken-output", Encoder.simple_string_encoder())
    orders.flat_map(Deduplicate()).sink_to(sink.build())
    env.execute("dedup in memory")


if __name__ == "__main__":
    main()
