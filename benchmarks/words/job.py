"""Holdfast's word count from files, in columns; the variant is empty, or ``no-checkpoints``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from benchmarks.engines.percentiles import new_file
from benchmarks.measure import Meter, emit, read_marks
from benchmarks.own.jobs import Discard, environment
from benchmarks.program import Task, parse_task
from benchmarks.words.data import Totals, checked, make
from holdfast.datastream import (
    BatchFunction,
    BatchTypeInfo,
    DataStream,
    KeyedBatchFunction,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.file_system import FileSource
from holdfast.datastream.formats.bulk import BulkFormat, BulkReader
from holdfast.datastream.functions import RuntimeContext
from holdfast.datastream.state import ColumnStateDescriptor

WORDS = pa.schema([("word", pa.string())])
COUNTS = pa.schema([("word", pa.string()), ("old", pa.int64()), ("new", pa.int64())])
_TOTALS = "totals"


class Lines(BulkFormat):
    """Text files as batches with one column: a line, without its line break."""

    batch_type = BatchTypeInfo(WORDS)

    def open(self, stream: BinaryIO) -> BulkReader:
        """Return a reader."""
        return _LinesReader(stream)


class _LinesReader(BulkReader):
    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def read(self, start: int) -> Iterator[Sequence[Any]]:
        parsed = csv.read_csv(
            self._stream,
            csv.ReadOptions(column_names=["word"], use_threads=False),
            csv.ParseOptions(quote_char=False),
            csv.ConvertOptions(column_types={"word": pa.string()}),
        )
        maker = Lines.batch_type.maker()
        for batch in parsed.slice(start).combine_chunks().to_batches():
            yield maker.records(batch)


class Count(KeyedBatchFunction):
    """Counts words; emits the old and the new count of each word of a batch."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get hold of the state."""
        count = ColumnStateDescriptor("count", pa.int64(), default=0)
        self.count = runtime_context.get_column_state(count)

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        """Count the words of a batch."""
        old = self.count.get_distinct(keys)
        self.count.count(keys)
        return {"word": keys.distinct, "old": old, "new": self.count.get_distinct(keys)}


class Tally(BatchFunction):
    """Adds up what the changes of the counts come to, and throws them away."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def open(self, runtime_context: RuntimeContext) -> None:
        """Begin with nothing."""
        self._meter = Meter(self._directory)
        self._squares = self._words = 0

    def map_batch(self, batch: pa.RecordBatch) -> None:
        """Add a batch of changes."""
        old, new = batch["old"], batch["new"]
        words = pc.sum(pc.subtract(new, old)).as_py() or 0
        squares = pc.subtract(pc.multiply(new, new), pc.multiply(old, old))
        self._squares += pc.sum(squares).as_py() or 0
        self._words += words
        self._meter.add(words)

    def close(self) -> None:
        """Write the totals of this subtask."""
        self._meter.close()
        totals = json.dumps(Totals(self._words, self._squares))
        new_file(self._directory, _TOTALS).write_text(totals, "utf-8")


def counted(env: StreamExecutionEnvironment, files: str) -> DataStream:
    """Return the changes of the counts."""
    source = FileSource.for_bulk_file_format(Lines(), files).build()
    words = env.from_source(source, None, "words")
    return words.key_by("word").process_batches(Count(), COUNTS)


def totals_in(directory: str) -> Totals:
    """Return what all subtasks counted."""
    texts = [path.read_text("utf-8") for path in Path(directory).glob(f"*.{_TOTALS}")]
    found = [json.loads(text) for text in texts]
    return Totals(sum(words for words, _ in found), sum(squares for _, squares in found))


def run(task: Task, files: str) -> None:
    """Run the job to its end."""
    env = environment(task)
    if task.variant != "no-checkpoints":
        env.enable_checkpointing(1000 * task.checkpoint)
    counted(env, files).map_batches(Tally(task.directory), WORDS).add_sink(Discard())
    env.execute(task.workload)


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    words = make(task.records)
    run(task, str(words.directory))
    emit(checked(totals_in(task.directory), words.expected, read_marks(task.directory)))


if __name__ == "__main__":
    main()
