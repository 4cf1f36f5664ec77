"""MISTAKE: totals are in a field of the function object.

A field is in no checkpoint. After a failure the totals begin again. Keep them in keyed state: a
``ValueState`` that ``open`` asks for.
"""

from collections import defaultdict
from collections.abc import Iterator

from holdfast.common import Encoder
from holdfast.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from holdfast.datastream.connectors.file_system import FileSink
from holdfast.datastream.connectors.number_seq import NumberSequenceSource


class OrderCount(KeyedProcessFunction):
    """Counts the orders of each customer."""

    def __init__(self) -> None:
        self.counts: defaultdict[int, int] = defaultdict(int)  # the mistake

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        self.counts[value] += 1
        yield f"customer {value} has {self.counts[value]} orders"


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).enable_checkpointing(1000)
    customers = env.from_source(NumberSequenceSource(1, 500)).map(lambda order: order % 7)
    sink = FileSink.for_row_format("broken-output", Encoder.simple_string_encoder())
    customers.key_by(lambda customer: customer).process(OrderCount()).sink_to(sink.build())
    env.execute("state in a field")


if __name__ == "__main__":
    main()
