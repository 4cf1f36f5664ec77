"""The keyed count and the word count in columns: the same records, counts and totals.

The variant ``records`` runs the functions of `benchmarks.own.throughput_job`, record by record.
Workload ``growth_columns``: the keyed count with many keys, all of them in the state before what is
measured; the variant is their number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.engines.percentiles import check
from benchmarks.measure import WARM_UP, Measurement, Meter, emit, measured, read_marks
from benchmarks.own.epochs import epoch_marks, holdfast_epochs
from benchmarks.own.jobs import Discard, environment
from benchmarks.own.throughput_job import JOBS
from benchmarks.program import Task, parse_task
from benchmarks.records import KEYS, MULTIPLIER, PRIME, VOCABULARY, WORDS_PER_SENTENCE
from holdfast.datastream import (
    BatchFunction,
    DataStream,
    KeyedBatchFunction,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.functions import RuntimeContext
from holdfast.datastream.state import ColumnStateDescriptor

RECORDS = pa.schema([("user", pa.string()), ("amount", pa.float64()), ("number", pa.int64())])
TOTALS = pa.schema([("user", pa.string()), ("count", pa.int64()), ("total", pa.float64())])
SENTENCES = pa.schema([("sentence", pa.string())])
WORDS = pa.schema([("word", pa.string())])
COUNTS = pa.schema([("word", pa.string()), ("count", pa.int64())])


class CountAndTotal(KeyedBatchFunction):
    """Count and total per user."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get hold of the states."""
        self.count = runtime_context.get_column_state(
            ColumnStateDescriptor("count", pa.int64(), default=0)
        )
        self.total = runtime_context.get_column_state(
            ColumnStateDescriptor("total", pa.float64(), default=0.0)
        )

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        """Add records to their users."""
        return {
            "user": batch["user"],
            "count": self.count.running_count(keys),
            "total": self.total.running_add(keys, batch["amount"]),
        }


class Count(KeyedBatchFunction):
    """Count per word."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get hold of the state."""
        self.count = runtime_context.get_column_state(
            ColumnStateDescriptor("count", pa.int64(), default=0)
        )

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        """Count words."""
        return {"word": batch["word"], "count": self.count.running_count(keys)}


def draws(indices: npt.NDArray[np.int64], choices: int) -> pa.Array:
    """Return the choices of `benchmarks.records.draw`, as texts."""
    numbers = indices * MULTIPLIER % PRIME
    return pa.array(numbers * numbers % PRIME % choices).cast(pa.string())


def named(prefix: str, numbers: pa.Array) -> pa.Array:
    """Return texts of a prefix and a number."""
    return pc.binary_join_element_wise(pa.scalar(prefix), numbers, "")


def make_records(batch: pa.RecordBatch) -> Any:
    """Return the records of `benchmarks.records.record`."""
    indices = batch["value"].to_numpy()
    return records_of(indices, draws(indices, KEYS))


def records_of(indices: npt.NDArray[np.int64], users: pa.Array) -> dict[str, Any]:
    """Return the records of users with these numbers."""
    return {
        "user": named("user-", users),
        "amount": (indices % 1000).astype(np.float64),
        "number": indices,
    }


def bootstrapped(keys: int) -> Callable[[pa.RecordBatch], Any]:
    """Return what makes the records of `benchmarks.records.bootstrapped`."""

    def make(batch: pa.RecordBatch) -> Any:
        indices = batch["value"].to_numpy()
        drawn = draws(indices, keys)
        first = pa.array(indices).cast(pa.string())
        return records_of(indices, pc.if_else(pa.array(indices < keys), first, drawn))

    return make


def make_sentences(batch: pa.RecordBatch) -> Any:
    """Return the sentences of `benchmarks.records.sentence`."""
    first = batch["value"].to_numpy() * WORDS_PER_SENTENCE
    words = [named("word", draws(first + at, VOCABULARY)) for at in range(WORDS_PER_SENTENCE)]
    return {"sentence": pc.binary_join_element_wise(*words, " ")}


def split(batch: pa.RecordBatch) -> Any:
    """Return the words of sentences."""
    return {"word": pc.list_flatten(pc.ascii_split_whitespace(batch["sentence"]))}


def numbers(env: StreamExecutionEnvironment, count: int) -> DataStream:
    """Return the stream of 0 to ``count - 1``, in batches."""
    return env.from_source(NumberSequenceSource(0, count - 1).in_batches(), None, "numbers")


def keyed_count(env: StreamExecutionEnvironment, count: int) -> DataStream:
    """Count and total per user, one output per record."""
    records = numbers(env, count).map_batches(make_records, RECORDS)
    return records.key_by("user").process_batches(CountAndTotal(), TOTALS)


def word_count(env: StreamExecutionEnvironment, count: int) -> DataStream:
    """Count words; a record is a word."""
    sentences = numbers(env, count // WORDS_PER_SENTENCE).map_batches(make_sentences, SENTENCES)
    return sentences.map_batches(split, WORDS).key_by("word").process_batches(Count(), COUNTS)


COLUMNS: dict[str, Callable[[StreamExecutionEnvironment, int], DataStream]] = {
    "keyed_count": keyed_count,
    "word_count": word_count,
}


class Tally(BatchFunction):
    """Counts the rows that arrive and throws them away."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def open(self, runtime_context: RuntimeContext) -> None:
        """Open the meter."""
        self._meter = Meter(self._directory)

    def map_batch(self, batch: pa.RecordBatch) -> None:
        """Count a batch."""
        self._meter.add(batch.num_rows)

    def close(self) -> None:
        """Count the last ones."""
        self._meter.close()


def finish(counted: DataStream, task: Task) -> None:
    """Give a stream of batches its sink."""
    counted.map_batches(Tally(task.directory), WORDS).add_sink(Discard())


def throughput(task: Task) -> Measurement:
    """Run a workload in columns, or record by record."""
    name = task.workload.removesuffix("_columns")
    by_record, per_record = JOBS[name]
    count = task.records // WORDS_PER_SENTENCE * WORDS_PER_SENTENCE
    env = environment(task)
    if task.variant == "records":
        by_record(env, count)
    else:
        finish(COLUMNS[name](env, count), task)
    client = env.execute_async(task.workload)
    client.get_job_execution_result().result()
    if task.variant != "records":
        check("the number of results", read_marks(task.directory)[-1][1], float(count))
    return measured(epoch_marks(holdfast_epochs(client), per_record))


def growth(task: Task) -> Measurement:
    """Run the keyed count after every key had a record."""
    keys = min(int(task.variant), 10 * task.records)
    env = environment(task)
    env.enable_checkpointing(1000 * task.checkpoint)
    records = numbers(env, keys + task.records).map_batches(bootstrapped(keys), RECORDS)
    finish(records.key_by("user").process_batches(CountAndTotal(), TOTALS), task)
    env.execute(task.workload)
    marks = read_marks(task.directory)
    check("the number of results", marks[-1][1], float(keys + task.records))
    return measured(marks, warm_up=keys + task.records * WARM_UP)


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    emit(growth(task) if task.workload == "growth_columns" else throughput(task))


if __name__ == "__main__":
    main()
