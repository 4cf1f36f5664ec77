"""What a table looks like: its columns, their field ids, its partitions.

A table that does not exist is created. One that exists must fit the columns that the job declares;
columns that it lacks are added if the user asked for that.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.datastream.connectors.iceberg.catalog import TableAddress
from holdfast.datastream.connectors.tables.committer import TableError
from holdfast.datastream.connectors.tables.formats import is_delta_table
from holdfast.errors import ConfigurationError
from holdfast.filesystem import FileSystemError, file_system_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.types import IcebergType

_WITH_NUMBER: Final = ("bucket", "truncate")
_OF_TIME: Final = ("year", "month", "day", "hour")
_TRANSFORM: Final = re.compile(r"(\w+)\(\s*(?:(\d+)\s*,\s*)?([^(),]+?)\s*\)")
_FORMAT_VERSION: Final = 2
#: how often a change of columns is tried while others change the table, too
_TRIES: Final = 10


class PartitionField(NamedTuple):
    """One field of a partition: a column, and what is computed from it.

    Attributes:
        transform: as Iceberg writes it, such as ``bucket[16]``.
    """

    column: str
    transform: str = "identity"

    @property
    def name(self) -> str:
        """Return the name of the field, as Spark chooses it."""
        kind = self.transform.partition("[")[0]
        return self.column if kind == "identity" else f"{self.column}_{kind}"

    def __str__(self) -> str:
        kind, _, number = self.transform.rstrip("]").partition("[")
        if kind == "identity":
            return self.column
        return f"{kind}({number}, {self.column})" if number else f"{kind}({self.column})"


def parse_partition(text: str) -> PartitionField:
    """Return the field for text such as ``country``, ``day(at)`` or ``bucket(16, customer)``.

    Raises:
        ConfigurationError: when it is something else.
    """
    found = _TRANSFORM.fullmatch(text.strip())
    if found is None and not re.search(r"[(),]", text) and text.strip():
        return PartitionField(text.strip())
    if found is not None:
        name, number, column = found.groups()
        kind = name.lower().removesuffix("s")
        if kind in _OF_TIME and number is None:
            return PartitionField(column, kind)
        if kind in _WITH_NUMBER and number is not None and int(number) > 0:
            return PartitionField(column, f"{kind}[{int(number)}]")
    message = (
        f"partition_by: expected a column, year, month, day or hour of a column, bucket(n, column) "
        f"or truncate(width, column); got {text!r}"
    )
    raise ConfigurationError(message)


@dataclass(frozen=True)
class TableLayout:
    """What the job expects of the table.

    Attributes:
        schema: the columns of the records.
        partitions: None for those that the table has.
        properties: for a table that is created.
        creates: whether a missing table is created.
        adds_columns: whether columns that the table lacks are added; refused otherwise.
    """

    schema: pa.Schema
    partitions: tuple[PartitionField, ...] | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    creates: bool = False
    adds_columns: bool = False

    def prepare(self, address: TableAddress) -> Table:
        """Return the table, which has all columns then.

        Raises:
            TableError: when it does not fit, or the catalog cannot be reached.
        """
        table = self._create_or_load(address) if self.creates else address.load()
        with address.errors("read the table's schema"):
            table = self._add_columns(table) if self.adds_columns else table
            self._check_version(address, table)
            self._check_columns(address, table.schema())
            self._check_partitions(address, table)
        return table

    def _create_or_load(self, address: TableAddress) -> Table:
        from pyiceberg.exceptions import (
            CommitFailedException,
            NoSuchTableError,
            TableAlreadyExistsError,
        )

        catalog = address.connect()
        with address.errors("create the table"):
            try:
                return catalog.load_table(address.table)
            except NoSuchTableError:
                pass
            self._check_namespace(address, catalog)
            try:
                return self._create(catalog, address)
            except (TableAlreadyExistsError, CommitFailedException):  # another one was faster
                return catalog.load_table(address.table)

    def _check_namespace(self, address: TableAddress, catalog: Catalog) -> None:
        if not catalog.namespace_exists(address.namespace):
            there = ", ".join(sorted(".".join(name) for name in catalog.list_namespaces())[:20])
            message = (
                f"{address}: the namespace '{address.namespace}' does not exist; there are: "
                f"{there or 'none'}; create it in the catalog, or correct its name"
            )
            raise TableError(message)

    def _create(self, catalog: Catalog, address: TableAddress) -> Table:
        name = address.table
        creation = catalog.create_table_transaction(
            name, schema=self.schema, properties=dict(self.properties)
        )
        _check_location(address, creation.table_metadata.location)
        if self.partitions:
            with creation.update_spec() as spec:
                for part in self.partitions:
                    spec.add_field(part.column, _transform(part), part.name)
        creation.commit_transaction()
        return catalog.load_table(name)

    def _add_columns(self, table: Table) -> Table:
        from pyiceberg.exceptions import CommitFailedException

        for _ in range(_TRIES):
            there = table.schema().column_names
            if all(name in there for name in self.schema.names):
                return table
            try:
                with table.update_schema() as update:
                    update.union_by_name(self._with_missing(table.schema()))
                return table.refresh()
            except CommitFailedException:
                table.refresh()
        return table

    def _with_missing(self, there: Schema) -> pa.Schema:
        """Return the columns that the table lacks, all of which may be null in older rows."""
        import pyarrow as pa

        return pa.schema(
            each.with_nullable(True) for each in self.schema if each.name not in there.column_names
        )

    def _check_version(self, address: TableAddress, table: Table) -> None:
        """Raise if pyiceberg cannot write to the table, or transactions cannot be found again.

        Snapshots of version 1 have no sequence numbers. pyiceberg does not write version 3.
        """
        if table.format_version != _FORMAT_VERSION:
            raise TableError(
                f"{address} has the format version {table.format_version}, and the sink needs "
                f"{_FORMAT_VERSION}; upgrade an older table (upgrade_table_version)"
            )

    def _check_columns(self, address: TableAddress, schema: Schema) -> None:
        columns = {column.name: column for column in schema.fields}
        missing = [name for name in self.schema.names if name not in columns]
        if missing:
            raise TableError(
                f"{address} has no column {', '.join(map(repr, missing))}; it has: "
                f"{', '.join(columns)}; call set_schema_evolution(SchemaEvolution.ADD_COLUMNS), or "
                "correct the schema of the sink"
            )
        for name, declared in _iceberg_types(self.schema).items():
            if not _fits(declared, columns[name].field_type):
                raise TableError(
                    f"{address}: the column '{name}' is of type {columns[name].field_type}; the "
                    f"sink declares {declared}; correct the schema of the sink"
                )
        for column in schema.fields:
            if column.required and column.name not in self.schema.names:
                raise TableError(
                    f"{address}: the column '{column.name}' is required, and the schema of the "
                    "sink does not have it; add it"
                )

    def _check_partitions(self, address: TableAddress, table: Table) -> None:
        there = partition_fields(table.spec(), table.schema())
        if self.partitions is not None and there != self.partitions:
            raise TableError(
                f"{address} is partitioned by {_shown(there)}; the sink declares "
                f"{_shown(self.partitions)}; correct partition_by, or leave it out to use the "
                "partitions of the table"
            )


def _check_location(address: TableAddress, location: str) -> None:
    """Raise if there is a table of another format, whose tools would delete files of this one."""
    # NB: a place that cannot be looked at is an error when the table is created there
    with contextlib.suppress(FileSystemError):
        system, path = file_system_of(location)
        if is_delta_table(system, path):
            message = (
                f"{address}: there is a Delta table in '{location}', where the table would be; "
                "choose another name, or another location for the namespace"
            )
            raise TableError(message)


def partition_fields(spec: PartitionSpec, schema: Schema) -> tuple[PartitionField, ...]:
    """Return the fields of a partition spec."""
    return tuple(
        PartitionField(str(schema.find_column_name(each.source_id)), str(each.transform))
        for each in spec.fields
    )


def file_schema(schema: Schema, names: Sequence[str]) -> pa.Schema:
    """Return the schema of data files with some columns of a table, with Iceberg's field ids."""
    import pyarrow as pa
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    whole = schema_to_pyarrow(schema)
    return pa.schema([whole.field(name) for name in names])


def _transform(part: PartitionField) -> Any:
    from pyiceberg.transforms import parse_transform

    return parse_transform(part.transform)


def _shown(fields: tuple[PartitionField, ...]) -> str:
    return ", ".join(map(str, fields)) or "nothing"


def _iceberg_types(schema: pa.Schema) -> dict[str, IcebergType]:
    from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids

    return {
        column.name: column.field_type for column in _pyarrow_to_schema_without_ids(schema).fields
    }


def _fits(declared: IcebergType, there: IcebergType) -> bool:
    """Return whether values of one type can be written to a column of the other."""
    from pyiceberg.exceptions import ResolveError
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.schema import promote
    from pyiceberg.types import PrimitiveType

    if isinstance(declared, PrimitiveType) and isinstance(there, PrimitiveType):
        try:
            return declared == there or promote(declared, there) == there
        except ResolveError:
            return False
    one, other = (schema_to_pyarrow(each, include_field_ids=False) for each in (declared, there))
    return bool(one == other)
