"""MISTAKE: a source emits records and moves its position in two steps.

It reads pages of records, and moves its position after the last record of a page. A checkpoint in
between has the records in the state behind the source, and the old position in the source: after a
failure the page comes again. Emit a record and move the position under the checkpoint lock.
"""

from holdfast.common import Encoder
from holdfast.datastream import SourceFunction, StreamExecutionEnvironment
from holdfast.datastream.connectors.file_system import FileSink
from holdfast.datastream.functions import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    SourceContext,
)
from holdfast.datastream.state import ListStateDescriptor

ORDERS = 500
PAGE = 50


class PagedSource(SourceFunction, CheckpointedFunction):
    """Emits the numbers of orders, page by page."""

    def __init__(self) -> None:
        self.next = 1
        self.running = True

    def run(self, ctx: SourceContext) -> None:
        while self.running and self.next <= ORDERS:
            for number in range(self.next, self.next + PAGE):
                if self.running:
                    ctx.collect(number)
            self.next += PAGE  # the mistake: a checkpoint may have come before

    def cancel(self) -> None:
        self.running = False

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("next", int))
        self.next = max([self.next, *self.state.get()])

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update([self.next])


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).enable_checkpointing(1000)
    sink = FileSink.for_row_format("broken-output", Encoder.simple_string_encoder())
    env.add_source(PagedSource()).map(lambda order: f"order {order}").sink_to(sink.build())
    env.execute("position moves late")


if __name__ == "__main__":
    main()
