"""Converts rows of a stream to mutations of an HBase table, and cells back to rows."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from holdfast.common import Row, TypeInformation
from holdfast.common.types import NoSuchFieldError
from holdfast.datastream.connectors.hbase.bytes import coding_of
from holdfast.datastream.connectors.hbase.schema import HBaseTableSchema

#: What a mutation does to a row: the new value of each column, by ``family:qualifier``; None
#: removes the column. Two mutations of a row are merged: for each column the later value counts.
Cells: TypeAlias = dict[bytes, bytes | None]

#: what HBase's own client allows
LONGEST_ROW_KEY = 32_767


class _Value(NamedTuple):
    """How the row key or a column is written and read."""

    place: str
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]

    def to_bytes(self, value: Any) -> bytes:
        try:
            return self.encode(value)
        except (TypeError, ValueError) as error:
            message = f"{self.place} of an HBase table: {error}"
            raise type(error)(message) from None

    def from_bytes(self, data: bytes) -> Any:
        try:
            return self.decode(data)
        except Exception as error:
            message = (
                f"{self.place} of an HBase table holds {reprlib.repr(data)}, which is not of the "
                f"declared type ({error}); declare the type that it was written with, or bytes"
            )
            raise ValueError(message) from error


class _Family(NamedTuple):
    name: str
    qualifiers: list[str]
    columns: list[tuple[bytes, _Value]]


class RowCoder:
    """Encodes and decodes by a schema; created where it is used, because it is not pickled."""

    def __init__(self, schema: HBaseTableSchema) -> None:
        """Prepare for all columns."""
        key = schema.get_row_key_name()
        self._key = _value(f"row key {key!r}", schema.get_row_key_type_info())
        self._key_index = schema.get_row_key_index()
        self._names = schema.get_field_names()
        self._families = [
            _family(name, schema.get_columns(name)) for name in schema.get_family_names()
        ]
        self.columns = [name for family in self._families for name, _ in family.columns]

    def key_of(self, row: Any) -> bytes:
        """Return the row key of a row.

        Raises:
            ValueError: when there is none, or HBase does not accept it.
            TypeError: when it has another type, or the row has other fields.
        """
        value = _fields(self._names, row, "a row")[self._key_index]
        if value is None:
            message = f"{self._key.place} of an HBase table is None in {reprlib.repr(row)}"
            raise ValueError(message)
        return self.key_bytes(value)

    def key_bytes(self, value: Any) -> bytes:
        """Return the bytes of a row key; raises what ``key_of`` raises."""
        key = self._key.to_bytes(value)
        if not 0 < len(key) <= LONGEST_ROW_KEY:
            message = (
                f"{self._key.place} of an HBase table has {len(key)} bytes: "
                f"{reprlib.repr(value)}; HBase takes 1 to {LONGEST_ROW_KEY}"
            )
            raise ValueError(message)
        return key

    def cells_of(self, row: Any) -> Cells:
        """Return all columns of a row; raises what ``key_of`` raises."""
        fields = list(_fields(self._names, row, "a row"))
        del fields[self._key_index]
        cells: Cells = {}
        for family, part in zip(self._families, fields, strict=True):
            if part is None:
                cells.update((name, None) for name, _ in family.columns)
                continue
            values = _fields(family.qualifiers, part, f"family {family.name!r}")
            for (name, column), value in zip(family.columns, values, strict=True):
                cells[name] = None if value is None else column.to_bytes(value)
        return cells

    def row_of(self, key: bytes, cells: Mapping[bytes, bytes]) -> Row:
        """Return the row with this key and these columns; missing cells are None."""
        fields: list[Any] = [
            Row(*family.qualifiers)(
                *(
                    column.from_bytes(cells[name]) if name in cells else None
                    for name, column in family.columns
                )
            )
            for family in self._families
        ]
        fields.insert(self._key_index, self._key.from_bytes(key))
        return Row(*self._names)(*fields)


def _value(place: str, type_info: TypeInformation) -> _Value:
    coding, fit = coding_of(type_info), type_info.coercer()
    assert coding is not None, f"the schema let {type_info!r} in"
    encode = coding.encode
    return _Value(place, encode if fit is None else lambda v: encode(fit(v)), coding.decode)


def _family(name: str, columns: Mapping[str, TypeInformation]) -> _Family:
    values = [
        (f"{name}:{qualifier}".encode(), _value(f"column {name}:{qualifier}", type_info))
        for qualifier, type_info in columns.items()
    ]
    return _Family(name, list(columns), values)


def _fields(names: list[str], record: Any, what: str) -> Sequence[Any]:
    """Return the fields of a row, a tuple or a dict, in the order of their names."""
    values: Sequence[Any] = ()
    if isinstance(record, Row):
        with suppress(NoSuchFieldError):
            values = record.get_fields_by_names(names)
    elif isinstance(record, Mapping):
        if all(name in names for name in record):
            values = [record.get(name) for name in names]
    elif isinstance(record, tuple | list):
        values = record
    if len(values) != len(names):
        message = f"{what} for an HBase table has the fields {names}; got {reprlib.repr(record)}"
        raise TypeError(message)
    return values
