"""DataFrame writers as sinks: subtasks stage rows in files, and Spark writes them.

`holdfast.spark.row_transactions` says when.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import DataType, StructType

from holdfast.checkpoint.saved_image import SavedImage
from holdfast.common.options.recovery import NON_RESTORED_STATE
from holdfast.datastream.connectors.dataframe import DataFrameSink
from holdfast.datastream.formats.columns import Columns, schema_of
from holdfast.errors import JobDefinitionError, JobExecutionError
from holdfast.filesystem import file_system_of
from holdfast.graph.operations import WriterOperation
from holdfast.plan.model import Plan, PlannedOperator
from holdfast.printable import get_logger
from holdfast.runtime.operators.staging import StagedColumns, StagedFile, read_staged
from holdfast.runtime.wire.blocks import Block
from holdfast.runtime.wire.protocol import EpochTask
from holdfast.spark.published_rows import publish
from holdfast.spark.row_transactions import (
    RowTransaction,
    RowTransactions,
    delete_files,
    delete_staged,
)
from holdfast.spark.worker import ShippedJob, known_jobs
from holdfast.spark.writer_places import at_least_once, check_delta, qualified
from holdfast.state.errors import StateMigrationError
from holdfast.tracebacks import without_java_stack

#: the entry of a checkpoint with the transactions of DataFrame sinks
SAVED_ROWS: Final = "holdfast/rows"
_logger = get_logger(__name__)


class _Sink(NamedTuple):
    """A DataFrame sink of the plan."""

    name: str
    uid: str
    settings: DataFrameSink
    schema: StructType


class SparkWriters:
    """The DataFrame writers of a job."""

    def __init__(
        self, plan: Plan, session: SparkSession, checkpoints: bool, may_drop: bool = False
    ) -> None:
        """Find the sinks and determine their columns.

        Args:
            plan: the plan.
            session: to write with.
            checkpoints: whether the job takes checkpoints.
            may_drop: whether rows are dropped that a checkpoint has for a sink that is gone.

        Raises:
            JobDefinitionError: when the columns of a sink are not known, or Spark cannot use its
                path.
        """
        operators = dict(plan.operators)
        self._sinks: dict[int, _Sink] = {}
        self._checkpoints = checkpoints
        self._may_drop = may_drop
        #: the sinks that write each row once
        self._exact: set[int] = set()
        self.transactions = RowTransactions(self._commit)
        self._session = session
        self._job: ShippedJob | None = None
        for op in plan.operators.values():
            operation = op.node.operation
            if isinstance(operation, WriterOperation):
                operators[op.id] = self._resolve(op, operation.writer)
        #: the plan for the workers: with columns instead of writers
        self.plan = replace(plan, operators=operators)

    def write(self, session: SparkSession, job: ShippedJob, blocks: Sequence[Block]) -> None:
        """Take the files that subtasks staged in an accepted epoch.

        With checkpoints, those of sinks that can be exactly once are kept for the next one. All
        others are written now, with one write per sink.

        Raises:
            JobExecutionError: if Spark cannot write.
        """
        staged: defaultdict[int, list[StagedFile]] = defaultdict(list)
        for block in blocks:
            staged[block.header.operator].append(pickle.loads(block.data))
        for node, files in staged.items():
            addresses = [file.address for file in files]
            if node in self._exact:
                self.transactions.collect(self._sinks[node].uid, addresses)
            else:
                self._write(session, job, self._sinks[node], addresses)
                delete_files(addresses)

    def begin_attempt(
        self, session: SparkSession, job: ShippedJob, start: SavedImage | None, rows: str
    ) -> None:
        """Write what the checkpoint has and Spark has not written; delete other staged files.

        Except those that a savepoint contains.

        Args:
            session: to write with.
            job: how workers find the job.
            start: the checkpoint that the attempt starts from.
            rows: the directory where this job stages rows.

        Raises:
            StateMigrationError: when the checkpoint has rows for a sink that the program has not.
        """
        self._session, self._job = session, job
        saved = None if start is None else start.metadata.spark.get(SAVED_ROWS)
        self.transactions.begin_attempt(saved)
        if self._sinks:
            # NB: after the job's own last checkpoint, nobody needs rows of earlier starts either
            all_starts = start is not None and start.own
            delete_staged(rows.rpartition("/")[0] if all_starts else rows)

    def log(self, tasks: Sequence[EpochTask]) -> dict[str, bytes]:
        """Return what a checkpoint has to contain, in the epoch with these tasks."""
        checkpoint, savepoint = tasks[0].checkpoint, tasks[0].savepoint
        if not self._exact or checkpoint is None:
            return {}
        return {SAVED_ROWS: self.transactions.save(checkpoint, savepoint)}

    def complete(self, session: SparkSession, job: ShippedJob, tasks: Sequence[EpochTask]) -> None:
        """Write the rows of the checkpoints that are complete, before the next epoch."""
        self._session, self._job = session, job
        self.transactions.complete(tasks[0].completed)

    def _commit(self, transaction: RowTransaction) -> None:
        """Write a transaction, unless it was written before."""
        sink = next((each for each in self._sinks.values() if each.uid == transaction.sink), None)
        session, job, files = self._session, self._job, list(transaction.files)
        assert job is not None
        if sink is None:
            self._drop(transaction)
        elif sink.settings.is_delta:
            # NB: Delta does nothing if the table has this version of the application
            once = {
                "txnAppId": f"holdfast-{transaction.token}-{sink.uid}",
                "txnVersion": str(transaction.number),
            }
            self._write(session, job, sink, files, options=once)
        else:
            path = qualified(session, sink.name, sink.settings)
            publish(path, transaction, lambda to: self._write(session, job, sink, files, to))

    def _drop(self, transaction: RowTransaction) -> None:
        """Refuse to lose rows of a sink that the program does not have, unless it may."""
        found = (
            f"the checkpoint has rows for the DataFrame sink with the uid '{transaction.sink}', "
            "and this job has no such sink"
        )
        if not self._may_drop:
            raise StateMigrationError(
                f"{found}; give the sink that should write them this uid with uid(...), or set "
                f"'{NON_RESTORED_STATE}' to drop them"
            )
        _logger.warning("%s; they are dropped", found)

    def _resolve(self, op: PlannedOperator, sink: DataFrameSink) -> PlannedOperator:
        try:
            schema = self._schema(sink)
            columns = StagedColumns(Columns(to_arrow_schema(schema)).schema)
        except (TypeError, ValueError) as error:
            raise JobDefinitionError(f"operator '{op.name}': {error}") from error
        self._sinks[op.id] = _Sink(op.name, op.uid, sink, schema)
        if sink.is_delta and sink.path is not None and sink.table is None:
            check_delta(self._session, op.name, sink)
        reason = "no checkpoints"
        if self._checkpoints:
            reason = at_least_once(self._session, op.name, sink)
        if not reason:
            self._exact.add(op.id)
        elif self._checkpoints:
            _logger.warning("'%s' may write rows twice after a restart: %s", op.name, reason)
        return replace(op, node=replace(op.node, operation=WriterOperation(columns)))

    @staticmethod
    def _schema(sink: DataFrameSink) -> StructType:
        if isinstance(sink.schema, StructType):
            return sink.schema
        if isinstance(sink.schema, str):
            return _struct(StructType.fromDDL(sink.schema))
        return from_arrow_schema(schema_of(sink.type_info))

    def _write(
        self,
        session: SparkSession,
        job: ShippedJob,
        sink: _Sink,
        staged: list[str],
        path: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        settings = sink.settings
        missing = [address for address in staged if not _exists(address)]
        if missing and not settings.is_delta:
            raise _lost(sink, missing)
        frame = _frame(session, job, sink.schema, staged, bool(missing))
        writer = frame.write.format(settings.format).mode(settings.mode)
        writer = writer.options(**{**settings.options, **(options or {})})
        if settings.partition_by:
            writer = writer.partitionBy(*settings.partition_by)
        try:
            if settings.table:
                writer.saveAsTable(settings.table)
            else:
                writer.save(path or settings.path)
        except Exception as error:
            if missing:
                raise _lost(sink, missing) from error
            reason = without_java_stack(str(error))
            raise JobExecutionError(
                f"operator '{sink.name}': Spark could not write {settings.format} to "
                f"{settings.table or settings.path}: {reason[:1000]}"
            ) from error


def _exists(address: str) -> bool:
    files, path = file_system_of(address)
    return files.exists(path)


def _lost(sink: _Sink, missing: Sequence[str]) -> JobExecutionError:
    """Return the error for rows of a checkpoint that are gone, and were never written."""
    output = sink.settings.table or sink.settings.path
    return JobExecutionError(
        f"operator '{sink.name}': the checkpoint that the job starts from has rows that were not "
        f"written to {output}, and their file '{missing[0]}' is gone ({len(missing)} missing in "
        "all). A start of this job from another checkpoint, or without one, deletes such files. "
        "Start from a later checkpoint or savepoint; or, to continue without these rows, give the "
        f"sink another uid than '{sink.uid}', and set '{NON_RESTORED_STATE}'"
    )


def _frame(
    session: SparkSession, job: ShippedJob, schema: StructType, staged: list[str], lazy: bool
) -> DataFrame:
    """Return the rows of staged files.

    ``lazy``: files are not looked at before the rows are needed. Delta needs none for a transaction
    that the table has, and the files of such a transaction may have been deleted.
    """
    if not lazy and not any("://" in address for address in staged):
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
