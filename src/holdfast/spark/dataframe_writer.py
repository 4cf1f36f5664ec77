"""DataFrame writers as sinks: subtasks stage files; Spark writes them once an epoch is accepted."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import DataType, StructType

from holdfast.datastream.connectors.dataframe import DataFrameSink
from holdfast.datastream.formats.columns import Columns, schema_of
from holdfast.errors import JobDefinitionError, JobExecutionError
from holdfast.filesystem import file_system_of
from holdfast.graph.operations import WriterOperation
from holdfast.plan.model import Plan, PlannedOperator
from holdfast.runtime.operators.staging import StagedColumns, StagedFile, read_staged
from holdfast.runtime.wire.blocks import Block
from holdfast.spark.worker import ShippedJob, known_jobs


class SparkWriters:
    """The DataFrame writers of a job."""

    def __init__(self, plan: Plan) -> None:
        """Find the sinks and determine their columns."""
        operators = dict(plan.operators)
        self._sinks: dict[int, tuple[str, DataFrameSink]] = {}
        self._schemas: dict[int, StructType] = {}
        for op in plan.operators.values():
            operation = op.node.operation
            if isinstance(operation, WriterOperation):
                operators[op.id] = self._resolve(op, operation.writer)
        #: the plan for the workers: with columns instead of writers
        self.plan = replace(plan, operators=operators)

    def write(self, session: SparkSession, job: ShippedJob, blocks: Sequence[Block]) -> None:
        """Write the files that subtasks staged in an accepted epoch, with one write per sink.

        Raises:
            JobExecutionError: if Spark cannot write.
        """
        staged: defaultdict[int, list[StagedFile]] = defaultdict(list)
        for block in blocks:
            staged[block.header.operator].append(pickle.loads(block.data))
        for node, files in staged.items():
            self._write(session, job, node, [file.address for file in files])

    def _resolve(self, op: PlannedOperator, sink: DataFrameSink) -> PlannedOperator:
        try:
            schema = self._schema(sink)
            columns = StagedColumns(Columns(to_arrow_schema(schema)).schema)
        except (TypeError, ValueError) as error:
            raise JobDefinitionError(f"operator '{op.name}': {error}") from error
        self._sinks[op.id] = (op.name, sink)
        self._schemas[op.id] = schema
        return replace(op, node=replace(op.node, operation=WriterOperation(columns)))

    @staticmethod
    def _schema(sink: DataFrameSink) -> StructType:
        if isinstance(sink.schema, StructType):
            return sink.schema
        if isinstance(sink.schema, str):
            return _struct(StructType.fromDDL(sink.schema))
        return from_arrow_schema(schema_of(sink.type_info))

    def _write(self, session: SparkSession, job: ShippedJob, node: int, staged: list[str]) -> None:
        name, sink = self._sinks[node]
        frame = _frame(session, job, self._schemas[node], staged)
        writer = frame.write.format(sink.format).mode(sink.mode).options(**sink.options)
        if sink.partition_by:
            writer = writer.partitionBy(*sink.partition_by)
        try:
            writer.saveAsTable(sink.table) if sink.table else writer.save(sink.path)
        except Exception as error:
            reason = str(error).split("\n\tat ")[0].strip()
            raise JobExecutionError(
                f"operator '{name}': Spark could not write {sink.format} to "
                f"{sink.table or sink.path}: {reason[:1000]}"
            ) from error
        for address in staged:
            files, path = file_system_of(address)
            files.delete(path)


def _frame(
    session: SparkSession, job: ShippedJob, schema: StructType, staged: list[str]
) -> DataFrame:
    """Return the rows of staged files."""
    if not any("://" in address for address in staged):
        return session.read.schema(schema).parquet(*staged)
    numbers = session.range(0, len(staged), 1, len(staged))
    return numbers.mapInArrow(_ReadStaged(job, staged), schema)


class _ReadStaged:
    """Reads staged files in the workers, because Spark itself may not support their file system."""

    def __init__(self, job: ShippedJob, staged: list[str]) -> None:
        """Read one file for each number in the input."""
        self._job = job
        self._staged = staged

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run for one partition."""
        known_jobs.get(self._job)  # configures access to file systems
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_staged(self._staged[number])


def _struct(schema: DataType) -> StructType:
    if not isinstance(schema, StructType):
        message = f"the schema must have named columns; got {schema.simpleString()}"
        raise TypeError(message)
    return schema
