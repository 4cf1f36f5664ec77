"""Records as rows of a table: appended, or as changes by key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from holdfast.common.types import Row, RowKind
from holdfast.datastream.columns.keys import ColumnKey
from holdfast.datastream.connectors.tables.written import DELETED
from holdfast.datastream.formats.columns import Columns, RowError

#: records as columns, and the errors of those that do not fit
Sorted = tuple[pa.RecordBatch, list[RowError]]
#: tells whether a record deletes the row of its key: a function, or the name of a field
IsDeletion = Callable[[Any], bool] | str | None


class KeyOf:
    """Returns the key of a record: the values of some of its fields."""

    def __init__(self, schema: pa.Schema, key: Sequence[str]) -> None:
        """Take the names of the fields; records without names have the order of the schema."""
        self._names = tuple(key)
        self._positions = tuple(schema.get_field_index(name) for name in key)
        self._schema = schema

    def __call__(self, record: Any) -> tuple[Any, ...]:
        """Return the values of the key.

        Raises:
            ValueError: when a field is missing.
        """
        try:
            return self._values(record)
        except (LookupError, AttributeError) as error:
            names = ", ".join(self._names)
            message = f"the key of the table is {names}, and a record has not all of it: {record!r}"
            raise ValueError(message) from error

    def _values(self, record: Any) -> tuple[Any, ...]:
        if isinstance(record, Mapping) or (isinstance(record, Row) and record._index is not None):
            return tuple([record[name] for name in self._names])
        if isinstance(record, Row) or (
            isinstance(record, tuple | list) and not hasattr(record, "_fields")
        ):
            return tuple([record[at] for at in self._positions])
        return tuple([getattr(record, name) for name in self._names])

    def __reduce__(self) -> tuple[Any, ...]:
        return KeyOf, (self._schema, self._names)


class Appended:
    """Rows that are added to the table.

    Attributes:
        waiting: the records that were added and not taken yet.
        add: takes a record.
    """

    is_changes = False

    def __init__(self, schema: pa.Schema) -> None:
        """Take the columns of the table."""
        self.schema = schema
        self._columns = Columns(schema)
        self.waiting: list[Any] = []
        # NB: called for every record, so it is no method of this class
        self.add: Callable[[Any], None] = self.waiting.append

    def take(self, sorts_out: bool) -> Sorted:
        """Return the records as columns, and forget them.

        Raises:
            ValueError: when one of them is the change of a row.
            RowError: for the first that does not fit, unless they are sorted out.
        """
        records = self.waiting.copy()
        self.waiting.clear()
        _check_appended(records)
        return self._columns.sort_out(records) if sorts_out else (self._columns.batch(records), [])


def _check_appended(records: Sequence[Any]) -> None:
    if not any(issubclass(kind, Row) for kind in set(map(type, records))):
        return
    for record in records:
        if isinstance(record, Row) and record._row_kind is not RowKind.INSERT:
            message = (
                f"the sink only appends rows, and got a change ({record._row_kind}): {record!r}; "
                "name the key of the table to have changes applied, or filter them out before"
            )
            raise ValueError(message)


class Changes:
    """Changes by key. Of several for one key only the last is kept."""

    is_changes = True

    def __init__(
        self,
        schema: pa.Schema,
        key: Sequence[str],
        is_deletion: IsDeletion = None,
        sorts_out: bool = False,
    ) -> None:
        """Take the columns of the table, its key, and what tells deletions.

        Without the latter, deletions are rows of the kind ``RowKind.DELETE``. ``sorts_out``: a
        change that does not fit leaves the one before it in force, and is one of the errors.
        """
        fields = [field.with_nullable(field.name not in key) for field in schema]
        self.schema = pa.schema([*fields, pa.field(DELETED, pa.bool_(), nullable=False)])
        own = [field.with_nullable(False) if field.name in key else field for field in schema]
        #: the columns of a row that replaces another, and of one that is only deleted
        self.upsert_schema = pa.schema(own)
        self.deletion_schema = pa.schema([self.upsert_schema.field(name) for name in key])
        self._key_of = KeyOf(schema, key)
        self._is_deletion = _tester(is_deletion)
        self._upserts = Columns(self.upsert_schema)
        self._deletions = Columns(self.deletion_schema)
        #: the last change of each key that is not taken yet
        self.waiting: dict[Any, tuple[Any, bool]] = {}
        self._sorts_out = sorts_out
        #: errors of changes that are not among the last ones
        self._misfits: list[RowError] = []

    def add(self, record: Any) -> None:
        """Take a record."""
        if isinstance(record, Row) and record._row_kind is RowKind.UPDATE_BEFORE:
            return
        key, change = self._key_of(record), (record, self._is_deletion(record))
        before = self.waiting.get(key) if self._sorts_out else None
        if before is None or self._replaces(key, before, change):
            self.waiting[key] = change

    def _replaces(self, key: Any, before: tuple[Any, bool], change: tuple[Any, bool]) -> bool:
        """Return whether a change fits, so that the one before it is not needed."""
        error = self._error_of(key, *change)
        if error is not None:
            self._misfits.append(error)
            return False
        earlier = self._error_of(key, *before)
        if earlier is not None:
            self._misfits.append(earlier)
        return True

    def _error_of(self, key: Any, record: Any, deleted: bool) -> RowError | None:
        return self._deletions.error_of(key) if deleted else self._upserts.error_of(record)

    def take(self, sorts_out: bool) -> Sorted:
        """Return the changes as columns, and forget them.

        Raises:
            RowError: for the first record that does not fit, unless they are sorted out.
        """
        last = self.waiting.copy()
        self.waiting.clear()
        upserts = [record for record, deleted in last.values() if not deleted]
        deletions = [key for key, (_, deleted) in last.items() if deleted]
        batches, errors = [], self._misfits.copy()
        self._misfits.clear()
        for columns, rows in ((self._upserts, upserts), (self._deletions, deletions)):
            batch, misfits = columns.sort_out(rows) if sorts_out else (columns.batch(rows), [])
            batches.append(self.complete(batch, columns is self._deletions))
            errors += misfits
        table = pa.Table.from_batches(batches).combine_chunks()
        return (table.to_batches() or batches)[0], errors

    def complete(self, batch: pa.RecordBatch, deleted: bool) -> pa.RecordBatch:
        """Return rows with all columns of a file of changes."""
        rows = len(batch)
        arrays = [
            batch.column(field.name)
            if field.name in batch.schema.names
            else pa.nulls(rows, field.type)
            for field in list(self.schema)[:-1]
        ]
        arrays.append(pa.array([deleted] * rows, pa.bool_()))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _tester(is_deletion: IsDeletion) -> Callable[[Any], bool]:
    if isinstance(is_deletion, str):
        field_of = ColumnKey(is_deletion).get_key
        return lambda record: bool(field_of(record))
    return is_deletion or _is_delete


def _is_delete(record: Any) -> bool:
    return isinstance(record, Row) and record._row_kind is RowKind.DELETE
