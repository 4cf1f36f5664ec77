"""An HBase for tests, and what tests do with it: make tables, read them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import happybase

from holdfast.datastream.connectors.hbase import HBaseOptions
from services.hbase import HBase

#: in milliseconds, for a machine that is slow and busy
LONGEST = 60_000


class Tables:
    """A running HBase.

    Attributes:
        server: to kill and start again.
    """

    def __init__(self, server: HBase) -> None:
        self.server = server

    def create(self, *families: str) -> str:
        """The name of a new table."""
        name = f"table-{uuid.uuid4().hex[:12]}"
        with self._connection() as connection:
            connection.create_table(name, {family: {"max_versions": 1} for family in families})
        return name

    def options(self, table: str) -> HBaseOptions:
        """Where a table is; a call is given up soon, so that a test sees another try."""
        return HBaseOptions(table, self.server.host, self.server.port, timeout=8_000)

    def rows(self, table: str) -> dict[bytes, dict[bytes, bytes]]:
        """All there is in a table."""
        with self._connection() as connection:
            return dict(connection.table(table).scan())

    def put(self, table: str, rows: dict[bytes, dict[bytes, bytes]]) -> None:
        """Write without the sink."""
        with self._connection() as connection, connection.table(table).batch() as batch:
            for key, cells in rows.items():
                batch.put(key, cells)

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        connection = happybase.Connection(self.server.host, self.server.port, timeout=LONGEST)
        try:
            yield connection
        finally:
            connection.close()


@contextmanager
def running(folder: Path) -> Iterator[Tables]:
    """An HBase whose files are in the folder.

    Raises:
        UnavailableError: when its classes cannot be had.
    """
    server = HBase(folder)
    server.start()
    try:
        yield Tables(server)
    finally:
        server.kill()
