"""MISTAKE: counts are in a global variable.

A global variable belongs to one process, and to no checkpoint. When the worker dies, the counts
begin again. Keep them in keyed state, as ``examples/count_per_key.py`` does.
"""

from collections import Counter

from holdfast.common import Encoder
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.file_system import FileSink
from holdfast.datastream.connectors.number_seq import NumberSequenceSource

COUNTS: Counter[int] = Counter()  # the mistake


def count(customer: int) -> str:
    """Count the orders of a customer."""
    COUNTS[customer] += 1
    return f"customer {customer} has {COUNTS[customer]} orders"


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).enable_checkpointing(1000)
    customers = env.from_source(NumberSequenceSource(1, 500)).map(lambda order: order % 7)
    sink = FileSink.for_row_format("broken-output", Encoder.simple_string_encoder())
    customers.key_by(lambda customer: customer).map(count).sink_to(sink.build())
    env.execute("state in a global variable")


if __name__ == "__main__":
    main()
