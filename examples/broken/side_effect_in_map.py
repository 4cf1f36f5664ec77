"""MISTAKE: a map function has an effect outside of the job.

It sends a mail for every large order (here it writes a line to an outbox). Records since the last
checkpoint are processed again after a failure, and so is the effect. Give the mails to a sink that
is idempotent or transactional.
"""

import os
from pathlib import Path

from holdfast.common import Encoder
from holdfast.datastream import MapFunction, StreamExecutionEnvironment
from holdfast.datastream.connectors.file_system import FileSink
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.torture import run_directory


class PriceAndMail(MapFunction):
    """Adds the price to an order, and sends a mail about large ones."""

    def __init__(self, outbox: Path) -> None:
        self.outbox = outbox

    def map(self, value: int) -> str:
        price = value % 97
        if price > 20:
            with (self.outbox / str(os.getpid())).open("a") as file:
                file.write(f"order {value} is large\n")  # the mistake: it is done again
        return f"{value},{price}"


def main() -> None:
    outbox = run_directory("broken-output").resolve() / "outbox"
    outbox.mkdir(parents=True, exist_ok=True)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).enable_checkpointing(1000)
    orders = env.from_source(NumberSequenceSource(1, 500)).map(PriceAndMail(outbox))
    sink = FileSink.for_row_format("broken-output/orders", Encoder.simple_string_encoder())
    orders.sink_to(sink.build())
    env.execute("side effect in map")


if __name__ == "__main__":
    main()
