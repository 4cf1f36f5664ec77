"""Batches in the columns of a file or a table, without a Python object for each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from holdfast.common.typeinfo import BasicTypeInfo
from holdfast.datastream.columns.types import BatchTypeInfo
from holdfast.datastream.formats.columns import Columns, RowError
from holdfast.datastream.formats.records import RecordMaker

#: units of timestamps, each finer than the one before; values in nanoseconds may be cut off
_UNITS: Final = ("s", "ms", "us")


def fits(kind: BatchTypeInfo, schema: pa.Schema) -> bool:
    """Return whether batches become rows of a schema with the same values as records do.

    Otherwise they must be converted to records, whose values are checked one by one.
    """
    found = kind.schema
    places = [found.get_field_index(field.name) for field in schema]
    return not isinstance(kind.record_type, BasicTypeInfo) and all(
        at >= 0 and _same_values(found.field(at).type, field.type)
        for at, field in zip(places, schema, strict=True)
    )


class BatchColumns:
    """Turns batches of a type into batches of a schema, as `Columns` does with records.

    The type must fit the schema: see `fits`. A batch with a value that does not is converted to
    records, so the error is that of the record.
    """

    def __init__(self, schema: pa.Schema, kind: BatchTypeInfo) -> None:
        """Take the columns that are wanted, and the type of the batches."""
        self.schema = schema
        self._columns = Columns(schema)
        self._records = RecordMaker(kind.record_type)

    def batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows in the columns of the schema.

        Raises:
            RowError: for the first row that does not fit.
        """
        found = self._all_at_once(rows)
        return self._columns.batch(self._records.records(rows)) if found is None else found

    def sort_out(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, list[RowError]]:
        """Return the rows that fit, and an error for each of the others."""
        found = self._all_at_once(rows)
        if found is not None:
            return found, []
        return self._columns.sort_out(self._records.records(rows))

    def _all_at_once(self, rows: pa.RecordBatch) -> pa.RecordBatch | None:
        """Return the batch; None if a row needs a closer look."""
        arrays = []
        for field in self.schema:
            column = rows.column(field.name)
            if column.null_count and not field.nullable:
                return None
            try:
                arrays.append(column if column.type == field.type else column.cast(field.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                return None
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _same_values(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a cast keeps the values, or refuses."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if found == wanted:
        return True
    return any(
        is_this(found) and is_this(wanted) and keeps(found, wanted) for is_this, keeps in _KINDS
    )


def _keeps_all(found: pa.DataType, wanted: pa.DataType) -> bool:
    return True


def _is_text(column: pa.DataType) -> bool:
    return bool(pa.types.is_string(column) or pa.types.is_large_string(column))


def _is_bytes(column: pa.DataType) -> bool:
    return bool(pa.types.is_binary(column) or pa.types.is_large_binary(column))


def _is_list(column: pa.DataType) -> bool:
    return bool(pa.types.is_list(column) or pa.types.is_large_list(column))


def _is_wider(found: pa.DataType, wanted: pa.DataType) -> bool:
    return bool(found.bit_width <= wanted.bit_width)


def _is_finer(found: pa.DataType, wanted: pa.DataType) -> bool:
    units = found.unit, wanted.unit
    same_kind = (found.tz is None) is (wanted.tz is None)
    return same_kind and set(units) <= {*_UNITS} and units == tuple(sorted(units, key=_UNITS.index))


def _has_more_digits(found: pa.DataType, wanted: pa.DataType) -> bool:
    whole = wanted.precision - wanted.scale
    return bool(found.scale <= wanted.scale and found.precision - found.scale <= whole)


def _same_items(found: pa.DataType, wanted: pa.DataType) -> bool:
    return _same_field(found.value_field, wanted.value_field)


def _same_fields(found: pa.DataType, wanted: pa.DataType) -> bool:
    fields = [list(found), list(wanted)]
    names = [[field.name for field in each] for each in fields]
    return names[0] == names[1] and all(map(_same_field, *fields))


def _same_field(found: pa.Field, wanted: pa.Field) -> bool:
    return (wanted.nullable or not found.nullable) and _same_values(found.type, wanted.type)


_Check = Callable[[pa.DataType], bool]
#: kinds of types, and what must hold for a cast between two of a kind to keep the values
_KINDS: Final[Sequence[tuple[_Check, Callable[[pa.DataType, pa.DataType], bool]]]] = (
    (pa.types.is_integer, _keeps_all),
    (pa.types.is_floating, _is_wider),
    (_is_text, _keeps_all),
    (_is_bytes, _keeps_all),
    (pa.types.is_timestamp, _is_finer),
    (pa.types.is_decimal, _has_more_digits),
    (_is_list, _same_items),
    (pa.types.is_struct, _same_fields),
)
