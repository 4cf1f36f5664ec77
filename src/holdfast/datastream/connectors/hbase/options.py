"""The address of an HBase table, and how to write to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from holdfast.common.time import DurationLike, to_millis
from holdfast.errors import JobDefinitionError


@dataclass(frozen=True)
class HBaseOptions:
    """A table, and the Thrift server through which it is reached.

    Attributes:
        table_name: ``namespace:table``, unless the namespace is the default.
        host: of the Thrift server.
        port: of the Thrift server.
        transport: ``buffered``, or ``framed`` if the server uses that.
        protocol: ``binary``, or ``compact`` if the server uses that.
        timeout: for one call, in milliseconds.
    """

    table_name: str
    host: str = "localhost"
    port: int = 9090
    transport: Literal["buffered", "framed"] = "buffered"
    protocol: Literal["binary", "compact"] = "binary"
    timeout: int = 20_000

    @staticmethod
    def builder() -> HBaseOptionsBuilder:
        """Start with a Thrift server on this machine."""
        return HBaseOptionsBuilder()


class HBaseOptionsBuilder:
    """Builds ``HBaseOptions``."""

    def __init__(self) -> None:
        """Use ``HBaseOptions.builder()``."""
        self._options = HBaseOptions("")

    def set_table_name(self, table_name: str) -> HBaseOptionsBuilder:
        """Set the table; ``namespace:table`` if it is not in the default namespace."""
        return self._with(table_name=table_name)

    def set_thrift_server(self, host: str, port: int = 9090) -> HBaseOptionsBuilder:
        """Set the address of HBase's Thrift server (``hbase thrift start``) for the workers."""
        return self._with(host=host, port=port)

    def set_transport(self, transport: Literal["buffered", "framed"]) -> HBaseOptionsBuilder:
        """Set the transport: ``framed`` for a server started with ``-framed`` or not blocking."""
        return self._with(transport=_one_of("transport", transport, "buffered", "framed"))

    def set_protocol(self, protocol: Literal["binary", "compact"]) -> HBaseOptionsBuilder:
        """Set the protocol: ``compact`` for a server started with ``-compact``."""
        return self._with(protocol=_one_of("protocol", protocol, "binary", "compact"))

    def set_timeout(self, timeout: DurationLike) -> HBaseOptionsBuilder:
        """Set the timeout of a call; the default is 20 seconds."""
        return self._with(timeout=_positive("the timeout of a call", to_millis(timeout)))

    def build(self) -> HBaseOptions:
        """Return the options.

        Raises:
            JobDefinitionError: when there is no table.
        """
        if not self._options.table_name:
            message = "HBaseOptions need a table: set_table_name(name)"
            raise JobDefinitionError(message)
        return self._options

    def _with(self, **changes: Any) -> HBaseOptionsBuilder:
        self._options = replace(self._options, **changes)
        return self


@dataclass(frozen=True)
class HBaseWriteOptions:
    """When buffered mutations are sent, and how long failed writes are retried.

    Attributes:
        buffer_flush_max_size_in_bytes: send when row keys, columns and values have this size; 0:
            no limit.
        buffer_flush_max_rows: send after this many mutations; 0: no limit.
        buffer_flush_interval_millis: send when the oldest has waited this long; 0: only when the
            buffer is full, and before a checkpoint.
        ignore_null_value: whether None leaves a column unchanged instead of removing it.
        retry_timeout: how long a failed write is retried, in milliseconds.
        retry_delay: before the first retry, in milliseconds; doubles with each one.
        max_retry_delay: the maximum delay.
    """

    buffer_flush_max_size_in_bytes: int = 2 * 1024 * 1024
    buffer_flush_max_rows: int = 1000
    buffer_flush_interval_millis: int = 1000
    ignore_null_value: bool = False
    retry_timeout: int = 120_000
    retry_delay: int = 100
    max_retry_delay: int = 5_000

    @staticmethod
    def builder() -> HBaseWriteOptionsBuilder:
        """Start with 2 MB, 1000 mutations, one second, as Flink does."""
        return HBaseWriteOptionsBuilder()


class HBaseWriteOptionsBuilder:
    """Builds ``HBaseWriteOptions``."""

    def __init__(self) -> None:
        """Use ``HBaseWriteOptions.builder()``."""
        self._options = HBaseWriteOptions()

    def set_buffer_flush_max_size_in_bytes(self, size: int) -> HBaseWriteOptionsBuilder:
        """Send when the buffer has this size; 0: no limit."""
        return self._with(buffer_flush_max_size_in_bytes=_not_negative("a size", size))

    def set_buffer_flush_max_rows(self, rows: int) -> HBaseWriteOptionsBuilder:
        """Send after this many mutations; 0: no limit."""
        return self._with(buffer_flush_max_rows=_not_negative("a number of rows", rows))

    def set_buffer_flush_interval_millis(self, interval: DurationLike) -> HBaseWriteOptionsBuilder:
        """Send when the oldest mutation has waited this long; 0: only when the buffer is full."""
        return self._with(buffer_flush_interval_millis=to_millis(interval))

    def set_ignore_null_value(self, ignore_null_value: bool) -> HBaseWriteOptionsBuilder:
        """Set whether None leaves a column unchanged instead of removing it."""
        return self._with(ignore_null_value=ignore_null_value)

    def set_retry(
        self, timeout: DurationLike, delay: DurationLike = 100, max_delay: DurationLike = 5_000
    ) -> HBaseWriteOptionsBuilder:
        """Set how long a failed write is retried, and the shortest and longest delay."""
        first = _positive("the delay before a retry", to_millis(delay))
        longest = max(first, to_millis(max_delay))
        return self._with(
            retry_timeout=to_millis(timeout), retry_delay=first, max_retry_delay=longest
        )

    def build(self) -> HBaseWriteOptions:
        """Return the options."""
        return self._options

    def _with(self, **changes: Any) -> HBaseWriteOptionsBuilder:
        self._options = replace(self._options, **changes)
        return self


def _not_negative(what: str, value: int) -> int:
    if value < 0:
        message = f"{what} at which HBase's buffer is flushed is at least 0; got {value}"
        raise JobDefinitionError(message)
    return value


def _positive(what: str, value: int) -> int:
    if value <= 0:
        message = f"{what} to HBase is more than 0 ms; got {value}"
        raise JobDefinitionError(message)
    return value


def _one_of(what: str, value: str, *known: str) -> str:
    if value not in known:
        message = f"HBase's Thrift server has a {what} of {' or '.join(known)}; got {value!r}"
        raise JobDefinitionError(message)
    return value
