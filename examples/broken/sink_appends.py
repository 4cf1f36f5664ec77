"""MISTAKE: a sink appends each record to a file at once.

After a failure the job goes back to its last checkpoint, and the records since then are written
again. Write under a key, so that writing again changes nothing, or use a
``TwoPhaseCommitSinkFunction``, or a ``FileSink``.
"""

from pathlib import Path
from typing import Any

from holdfast.datastream import SinkFunction, StreamExecutionEnvironment
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.torture import run_directory


class AppendingSink(SinkFunction):
    """Appends the records of a subtask to a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, runtime_context: Any) -> None:
        self.path = self.folder / f"orders-{runtime_context.get_index_of_this_subtask()}"

    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        with self.path.open("a") as file:
            file.write(f"{value}\n")  # the mistake: nothing takes it back


def main() -> None:
    folder = run_directory("broken-output").resolve()
    folder.mkdir(exist_ok=True)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).enable_checkpointing(1000)
    env.from_source(NumberSequenceSource(1, 500)).add_sink(AppendingSink(folder))
    env.execute("sink appends")


if __name__ == "__main__":
    main()
