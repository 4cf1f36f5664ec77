"""The sink that writes to an HBase table, and the asynchronous function that looks up in one."""

from __future__ import annotations

import asyncio
import reprlib
import threading
from collections.abc import Callable
from typing import Any

from holdfast.common import Row
from holdfast.datastream.connectors.hbase.client import HBaseClient, retried
from holdfast.datastream.connectors.hbase.mutator import Batch, BufferedMutator
from holdfast.datastream.connectors.hbase.options import HBaseOptions, HBaseWriteOptions
from holdfast.datastream.connectors.hbase.rows import Cells, RowCoder
from holdfast.datastream.connectors.hbase.schema import HBaseTableSchema
from holdfast.datastream.functions import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    RuntimeContext,
    SinkFunction,
)
from holdfast.datastream.functions.asynchronous import AsyncFunction

#: the number of rows in one call
_LOOKUP_BATCH = 200


class HBaseUpsertSinkFunction(SinkFunction, CheckpointedFunction):
    """Writes pairs of a flag and a row: True puts the row, False deletes it.

    Mutations are buffered and sent in the background. When a checkpoint is complete, HBase has all
    records before it: at least once, and because a row is written under its key, writing it again
    changes nothing. Give the sink a stream that is keyed by the row key, or one subtask, so that
    the mutations of a row keep their order.

    While HBase is unavailable the sink retries, and the epoch waits; when that takes longer than
    the retry timeout, the epoch fails, and the restart strategy decides.

    Args:
        options: the address of the table, which must exist.
        schema: its columns.
        write_options: when to send.

    Raises:
        JobDefinitionError: when the schema lacks something.
        ModuleNotFoundError: when the client package is not installed.
    """

    def __init__(
        self,
        options: HBaseOptions,
        schema: HBaseTableSchema,
        write_options: HBaseWriteOptions | None = None,
    ) -> None:
        schema.check()
        HBaseClient(options)
        self._options = options
        self._schema = schema
        self._write_options = write_options or HBaseWriteOptions()

    @property
    def options(self) -> HBaseOptions:
        """Return the address of the table."""
        return self._options

    def into(self, options: HBaseOptions) -> HBaseUpsertSinkFunction:
        """Return a sink that writes the same to another table."""
        return type(self)(options, self._schema, self._write_options)

    def open(self, runtime_context: RuntimeContext) -> None:
        """Connect, and check that the table exists, with its families.

        Raises:
            HBaseError: when it does not.
        """
        self._client = HBaseClient(self._options)
        self._coder = RowCoder(self._schema)
        self._stopped = threading.Event()
        self._mutator = BufferedMutator(self._send, self._write_options)
        families = self._schema.get_family_names()
        retried(lambda: self._client.check_families(families), self._write_options)

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Restore nothing: a checkpoint is taken when nothing is pending."""

    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        """Buffer a put or a delete.

        Raises:
            TypeError: when it is not a pair of a flag and a row that fits the schema.
            ValueError: when the row has no row key, or a value is out of range.
            HBaseError: when an earlier one could not be written.
        """
        flag, row = _pair(value)
        self._mutator.mutate(self._coder.key_of(row), self._cells(flag, row))

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self._mutator.flush()

    def finish(self) -> None:
        self._mutator.flush()

    def close(self) -> None:
        self._stopped.set()
        if self._mutator.close():
            self._client.close()

    def _cells(self, flag: bool, row: Any) -> Cells:
        if not flag:
            return dict.fromkeys(self._coder.columns)
        cells = self._coder.cells_of(row)
        if self._write_options.ignore_null_value:
            return {column: value for column, value in cells.items() if value is not None}
        return cells

    def _send(self, batch: Batch) -> None:
        retried(
            lambda: self._client.mutate(batch.timestamp, batch.rows),
            self._write_options,
            self._stopped,
        )

    def __getstate__(self) -> tuple[list[Batch], int]:
        return self._mutator.unsent(), self._mutator.last_timestamp

    def __setstate__(self, state: tuple[list[Batch], int]) -> None:
        self._mutator.replace(*state)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._options, self._schema, self._write_options)


class HBaseLookupFunction(AsyncFunction[Any, Any]):
    """Looks up the row of each record: for ``AsyncDataStream``.

    Concurrent lookups go to HBase in one call. A row that does not exist is None.

    Args:
        options: the address of the table.
        schema: which columns to read.
        key_selector: from a record to the row key; without one the record is the row key.
        result: from a record and its row, or None, to the result; without one the pair of them.
    """

    def __init__(
        self,
        options: HBaseOptions,
        schema: HBaseTableSchema,
        key_selector: Callable[[Any], Any] | None = None,
        result: Callable[[Any, Row | None], Any] | None = None,
    ) -> None:
        schema.check()
        self._options = options
        self._schema = schema
        self._key_of = key_selector
        self._result = result

    def open(self, runtime_context: RuntimeContext) -> None:
        """Check that the table exists, with its families.

        Raises:
            HBaseError: when it does not, or HBase is unavailable.
        """
        self._client = HBaseClient(self._options)
        self._client.check_families(self._schema.get_family_names())
        self._coder = RowCoder(self._schema)
        self._waiting: dict[bytes, asyncio.Future[Row | None]] = {}
        self._asking: asyncio.Task[None] | None = None

    async def async_invoke(self, value: Any) -> list[Any]:
        key = self._coder.key_bytes(value if self._key_of is None else self._key_of(value))
        if key not in self._waiting:
            self._waiting[key] = asyncio.get_running_loop().create_future()
        answer = self._waiting[key]
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        # NB: shielded, because others may wait for the same row when one has timed out.
        row = await asyncio.shield(answer)
        return [(value, row) if self._result is None else self._result(value, row)]

    def close(self) -> None:
        self._client.close()

    async def _ask(self) -> None:
        while self._waiting:
            keys = list(self._waiting)[:_LOOKUP_BATCH]
            answers = [(key, self._waiting.pop(key)) for key in keys]
            try:
                found = await asyncio.to_thread(self._client.rows, keys, self._coder.columns)
                rows = {key: self._coder.row_of(key, cells) for key, cells in found.items()}
            except Exception as error:
                for _, answer in answers:
                    answer.set_exception(error)
            else:
                for key, answer in answers:
                    answer.set_result(rows.get(key))

    def __getstate__(self) -> None:
        """Return nothing: no field moves to another process."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._options, self._schema, self._key_of, self._result)


def _pair(value: Any) -> tuple[bool, Any]:
    if isinstance(value, tuple | list | Row) and len(value) == 2 and isinstance(value[0], bool):
        return value[0], value[1]
    message = (
        "an HBase sink takes pairs (True, row) to put and (False, row) to delete; got "
        f"{reprlib.repr(value)}"
    )
    raise TypeError(message)
