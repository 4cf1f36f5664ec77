"""DataFrames as sources: their rows become blocks of records in a stage before level 0.

The query reads one stream: the ticks, united with every streaming DataFrame of the job. Column
``source`` is the source of a row (-1: a tick), and each source has its own struct column. A batch
DataFrame is read in the first epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr, lit, struct

from holdfast.common.types import Row, field_index, make_row
from holdfast.graph.operations import SourceOperation
from holdfast.plan.model import ROWS_LEVEL, Plan, PlannedOperator
from holdfast.runtime.batch_routing import make_router
from holdfast.runtime.failures import FailureReporter, OperatorFailed
from holdfast.runtime.routing import Emit, Outbox, Router
from holdfast.runtime.subtask import make_stamp
from holdfast.runtime.wire.blocks import Block, Kind
from holdfast.runtime.wire.protocol import Control, encode
from holdfast.runtime.worker.job_code import JobCode
from holdfast.runtime.worker.logs import at_work
from holdfast.spark.exchange import ROW_SCHEMA, to_batches
from holdfast.spark.worker import ShippedJob, known_jobs

_TICK = -1


class RowSources:
    """The DataFrames that a job reads."""

    def __init__(self, session: SparkSession, plan: Plan) -> None:
        """Find the sources; streaming ones become part of the query's stream."""
        self._plan = plan
        self._frames = {op.id: _frame(op) for op in plan.rows_sources}
        self._columns = [
            (node, frame.schema.simpleString()) for node, frame in self._frames.items()
        ]
        self._session = session
        #: whether the query reads more than ticks
        self.streams = any(frame.isStreaming for frame in self._frames.values())

    def stream(self) -> DataFrame:
        """Return the stream that drives the epochs."""
        ticks = (
            self._session.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", 1)
            .option("numPartitions", 1)
            .load()
        )
        parts = [self._shape(ticks.select(), _TICK)]
        for node, frame in self._frames.items():
            if frame.isStreaming:
                parts.append(self._shape(frame, node))
        return reduce(DataFrame.union, parts)

    def blocks(
        self, batch: DataFrame, job: ShippedJob, epoch: int, first: bool
    ) -> DataFrame | None:
        """Return the blocks of an epoch's rows; None if the job reads no DataFrame."""
        if not self._frames:
            return None
        if first:
            for node, frame in self._frames.items():
                if not frame.isStreaming:
                    batch = batch.union(self._shape(frame, node))
        return batch.mapInArrow(RowsTask(job, epoch, not self.streams), ROW_SCHEMA)

    def _shape(self, frame: DataFrame, node: int) -> DataFrame:
        """Return the frame's rows as the struct column of their source; other columns are null."""
        columns = [lit(node).cast("int").alias("source")]
        for other, schema in self._columns:
            own = struct(*frame.columns) if other == node else expr(f"cast(null as {schema})")
            columns.append(own.alias(f"rows_{other}"))
        return frame.select(*columns)


def _frame(op: PlannedOperator) -> DataFrame:
    operation = op.node.operation
    assert isinstance(operation, SourceOperation)
    return operation.source.frame  # type: ignore[no-any-return]


class RowsTask:
    """Converts the rows of one Spark partition to blocks for the subtasks of level 0 and later."""

    def __init__(self, job: ShippedJob, epoch: int, bounded: bool) -> None:
        """Hold only data that changes from epoch to epoch."""
        self._job = job
        self._epoch = epoch
        self._bounded = bounded

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run for one partition."""
        job = known_jobs.get(self._job)
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        return to_batches(job.plan, ROWS_LEVEL, self._blocks(job, partition, batches))

    def _blocks(
        self, job: JobCode, partition: int, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[Block]:
        stamp = make_stamp(self._epoch, ROWS_LEVEL, partition)
        outbox = Outbox(ROWS_LEVEL, partition, stamp)
        failure = None
        try:
            yield from self._records(job.plan, partition, batches, outbox)
        except OperatorFailed as failed:
            failure = failed.failure
        word = encode(Control(ended=self._bounded, failed=failure is not None))
        for level in job.plan.targets(ROWS_LEVEL):
            for target in range(job.plan.levels[level].parallelism):
                outbox.send(Kind.CONTROL, level, target, word)
        outbox.send_log(job.plan.driver_level, partition)
        if failure is not None:
            outbox.send(Kind.FAILURE, job.plan.driver_level, partition, encode(failure))
        yield from outbox.take()

    def _records(
        self, plan: Plan, partition: int, batches: Iterator[pa.RecordBatch], outbox: Outbox
    ) -> Iterator[Block]:
        routers, emits = _routers(plan, partition, outbox)
        makers = {op.id: _maker(op) for op in plan.rows_sources}
        for batch in batches:
            for node, rows in _split(batch):
                emits[node](makers[node](rows))
            yield from outbox.take()
        for router in routers:
            router.flush_all()
        yield from outbox.take()


def _routers(plan: Plan, partition: int, outbox: Outbox) -> tuple[list[Router], dict[int, Emit]]:
    routers: list[Router] = []
    emits: dict[int, Emit] = {}
    for op in plan.rows_sources:
        report = FailureReporter(op.name, partition)
        own = [make_router(plan.exchanges[number], partition, report) for number in op.exchanges]
        for router in own:
            router.open(outbox)
        routers += own
        emits[op.id] = _to_all(own, report)
    return routers, emits


def _to_all(routers: list[Router], report: FailureReporter) -> Emit:
    routes = [router.emit for router in routers]

    def emit(records: Sequence[Any]) -> None:
        with at_work(report):
            for record in records:
                for route in routes:
                    route(record, record)

    return emit


def _maker(op: PlannedOperator) -> Callable[[pa.StructArray], Sequence[Any]]:
    """Return what makes records of the rows of a source, or batches if it gives those."""
    operation = op.node.operation
    assert isinstance(operation, SourceOperation)
    kind = operation.source.batch_type
    if kind is None:
        return _to_rows
    fitted = kind.maker().records
    return lambda rows: fitted(pa.RecordBatch.from_struct_array(rows))


def _split(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.StructArray]]:
    """Yield the rows of each source in a batch, in their order."""
    owners = batch.column(0)
    for node in owners.unique().to_pylist():
        if node != _TICK:
            mine = batch.filter(pa.compute.equal(owners, node))
            yield node, mine.column(f"rows_{node}")


def _to_rows(column: pa.StructArray) -> list[Row]:
    names = tuple(column.type.field(place).name for place in range(column.type.num_fields))
    index = field_index(names)
    columns = [_to_values(field) for field in column.flatten()]
    return [make_row(list(values), index) for values in zip(*columns, strict=True)]


def _to_values(column: pa.Array) -> Sequence[Any]:
    """Return Python values; nested structs become rows, maps become dictionaries."""
    if pa.types.is_struct(column.type):
        rows = _to_rows(column)
        valid = column.is_valid().to_pylist()
        return [row if known else None for row, known in zip(rows, valid, strict=True)]
    if pa.types.is_map(column.type):
        return [None if pairs is None else dict(pairs) for pairs in column.to_pylist()]
    return column.to_pylist()  # type: ignore[no-any-return]
