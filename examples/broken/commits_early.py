"""MISTAKE: a sink with transactions commits in ``pre_commit``.

``pre_commit`` comes before the checkpoint is complete. If the job fails in between, it goes back to
the checkpoint before, and the records are written again in another transaction. ``pre_commit``
makes a transaction durable; only ``commit`` makes it visible.
"""

import uuid
from pathlib import Path
from typing import Any

from holdfast.datastream import StreamExecutionEnvironment, TwoPhaseCommitSinkFunction
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.functions import SinkFunction
from holdfast.torture import run_directory


class FileTransactions(TwoPhaseCommitSinkFunction):
    """A transaction is a hidden file, which a commit gives its name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin_transaction(self) -> str:
        return uuid.uuid4().hex

    def invoke(self, transaction: str, value: Any, context: SinkFunction.Context) -> None:
        with self._hidden(transaction).open("a") as file:
            file.write(f"order {value}\n")

    def pre_commit(self, transaction: str) -> None:
        if self._hidden(transaction).exists():
            self._hidden(transaction).rename(self.folder / transaction)  # the mistake

    def commit(self, transaction: str) -> None:
        pass

    def abort(self, transaction: str) -> None:
        self._hidden(transaction).unlink(missing_ok=True)

    def _hidden(self, transaction: str) -> Path:
        return self.folder / f".{transaction}"


def main() -> None:
    folder = run_directory("broken-output").resolve()
    folder.mkdir(exist_ok=True)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).enable_checkpointing(1000)
    env.from_source(NumberSequenceSource(1, 500)).add_sink(FileTransactions(folder))
    env.execute("commits early")


if __name__ == "__main__":
    main()
