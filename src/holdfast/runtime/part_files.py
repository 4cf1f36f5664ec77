"""The files of a ``FileSink``: hidden while an epoch runs, named once it is accepted."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from holdfast.datastream.connectors.file_system import FileSink
from holdfast.errors import JobExecutionError
from holdfast.graph.nodes import WriterOperation
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.blocks import Block
from holdfast.runtime.context import Clock
from holdfast.runtime.failures import FailureReporter
from holdfast.runtime.results import ResultBuffer
from holdfast.runtime.routing import Outbox
from holdfast.runtime.staging import StagedFile


class PartFiles(ResultBuffer):
    """Writes the records of one run of a subtask, one file per bucket."""

    def __init__(self, operator: PlannedOperator, subtask: int, clock: Clock) -> None:
        """The files are made with their first record."""
        super().__init__(operator, subtask)
        operation = operator.node.operation
        assert isinstance(operation, WriterOperation)
        self._sink: FileSink = operation.writer
        self._clock = clock
        self._report = FailureReporter(operator.name, subtask)
        self._open: dict[str, tuple[IO[bytes], StagedFile]] = {}
        self._stamp = ""

    def open(self, outbox: Outbox, driver_level: int) -> None:
        """Begin files of this run's own."""
        super().open(outbox, driver_level)
        self._stamp = outbox.stamp
        for file, _ in self._open.values():
            file.close()
        self._open.clear()

    def emit(self, record: Any) -> None:
        """Write a record."""
        try:
            data = self._sink.encoder.encode(record)
            file = self._file(self._sink.buckets.bucket(record, self._clock()))
            file.write(data)
        except Exception as error:
            self._report.at(record, error)

    def finish(self) -> None:
        """Close the files and tell the driver of them."""
        for file, staged in self._open.values():
            file.close()
            self._send(pickle.dumps(staged, 5), staged.records)
        self._open.clear()

    def _file(self, bucket: str) -> IO[bytes]:
        known = self._open.get(bucket)
        if known is None:
            known = self._open[bucket] = self._create(bucket)
        return known[0]

    def _create(self, bucket: str) -> tuple[IO[bytes], StagedFile]:
        folder = Path(self._sink.base_path) / bucket
        folder.mkdir(parents=True, exist_ok=True)
        files = self._sink.files
        name = f"{files.part_prefix}-{self._stamp}{files.part_suffix}"
        path = folder / f".{name}.inprogress"
        return path.open("wb"), StagedFile(str(path), 0, str(folder / name))


def publish(blocks: Iterable[Block]) -> list[Block]:
    """Give the files of an accepted epoch their names; returns the blocks of other writers.

    Raises:
        JobExecutionError: when a file cannot be renamed.
    """
    others = []
    for block in blocks:
        staged: StagedFile = pickle.loads(block.data)
        if staged.final is None:
            others.append(block)
            continue
        try:
            Path(staged.path).rename(staged.final)
        except OSError as error:
            raise JobExecutionError(f"cannot publish {staged.final}: {error}") from error
    return others
