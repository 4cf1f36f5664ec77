"""Spark writers as sinks: subtasks stage files; once their epoch is accepted, Spark writes them."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import DataType, StructType

from holdfast.datastream.connectors.dataframe import DataFrameSink
from holdfast.errors import JobDefinitionError, JobExecutionError
from holdfast.graph.nodes import WriterOperation
from holdfast.plan.model import Plan, PlannedOperator
from holdfast.runtime.blocks import Block
from holdfast.runtime.staging import StagedColumns, StagedFile, schema_of


class Writers:
    """The Spark writers of a job."""

    def __init__(self, plan: Plan) -> None:
        """Find the sinks and work out their columns."""
        operators = dict(plan.operators)
        self._sinks: dict[int, tuple[str, DataFrameSink]] = {}
        self._schemas: dict[int, StructType] = {}
        for op in plan.operators.values():
            operation = op.node.operation
            if isinstance(operation, WriterOperation):
                operators[op.id] = self._resolve(op, operation.writer)
        #: the plan as the workers get it: with columns instead of writers
        self.plan = replace(plan, operators=operators)

    def write(self, session: SparkSession, blocks: Sequence[Block]) -> None:
        """Write what the subtasks staged in an accepted epoch, one write per sink.

        Raises:
            JobExecutionError: when Spark cannot write.
        """
        staged: defaultdict[int, list[StagedFile]] = defaultdict(list)
        for block in blocks:
            staged[block.header.exchange].append(pickle.loads(block.data))
        for node, files in staged.items():
            self._write(session, node, files)

    def _resolve(self, op: PlannedOperator, sink: DataFrameSink) -> PlannedOperator:
        try:
            schema = self._schema(sink)
            columns = StagedColumns(to_arrow_schema(schema))
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

    def _write(self, session: SparkSession, node: int, files: list[StagedFile]) -> None:
        name, sink = self._sinks[node]
        paths = [file.path for file in files]
        frame = session.read.schema(self._schemas[node]).parquet(*paths)
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
        for path in paths:
            Path(path).unlink(missing_ok=True)


def _struct(schema: DataType) -> StructType:
    if not isinstance(schema, StructType):
        msg = f"the schema must have named columns; got {schema.simpleString()}"
        raise TypeError(msg)
    return schema
