"""MISTAKE: a source does not save its position.

After a failure its loop begins again at the first record, and all records before the failure come
twice. A source that is a ``CheckpointedFunction`` saves its position with each checkpoint.
"""

from holdfast.common import Encoder
from holdfast.datastream import SourceFunction, StreamExecutionEnvironment
from holdfast.datastream.connectors.file_system import FileSink
from holdfast.datastream.functions import SourceContext

ORDERS = 500


class OrderSource(SourceFunction):
    """Emits the numbers of orders."""

    def __init__(self) -> None:
        self.next = 1  # the mistake: it is in no checkpoint
        self.running = True

    def run(self, ctx: SourceContext) -> None:
        while self.running and self.next <= ORDERS:
            with ctx.get_checkpoint_lock():
                ctx.collect(self.next)
                self.next += 1

    def cancel(self) -> None:
        self.running = False


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).enable_checkpointing(1000)
    sink = FileSink.for_row_format("broken-output", Encoder.simple_string_encoder())
    env.add_source(OrderSource()).map(lambda order: f"order {order}").sink_to(sink.build())
    env.execute("source loses its position")


if __name__ == "__main__":
    main()
