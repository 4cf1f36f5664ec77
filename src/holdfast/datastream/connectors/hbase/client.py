"""Calls to HBase's Thrift server for one table. The only module that knows the client package."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeVar

from holdfast.datastream.connectors.hbase.options import HBaseOptions, HBaseWriteOptions
from holdfast.datastream.connectors.hbase.rows import Cells
from holdfast.errors import JobExecutionError
from holdfast.printable import get_logger

_logger = get_logger(__name__)
_T = TypeVar("_T")

#: names in the error message of a Thrift server after which a retry is useless
_FINAL = (
    "TableNotFoundException",
    "NoSuchColumnFamilyException",
    "AccessDeniedException",
    "DoNotRetryIOException",
)


class HBaseError(JobExecutionError):
    """HBase rejected a request."""


class HBaseAwayError(HBaseError):
    """HBase or its Thrift server is unavailable or busy; a retry may succeed."""


class HBaseClient:
    """One connection, opened when it is needed, and again after it failed.

    For one thread at a time.
    """

    def __init__(self, options: HBaseOptions) -> None:
        """Connect to nothing yet.

        Raises:
            ModuleNotFoundError: when the client package is not installed.
        """
        try:
            import happybase
        except ModuleNotFoundError as error:
            message = f"HBase needs happybase ({error}): pip install 'holdfast[hbase]'"
            raise ModuleNotFoundError(message) from error
        self._library = happybase
        # NB: happybase makes this module when it is imported, out of the interface's definition.
        self._interface = import_module("Hbase_thrift")
        self._options = options
        self._table = options.table_name.encode()
        self._connection: Any = None

    def check_families(self, families: Iterable[str]) -> None:
        """Check that the table exists and has these families.

        Raises:
            HBaseError: when it does not.
        """
        try:
            found = self._call("getColumnDescriptors", self._table)
        except HBaseAwayError:
            raise
        except HBaseError as error:
            tables = b", ".join(sorted(self._call("getTableNames"))).decode()
            message = f"{self._place()}: no such table; there are: {tables or 'none'}"
            raise HBaseError(message) from error
        existing = sorted(name.decode().rstrip(":") for name in found)
        missing = sorted(set(families) - set(existing))
        if missing:
            message = (
                f"{self._place()} has no family {', '.join(missing)}; it has: "
                f"{', '.join(existing)}; add what is missing to the table (alter) or correct the "
                "schema"
            )
            raise HBaseError(message)

    def mutate(self, timestamp: int, rows: Mapping[bytes, Cells]) -> None:
        """Write all columns of some rows with a timestamp; idempotent."""
        batch_mutation, mutation = self._interface.BatchMutation, self._interface.Mutation
        batch = [
            batch_mutation(
                key,
                [
                    mutation(isDelete=value is None, column=column, value=value)
                    for column, value in cells.items()
                ],
            )
            for key, cells in rows.items()
        ]
        self._call("mutateRowsTs", self._table, batch, timestamp, {})

    def rows(
        self, keys: Sequence[bytes], columns: Sequence[bytes]
    ) -> dict[bytes, dict[bytes, bytes]]:
        """Return the cells of the rows that exist."""
        found = self._call("getRowsWithColumns", self._table, keys, columns, {})
        return {
            result.row: {name: cell.value for name, cell in result.columns.items()}
            for result in found
            if result.columns
        }

    def scan(self) -> Iterator[tuple[bytes, dict[bytes, bytes]]]:
        """Yield all rows of the table, with their cells."""
        yield from self._connected().table(self._options.table_name).scan()

    def create_like(self, other: str) -> None:
        """Create the table with the families of another one, unless it exists."""
        if self._table not in self._call("getTableNames"):
            families = self._call("getColumnDescriptors", other.encode())
            self._call("createTable", self._table, list(families.values()))

    def close(self) -> None:
        """Disconnect; the next call connects again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _call(self, name: str, *arguments: Any) -> Any:
        from thriftpy2.thrift import TException

        interface = self._interface
        try:
            return getattr(self._connected().client, name)(*arguments)
        except (interface.IOError, interface.IllegalArgument) as error:
            trace = error.message.decode(errors="replace")
            refused = isinstance(error, interface.IllegalArgument)
            final = refused or any(name in trace for name in _FINAL)
            message = f"{self._place()}: {trace.splitlines()[0]}"
            raise (HBaseError if final else HBaseAwayError)(message) from None
        except (TException, OSError, EOFError) as error:
            self.close()
            message = f"{self._place()} cannot be reached: {error!r}"
            raise HBaseAwayError(message) from error

    def _connected(self) -> Any:
        if self._connection is None:
            options = self._options
            self._connection = self._library.Connection(
                options.host,
                options.port,
                timeout=options.timeout,
                transport=options.transport,
                protocol=options.protocol,
            )
        return self._connection

    def _place(self) -> str:
        options = self._options
        return f"HBase table '{options.table_name}' at {options.host}:{options.port}"


def retried(
    call: Callable[[], _T], options: HBaseWriteOptions, stopped: threading.Event | None = None
) -> _T:
    """Retry while HBase is unavailable, with growing delays, up to the configured timeout.

    Raises:
        HBaseError: when HBase rejects the call, is unavailable for too long, or it was stopped.
    """
    stopped = stopped or threading.Event()
    begun = time.monotonic()
    delay = options.retry_delay / 1000
    while True:
        try:
            return call()
        except HBaseAwayError as error:
            waited = time.monotonic() - begun
            if waited + delay > options.retry_timeout / 1000:
                message = f"{error}; gave up after {waited:.1f} s"
                raise HBaseError(message) from error
            _logger.warning("%s; trying again in %.1f s", error, delay)
            if stopped.wait(delay):
                raise
            delay = min(2 * delay, options.max_retry_delay / 1000)
