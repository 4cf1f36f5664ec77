"""The job that is simulated: a source of numbered records, a buffer, sums by key, an audit.

    short   source, buffer ─► totals ─► results
    long    source, buffer ─► totals ─► audit ─► results
                         └────────────►

A record is (partition, offset, reading). A source that can be replayed gives the same records again
for the same positions: its reading is always 0. One that cannot gives each call of ``read`` a
number of its own, which also decides about the key; so what is read again is never the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from holdfast.common import Time, Types
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.base import Source, SourceReader
from holdfast.datastream.functions import (
    AggregateFunction,
    CheckpointedFunction,
    CheckpointListener,
    FlatMapFunction,
    KeyedProcessFunction,
)
from holdfast.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from holdfast.graph.operations import ResultKind, ResultOperation
from holdfast.plan.model import Plan
from holdfast.runtime.worker.job_code import JobCode, make_job_code
from tests.simulation import stage

PARTITIONS = 4
LENGTH = 10
KEYS = 5
MAX_PARALLELISM = 12
NAME = "simulated"

Record = tuple[int, int, int]

KEPT = ListStateDescriptor("kept")
READINGS = ListStateDescriptor("readings")
TOTAL = ValueStateDescriptor("total")
RECORDS = ListStateDescriptor("records", Types.LIST(Types.TUPLE([Types.LONG()] * 3)))
OFFSETS = MapStateDescriptor("offsets", Types.LONG(), Types.LIST(Types.LONG()))
#: none expires in a simulation
OFFSETS.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(10**15)).build())
SEEN = MapStateDescriptor("seen")

#: what the audit gets of a record: from the buffer, and from the totals
RAW, COUNTED = 0, 1


def key_of(record: Record) -> int:
    return sum(record) % KEYS


def amount_of(record: Record) -> int:
    partition, offset, reading = record
    return 1 + offset + 100 * partition + 10_000 * reading


@dataclass(frozen=True)
class Shape:
    """Which job, and how wide its operators are."""

    replayable: bool
    long: bool
    source: int
    totals: int
    audit: int


class Numbers(Source):
    def __init__(self, replayable: bool) -> None:
        self._replayable = replayable

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _Reader(range(subtask, PARTITIONS, parallelism), self._replayable)

    def redistribute(self, positions: Sequence[Any], parallelism: int) -> Sequence[Any]:
        known = {p: offset for position in positions for p, offset in position.items()}
        return [
            {p: known[p] for p in range(subtask, PARTITIONS, parallelism)}
            for subtask in range(parallelism)
        ]


class _Reader(SourceReader):
    def __init__(self, partitions: range, replayable: bool) -> None:
        self._next = dict.fromkeys(partitions, 0)
        self._replayable = replayable

    def restore(self, position: Any) -> None:
        self._next = dict(position)

    def read(self, limit: int) -> Iterator[Sequence[Any]]:
        reading = 0 if self._replayable else stage.world().new_reading()
        for _ in range(limit):
            if self.finished:
                return
            offset, partition = min((offset, p) for p, offset in self._next.items())
            self._next[partition] += 1
            yield [(partition, offset, reading)]

    def position(self) -> Any:
        return dict(self._next)

    @property
    def finished(self) -> bool:
        return all(offset == LENGTH for offset in self._next.values())


class Buffer(FlatMapFunction, CheckpointedFunction):
    """Hands records on by threes; what is left over is operator state."""

    def __init__(self) -> None:
        self.kept: list[Record] = []
        #: first offset and number of records, by partition and reading
        self.readings: dict[tuple[int, int], tuple[int, int]] = {}

    def flat_map(self, value: Record) -> Iterator[Record]:
        stage.world().function_called("buffer")
        partition, offset, reading = value
        if reading:
            first, count = self.readings.get((partition, reading), (offset, 0))
            self.readings[partition, reading] = (first, count + 1)
        self.kept.append(value)
        if len(self.kept) == 3:
            kept, self.kept = self.kept, []
            yield from kept

    def snapshot_state(self, context: Any) -> None:
        stage.world().snapshot_called("buffer")
        self.state.update(self.kept)
        self.states_of_readings.update([(*k, *v) for k, v in self.readings.items()])

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.state = store.get_list_state(KEPT)
        self.states_of_readings = store.get_list_state(READINGS)
        if context.is_restored():
            self.kept = list(self.state.get())
            readings = self.states_of_readings.get()
            self.readings = {(p, r): (first, count) for p, r, first, count in readings}


class _Opened(KeyedProcessFunction):
    """Has no fields but those that ``open`` makes; to carry none saves a seed's time."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class Amounts(AggregateFunction):
    """Keeps all amounts, in a list that each record is added to."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[int]) -> int:
        return sum(accumulator)

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return acc_a + acc_b


AMOUNTS = AggregatingStateDescriptor("amounts", Amounts())


class Totals(_Opened, CheckpointListener):
    """Sums by key, with a state of each kind.

    It changes what it has read and saves it then, as many functions do: the same object may be in a
    checkpoint that is not written yet.
    """

    def open(self, runtime_context: Any) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.total = runtime_context.get_state(TOTAL)
        self.records = runtime_context.get_list_state(RECORDS)
        self.offsets = runtime_context.get_map_state(OFFSETS)
        self.amounts = runtime_context.get_aggregating_state(AMOUNTS)

    def process_element(self, value: Record, ctx: Any) -> Iterator[Record]:
        stage.world().function_called("totals")
        partition = value[0]
        self.amounts.add(amount_of(value))
        total = self.total.value() or [0]
        total[0] += amount_of(value)
        self.total.update(total)
        self._keep(value)
        offsets = self.offsets.get(partition) or []
        offsets.append(value[1])
        self.offsets.put(partition, offsets)
        yield value

    def _keep(self, value: Record) -> None:
        """Add a record to the last pair, or begin another one."""
        pairs = self.records.get()
        if pairs and len(pairs[-1]) < 2:
            pairs[-1].append(value)
            self.records.update(pairs)
        else:
            self.records.add([value])

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        stage.world().told_complete(self.subtask, checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        stage.world().told_aborted(self.subtask, checkpoint_id)


class Audit(_Opened):
    """Sees every record twice: as the buffer sent it, and as it was counted."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_map_state(SEEN)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        _, offset, reading, kind = value
        place = (offset, kind)
        self.seen.put(place, [*(self.seen.get(place) or []), reading])
        yield value


def raw(record: Record) -> tuple[int, int, int, int]:
    return (*record, RAW)


def counted(record: Record) -> tuple[int, int, int, int]:
    return (*record, COUNTED)


@dataclass(frozen=True)
class Prepared:
    """A planned job: the same for all seeds that have its shape."""

    plan: Plan
    code: JobCode
    results: int


@cache
def prepare(shape: Shape) -> Prepared:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1).set_max_parallelism(MAX_PARALLELISM)
    source = env.from_source(Numbers(shape.replayable), None, "numbers")
    source.set_parallelism(shape.source).uid("source")
    buffered = source.flat_map(Buffer()).set_parallelism(shape.source).uid("buffer")
    totals = buffered.key_by(key_of).process(Totals()).set_parallelism(shape.totals).uid("totals")
    last, width = totals, shape.totals
    if shape.long:
        before = buffered.map(raw).set_parallelism(shape.source).uid("raw")
        after = totals.map(counted).set_parallelism(shape.totals).uid("counted")
        both = before.union(after).key_by(lambda tagged: tagged[0])
        last, width = both.process(Audit()).set_parallelism(shape.audit).uid("audit"), shape.audit
    operation = ResultOperation(ResultKind.COLLECT)
    results = last._add("collect", "Collect", operation, parallelism=width)
    plan = env._take_plan(NAME)
    return Prepared(plan, make_job_code("", plan, ""), results)
