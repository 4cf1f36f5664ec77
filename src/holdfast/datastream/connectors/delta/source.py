"""`DeltaSource` and its builder."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from holdfast.common import Duration
from holdfast.datastream.columns.types import BatchTypeInfo
from holdfast.datastream.connectors.base import Source
from holdfast.datastream.connectors.delta.planner import Beginning, DeltaPlanner
from holdfast.datastream.connectors.delta.position import deal_again
from holdfast.datastream.connectors.delta.reader import (
    DeltaReader,
    Make,
    ToObjects,
    to_dicts,
    to_rows,
)
from holdfast.datastream.connectors.delta.table import (
    DeltaAddress,
    canonical_schema,
    check_address,
    library,
)
from holdfast.datastream.formats.columns import schema_of


@dataclass(frozen=True)
class DeltaSource(Source):
    """The rows of a Delta table: those of one version, or new ones as they are appended.

    Use ``for_table``. Without more settings it reads the last version, and ends.

    Attributes:
        address: where the table is.
        beginning: where reading begins.
        columns: the columns to read: their names, or a schema that the table must have.
        make: makes records of columns.
        interval: the time between two looks for new versions, in seconds; None for a source that
            ends.
        batch_type: the type of the batches, if it gives batches.
        skips_changes: whether versions that delete or rewrite rows are left out.
    """

    address: DeltaAddress
    beginning: Beginning = field(default_factory=Beginning)
    columns: pa.Schema | Sequence[str] | None = None
    make: Make = to_rows
    interval: float | None = None
    skips_changes: bool = False
    batch_type: Any = None

    @staticmethod
    def for_table(table_uri: str) -> DeltaSourceBuilder:
        """Read a table.

        Args:
            table_uri: a local path, or an address: ``s3a://bucket/…``, ``gs://…``, ….

        Raises:
            JobDefinitionError: when ``deltalake`` is not installed, or no table can be there.
        """
        library()
        return DeltaSourceBuilder(DeltaSource(DeltaAddress(check_address(table_uri))))

    def create_planner(self, restored: bool) -> DeltaPlanner:
        return DeltaPlanner(self.address, self.beginning, self.columns, self.interval)

    def create_reader(self, subtask: int, parallelism: int) -> DeltaReader:
        is_bounded = self.interval is None
        return DeltaReader(
            self.address, subtask, parallelism, self.make, is_bounded, self.skips_changes
        )

    def redistribute(self, positions: Sequence[Any], parallelism: int) -> Sequence[Any]:
        """Let the new subtasks finish what the old ones began."""
        return deal_again(positions, parallelism)


class DeltaSourceBuilder:
    """Builds a ``DeltaSource``."""

    def __init__(self, source: DeltaSource) -> None:
        """Use ``DeltaSource.for_table``."""
        self._source = source
        self._begins = False

    def set_version(self, version: int) -> DeltaSourceBuilder:
        """Begin with the rows of the table in this version, instead of the last one."""
        return self._begin(Beginning(version))

    def set_timestamp(self, moment: datetime.datetime) -> DeltaSourceBuilder:
        """Begin with the rows that the table had at a time; with a time zone."""
        if moment.tzinfo is None:
            message = f"set_timestamp: expected a time with a time zone; got {moment!r}"
            raise ValueError(message)
        return self._begin(Beginning(moment=moment))

    def set_starting_version(self, version: int) -> DeltaSourceBuilder:
        """Begin with the rows that this version has added; for a source that monitors."""
        return self._begin(Beginning(version, is_snapshot=False))

    def start_from_latest(self) -> DeltaSourceBuilder:
        """Read only rows that are added after the start; for a source that monitors."""
        return self._begin(Beginning(is_snapshot=False, is_after=True))

    def monitor_continuously(self, discovery_interval: Duration) -> DeltaSourceBuilder:
        """Read forever: look for new versions once per interval, and read the rows they add."""
        return self._set(interval=discovery_interval.to_millis() / 1000)

    def skip_change_commits(self) -> DeltaSourceBuilder:
        """Leave out versions that delete or rewrite rows; without this they fail the job.

        Rows that such a version adds are left out, too.
        """
        return self._set(skips_changes=True)

    def select(self, *columns: str) -> DeltaSourceBuilder:
        """Read only these columns."""
        return self._set(columns=columns)

    def as_dicts(self) -> DeltaSourceBuilder:
        """Make each record a dict, instead of a ``Row``."""
        return self._set(make=to_dicts)

    def as_objects(self, record_type: type) -> DeltaSourceBuilder:
        """Make each record an object of a dataclass, whose fields are the columns to read."""
        if not dataclasses.is_dataclass(record_type):
            message = f"as_objects: expected a dataclass; got {record_type!r}"
            raise TypeError(message)
        schema = canonical_schema(schema_of(record_type))
        return self._set(columns=schema, make=ToObjects(record_type))

    def as_batches(self, schema: Any) -> DeltaSourceBuilder:
        """Give batches with these columns, for functions of batches.

        Args:
            schema: the columns to read: a ``pyarrow.Schema``, a dataclass, or a named row type.
        """
        kind = BatchTypeInfo(schema)
        return self._set(columns=canonical_schema(kind.schema), make=kind.maker(), batch_type=kind)

    def set_storage_option(self, key: str, value: str) -> DeltaSourceBuilder:
        """Set an option of ``deltalake``, in addition to those from the job's ``fs.*`` settings."""
        address = self._source.address
        options = {**address.storage_options, key: value}
        return self._set(address=replace(address, storage_options=options))

    def build(self) -> DeltaSource:
        """Return the source.

        Raises:
            ValueError: when it ends, and begins where there is nothing to read.
        """
        if self._source.interval is None and not self._source.beginning.is_snapshot:
            message = (
                "a DeltaSource that ends reads the rows of one version: call set_version or "
                "set_timestamp, or monitor_continuously for a source that reads on"
            )
            raise ValueError(message)
        return self._source

    def _begin(self, beginning: Beginning) -> DeltaSourceBuilder:
        if self._begins:
            message = "a DeltaSource begins at one place; it was set twice"
            raise ValueError(message)
        self._begins = True
        return self._set(beginning=beginning)

    def _set(self, **changes: Any) -> DeltaSourceBuilder:
        self._source = replace(self._source, **changes)
        return self
