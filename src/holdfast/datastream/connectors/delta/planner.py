"""Looks for new versions of a Delta table, in the driver.

Invariant: what a reader reads in an epoch is a function of its position and of the plan, which has
the last version that is read. Consequence: an epoch that is repeated reads the same rows, although
the table has changed.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from holdfast.datastream.connectors.base import EpochPlanner
from holdfast.datastream.connectors.delta.position import ShareCursor
from holdfast.datastream.connectors.delta.table import DeltaAddress, library
from holdfast.datastream.connectors.tables.committer import TableError
from holdfast.filesystem import FileSystemError
from holdfast.printable import get_logger

if TYPE_CHECKING:
    from deltalake import DeltaTable

_logger = get_logger(__name__)
_UNREADABLE = frozenset({"deletionVectors", "columnMapping", "typeWidening", "variantType"})


class Beginning(NamedTuple):
    """Where a source begins.

    Attributes:
        version: a version; None for the last one.
        moment: instead of it, a time; the version is the last one that is not later.
        is_snapshot: whether the rows of this version are read; otherwise those that it adds.
        is_after: whether only the rows of later versions are read.
    """

    version: int | None = None
    moment: datetime.datetime | None = None
    is_snapshot: bool = True
    is_after: bool = False


class DeltaPlan(NamedTuple):
    """The plan of an epoch, for the readers.

    Attributes:
        beginning: where a reader without a saved position begins.
        until: the last version that exists.
        schema: the columns that are read.
    """

    beginning: ShareCursor
    until: int
    schema: pa.Schema


class DeltaPlanner(EpochPlanner):
    """Plans the epochs of one attempt."""

    def __init__(
        self,
        address: DeltaAddress,
        beginning: Beginning,
        columns: pa.Schema | Sequence[str] | None,
        interval: float | None,
    ) -> None:
        """Make no request yet; ``interval`` is the time between two looks, in seconds."""
        self._address = address
        self._beginning = beginning
        self._columns = columns
        self._interval = interval
        self._plan: DeltaPlan | None = None
        self._next_look = 0.0
        self._is_away = False

    def plan(self) -> DeltaPlan:
        """Look for new versions.

        Raises:
            TableError: when there is no such table, version or column.
        """
        if self._plan is None:
            self._plan = self._first()
        elif self._interval is not None and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + self._interval
            self._plan = self._plan._replace(until=self._last(self._plan.until))
        return self._plan

    def _first(self) -> DeltaPlan:
        table = self._address.load()
        if table is None:
            raise TableError(
                f"there is no Delta table '{self._address.uri}'; correct the address, or create it "
                "before the job starts"
            )
        last = table.version()
        schema = self._chosen(table)
        return DeltaPlan(self._cursor(table), last, schema)

    def _cursor(self, table: DeltaTable) -> ShareCursor:
        version, moment, is_snapshot, is_after = self._beginning
        last = table.version()
        if moment is not None:
            try:
                table.load_as_version(moment)
            except Exception as error:
                raise TableError(self._address.failed("go back in", error)) from error
            version = table.version()
        if version is None:
            version = last
        if version > last:
            raise TableError(
                f"the Delta table '{self._address.uri}' has no version {version}; the last one is "
                f"{last}"
            )
        return ShareCursor(version + 1) if is_after else ShareCursor(version, is_snapshot)

    def _chosen(self, table: DeltaTable) -> pa.Schema:
        """Return the columns that are read, as the table has them."""
        uri = self._address.uri
        features = _UNREADABLE.intersection(table.protocol().reader_features or ())
        if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
            features |= {"columnMapping"}
        if features:
            named = ", ".join(sorted(features))
            raise TableError(
                f"the Delta table '{uri}' has {named}, which DeltaSource cannot read; read it with "
                "Spark (env.from_dataframe), or use a table without it"
            )
        return chosen_columns(uri, pa.schema(table.schema().to_arrow()), self._columns)

    def _last(self, known: int) -> int:
        """Return the last version; while it cannot be found, the last one that is known."""
        log = self._address.log
        try:
            while log.has(known + 1):
                known += 1
        except FileSystemError as error:
            if not self._is_away:
                _logger.warning("nothing new is read until the table can be: %s", error)
            self._is_away = True
            return known
        self._is_away = False
        return known


def chosen_columns(
    uri: str, there: pa.Schema, wanted: pa.Schema | Sequence[str] | None
) -> pa.Schema:
    """Return the wanted columns of a table; all by default.

    Raises:
        TableError: when one is missing, or has another type than a wanted one.
    """
    if wanted is None:
        return there
    names = wanted.names if isinstance(wanted, pa.Schema) else wanted
    for name in names:
        if name not in there.names:
            known = ", ".join(there.names)
            raise TableError(
                f"the Delta table '{uri}' has no column '{name}', which the source reads; its "
                f"columns are {known}"
            )
        if isinstance(wanted, pa.Schema) and wanted.field(name).type != there.field(name).type:
            raise TableError(
                f"column '{name}' of the Delta table '{uri}' is {there.field(name).type}, and the "
                f"source expects {wanted.field(name).type}; change the type of the records"
            )
    return pa.schema([there.field(name) for name in names])


def schema_from_json(text: str) -> pa.Schema:
    """Return the schema that a version of a table has set."""
    return pa.schema(library().Schema.from_json(text).to_arrow())
