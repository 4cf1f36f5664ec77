"""MISTAKE: a function collects records in a list that is in no checkpoint.

It passes them on ten at a time. Records in the list are counted as processed by the checkpoint, and
are lost with the worker. ``examples/buffering_sink.py`` saves such a list as operator state.
"""

from collections.abc import Iterator

from holdfast.common import Encoder
from holdfast.datastream import FlatMapFunction, StreamExecutionEnvironment
from holdfast.datastream.connectors.file_system import FileSink
from holdfast.datastream.connectors.number_seq import NumberSequenceSource

BATCH = 10


class Batching(FlatMapFunction):
    """Passes records on in batches."""

    def __init__(self) -> None:
        self.waiting: list[int] = []  # the mistake

    def flat_map(self, value: int) -> Iterator[str]:
        self.waiting.append(value)
        if len(self.waiting) == BATCH:
            yield from map("order {}".format, self.waiting)
            self.waiting.clear()


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1).enable_checkpointing(1000)
    sink = FileSink.for_row_format("broken-output", Encoder.simple_string_encoder())
    env.from_source(NumberSequenceSource(1, 500)).flat_map(Batching()).sink_to(sink.build())
    env.execute("buffer is not saved")


if __name__ == "__main__":
    main()
