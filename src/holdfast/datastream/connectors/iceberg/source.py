"""`IcebergSource`, its builder, and its planner in the driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.common import Duration
from holdfast.datastream.columns.types import BatchTypeInfo
from holdfast.datastream.connectors.base import EpochPlanner, Source, SourceReader
from holdfast.datastream.connectors.iceberg.catalog import TableAddress, check_address
from holdfast.datastream.connectors.iceberg.history import ancestors_of
from holdfast.datastream.connectors.iceberg.reader import IcebergPlan, IcebergReader
from holdfast.datastream.connectors.iceberg.shares import decode, encode, merge
from holdfast.datastream.connectors.iceberg.steps import ChangedRows, TableReading
from holdfast.datastream.connectors.tables.committer import TableError
from holdfast.datastream.formats.records import maker_of
from holdfast.printable import get_logger

if TYPE_CHECKING:
    from pyiceberg.table import Table

_logger = get_logger(__name__)


@dataclass(frozen=True)
class StartingPoint:
    """Where a source starts that has no saved position.

    Attributes:
        snapshot: None for the current one.
        time: instead of it, the snapshot that was current then, in milliseconds.
        scans: whether the rows of that snapshot are read, not only those of later ones.
    """

    snapshot: int | None = None
    time: int | None = None
    scans: bool = True


class IcebergSource(Source):
    """The rows of an Iceberg table; use ``builder``.

    It reads one snapshot and ends, or it goes on with the rows that later snapshots append.
    """

    def __init__(
        self,
        reading: TableReading,
        row_type: Any,
        start: StartingPoint,
        interval: float | None,
    ) -> None:
        """Use ``builder``."""
        self._reading = reading
        self._row_type = row_type
        self.batch_type = row_type if isinstance(row_type, BatchTypeInfo) else None
        self._start = start
        self._interval = interval

    @staticmethod
    def builder() -> IcebergSourceBuilder:
        """Start with all rows and columns of the current snapshot, as rows."""
        return IcebergSourceBuilder()

    def create_planner(self, restored: bool) -> EpochPlanner:
        return IcebergPlanner(self._reading.address, self._start, self._interval)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        follows = self._interval is not None
        return IcebergReader(self._reading, self._row_type, follows, subtask, parallelism)

    def redistribute(self, positions: Sequence[Any], parallelism: int) -> Sequence[Any]:
        """Deal the files that are left to the new subtasks."""
        return [encode(merge([decode(each) for each in positions]))] * parallelism


class IcebergPlanner(EpochPlanner):
    """Finds the snapshot where readers start, and the last one that an epoch reads."""

    def __init__(self, address: TableAddress, start: StartingPoint, interval: float | None) -> None:
        """Connect to nothing yet; ``interval`` is the time between two looks in seconds."""
        self._address = address
        self._start = start
        self._interval = interval
        self._table: Table | None = None
        self._plan = IcebergPlan(None, start.scans, None)
        self._next_look = 0.0
        self._is_free = self._is_away = False
        #: looks for snapshots while readers run free
        self._looking: threading.Thread | None = None

    def run_free(self) -> None:
        """Look for snapshots in another thread."""
        self._is_free = True

    def plan(self) -> IcebergPlan:
        """Return the plan; look for new snapshots if it is time.

        While the catalog does not answer, epochs read no further than the last one. An answer is
        needed only at the start of an attempt.
        """
        if self._table is None:
            self._table = self._address.load()
            self._plan = self._first_plan(self._table)
            self._next_look = time.monotonic() + (self._interval or 0)
        elif self._interval is not None and time.monotonic() >= self._next_look:
            self._look(self._table)
        return self._plan

    def _look(self, table: Table) -> None:
        if not self._is_free:
            self._look_again(table)
        elif self._looking is None or not self._looking.is_alive():
            self._looking = threading.Thread(
                target=self._look_again, args=[table], name="holdfast-iceberg", daemon=True
            )
            self._looking.start()

    def _first_plan(self, table: Table) -> IcebergPlan:
        head = _current(table)
        if self._start.snapshot is not None:
            start: int | None = self._start.snapshot
            if table.snapshot_by_id(self._start.snapshot) is None:
                raise TableError(
                    f"{self._address} has no snapshot {start}, where the source starts; it may "
                    "have expired"
                )
        elif self._start.time is not None:
            start = self._at(table, self._start.time)
        else:
            start = head
        if start is None and self._interval is not None:
            # NB: an empty table has no snapshot to start after, so the first one is read in full
            return IcebergPlan(None, True, None)
        return IcebergPlan(start, self._start.scans, head)

    def _at(self, table: Table, moment: int) -> int:
        for snapshot in ancestors_of(table.metadata):
            if snapshot.timestamp_ms <= moment:
                return snapshot.snapshot_id
        raise TableError(
            f"{self._address} has no snapshot from before the time {moment} ms, where the source "
            "starts; it may have expired"
        )

    def _look_again(self, table: Table) -> None:
        assert self._interval is not None
        try:
            with self._address.errors("look for new snapshots"):
                table.refresh()
        except TableError as error:
            if not self._is_away:
                _logger.warning("nothing new is read until the catalog answers again: %s", error)
            self._is_away = True
        else:
            self._is_away = False
            self._plan = self._next_plan(table)
        self._next_look = time.monotonic() + self._interval

    def _next_plan(self, table: Table) -> IcebergPlan:
        plan, head = self._plan, _current(table)
        if plan.start is None:
            return IcebergPlan(head, True, head)
        return plan._replace(head=head)


def _current(table: Table) -> int | None:
    snapshot = table.current_snapshot()
    return None if snapshot is None else snapshot.snapshot_id


class IcebergSourceBuilder:
    """Builds an ``IcebergSource``; needs a catalog and a table."""

    def __init__(self) -> None:
        """Start with all rows and columns of the current snapshot, as rows."""
        self._catalog: tuple[str, dict[str, str]] | None = None
        self._table = ""
        self._row_type: Any = None
        self._columns: tuple[str, ...] | None = None
        self._row_filter = ""
        self._changed_rows = ChangedRows.FAIL
        self._start = StartingPoint()
        self._interval: float | None = None

    def set_catalog(self, name: str, properties: Mapping[str, str]) -> IcebergSourceBuilder:
        """Set the catalog: its name, and pyiceberg's properties (``type``, ``uri``, …)."""
        self._catalog = (name, {key: str(value) for key, value in properties.items()})
        return self

    def set_table(self, identifier: str) -> IcebergSourceBuilder:
        """Set the table: ``namespace.name``."""
        self._table = identifier
        return self

    def set_row_type(self, row_type: Any) -> IcebergSourceBuilder:
        """Set what the records are: a dataclass, a named row type or ``dict``; by default rows.

        A type with fields also chooses the columns. A ``BatchTypeInfo`` gives batches with its
        columns.
        """
        self._row_type = row_type
        return self

    def set_columns(self, *columns: str) -> IcebergSourceBuilder:
        """Set the columns to read; by default all, or those of the row type."""
        self._columns = columns
        return self

    def set_row_filter(self, row_filter: str) -> IcebergSourceBuilder:
        """Set a condition, such as ``country = 'DE'``; files that cannot meet it are not read."""
        self._row_filter = row_filter
        return self

    def start_from_snapshot(
        self, snapshot_id: int, include_its_rows: bool = True
    ) -> IcebergSourceBuilder:
        """Start with a snapshot, or behind it with the rows of later ones."""
        self._start = StartingPoint(snapshot_id, None, include_its_rows)
        return self

    def start_from_timestamp(
        self, timestamp: int, include_its_rows: bool = True
    ) -> IcebergSourceBuilder:
        """Start with the snapshot that was current at a time in milliseconds, or behind it."""
        self._start = StartingPoint(None, timestamp, include_its_rows)
        return self

    def start_from_latest(self) -> IcebergSourceBuilder:
        """Read only rows that are appended after the job has started."""
        self._start = StartingPoint(None, None, False)
        return self

    def monitor_continuously(self, interval: Duration) -> IcebergSourceBuilder:
        """Go on with what later snapshots append; look for them once per interval."""
        self._interval = interval.to_millis() / 1000
        return self

    def set_changed_rows(self, changed_rows: ChangedRows) -> IcebergSourceBuilder:
        """Set what to do with later snapshots that change or delete rows; by default fail."""
        if not isinstance(changed_rows, ChangedRows):
            message = f"set_changed_rows: expected a ChangedRows; got {changed_rows!r}"
            raise TypeError(message)
        self._changed_rows = changed_rows
        return self

    def build(self) -> IcebergSource:
        """Return the source. Nothing is connected to before the job starts.

        Raises:
            ValueError: when the catalog or the table is missing.
        """
        address = check_address("IcebergSource", self._catalog, self._table)
        if self._interval is None and not self._start.scans:
            message = (
                "an IcebergSource that reads only later rows never ends: call monitor_continuously"
            )
            raise ValueError(message)
        schema = maker_of(self._row_type).schema
        columns = self._columns
        if columns is None and schema is not None:
            columns = tuple(schema.names)
        reading = TableReading(address, columns, self._row_filter, self._changed_rows)
        return IcebergSource(reading, self._row_type, self._start, self._interval)
