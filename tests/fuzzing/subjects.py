"""What is fuzzed: savepoints and retained checkpoints of real jobs, on both backends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.common import Types
from holdfast.datastream import DataStream, FlatMapFunction, KeyedBatchFunction
from holdfast.datastream.functions import CheckpointedFunction
from holdfast.datastream.state import ColumnStateDescriptor, ListStateDescriptor
from holdfast.savepoint import Savepoint
from holdfast.testing import LocalExecutor
from tests.savepoint.jobs import BACKENDS, configuration, everything, expiring

RECORDS = [(f"k{n % 5}", n) for n in range(40)]
_PARALLELISM = 2


@dataclass(frozen=True)
class Subject:
    """A directory that a job can start from.

    Attributes:
        name: of its kind, for the table.
        root: what is copied and damaged: everything that belongs to it.
        start: the path to start from, below the root.
        pickled: whether something in it is pickled, so that no job starts from it unless it is
            trusted; then it is only looked at.
        strangers: files of the same kinds, of another checkpoint and of another job.
        earlier: an earlier savepoint of the same job, which is among them. Savepoints can be moved
            and renamed, and a later one may hold all of an earlier one's files: with the metadata
            of that one it is that one.
    """

    name: str
    backend: str
    root: Path
    start: str
    pickled: bool
    strangers: tuple[Path, ...]
    earlier: Path | None = None


class Buffer(FlatMapFunction, CheckpointedFunction):
    """Keeps its last records in operator state, on request pickled."""

    def __init__(self, pickled: bool) -> None:
        self._type = None if pickled else Types.LONG()

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self._split = store.get_list_state(ListStateDescriptor("split", self._type))
        self._union = store.get_union_list_state(ListStateDescriptor("union", self._type))
        self._last = [int(value) for value in self._split.get()]

    def flat_map(self, value: Any) -> Iterator[Any]:
        if value[0] != "timer":
            self._last = [*self._last, value[1]][-3:]
        yield *value, *self._last

    def snapshot_state(self, context: Any) -> None:
        kept = self._last if self._type is not None else list(map(Decimal, self._last))
        self._split.update(kept)
        self._union.update(kept)


ROWS = pa.schema([("key", pa.string()), ("text", pa.string())])
COUNTED = pa.schema([("text", pa.string()), ("count", pa.int64())])


class Counts(KeyedBatchFunction):
    """Counts records by key in state in columns, one with a time-to-live."""

    def open(self, runtime_context: Any) -> None:
        count = ColumnStateDescriptor("count", pa.int64(), default=0)
        self._count = runtime_context.get_column_state(count)
        last = expiring(ColumnStateDescriptor("last", pa.string()))
        self._last = runtime_context.get_column_state(last)

    def process_batch(self, batch: pa.RecordBatch, keys: Any, ctx: Any) -> Any:
        self._last.put(keys, batch["text"])
        return {"text": batch["text"], "count": self._count.running_count(keys)}


def job(
    directory: Path, backend: str, start: str | None = None, pickled: bool = False
) -> DataStream:
    """The job: every kind of keyed state, timers, operator state."""
    config = configuration(directory, backend, start)
    config.set_string("parallelism.default", str(_PARALLELISM))
    buffered = everything(config, RECORDS).flat_map(Buffer(pickled)).set_parallelism(1)
    named = buffered.uid("buffer").name("Buffer")
    if backend != "hashmap":
        return named  # state in columns is held in memory
    rows = named.map(lambda record: (str(record[0]), repr(record))).uid("rows")
    counted = rows.to_batches(ROWS).uid("batches").key_by("key").process_batches(Counts(), COUNTED)
    return counted.uid("counts").map(tuple).uid("tuples")


def make_subjects(directory: Path) -> list[Subject]:
    """Run jobs halfway, and keep what they have saved."""
    return [subject for backend in BACKENDS for subject in _of(directory / backend, backend)]


def _of(directory: Path, backend: str) -> Iterator[Subject]:
    first, second = _halfway(directory / "one", backend)
    other, _ = _halfway(directory / "two", backend)
    strangers = tuple(
        path for place in (first, other) for path in sorted(place.rglob("*")) if path.is_file()
    )
    yield Subject(f"savepoint, {backend}", backend, second, "", False, strangers, first)
    (checkpoints,) = (directory / "one" / "checkpoints").iterdir()
    complete = [path.parent.name for path in checkpoints.glob("chk-*/_metadata")]
    latest = max(complete, key=lambda name: int(name[4:]))
    yield Subject(f"checkpoint, {backend}", backend, checkpoints, latest, False, strangers)
    _, pickled = _halfway(directory / "three", backend, pickled=True)
    yield Subject(f"pickled savepoint, {backend}", backend, pickled, "", True, strangers)


def _halfway(directory: Path, backend: str, pickled: bool = False) -> tuple[Path, Path]:
    """Two savepoints of a job that goes on; its checkpoints stay where they are."""
    with LocalExecutor(job(directory, backend, pickled=pickled), quota=8) as run:
        run.epoch(checkpoint=True)
        first = run.savepoint()
        run.epoch()
        run.epoch(checkpoint=True)
        return Path(first), Path(run.savepoint())


def look(path: Path) -> Counter[str]:
    """Return all that a savepoint or checkpoint holds, read without running any of it."""
    savepoint = Savepoint.read(path)
    savepoint.sizes()
    found: Counter[str] = Counter()
    for uid, operator in savepoint.operators.items():
        for state in operator.states:
            if not state.keyed:
                data = savepoint.operator_state(uid, state.name)
            elif not state.internal:
                data = savepoint.keyed_state(uid, state.name, state.windowed)
            else:
                continue
            found.update(f"{uid} {state.name} {row}" for row in data.to_pylist())
        for data in (savepoint.timers(uid), savepoint.windows(uid)):
            found.update(f"{uid} {row}" for row in data.to_pylist())
    return found


def run_from(path: Path, backend: str, scratch: Path) -> Counter[str]:
    """Start the job from there, let it end, and return what it gave from then on."""
    with LocalExecutor(job(scratch, backend, str(path))) as run:
        run.run_to_end()
        return Counter(map(repr, run.records))
