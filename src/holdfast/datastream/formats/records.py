"""Records of Arrow columns: the way back from `holdfast.datastream.formats.columns`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa

from holdfast.common.typeinfo import PythonTypeInfo
from holdfast.common.types import field_index, make_row
from holdfast.datastream.formats.columns import schema_of

__all__ = ["Maker", "RecordMaker", "maker_of"]

Convert = Callable[[Any], Any]

#: values of these need no conversion
_SAME: Final = None


class Maker(Protocol):
    """Makes records, or batches of them, of what a source reads as columns."""

    @property
    def schema(self) -> pa.Schema | None:
        """Return the columns that are needed; None for all."""

    def records(self, batch: pa.RecordBatch, /) -> Sequence[Any]:
        """Return the records of a batch, in order."""


def maker_of(row_type: Any) -> Maker:
    """Return what makes records of a type; of a ``BatchTypeInfo``, batches."""
    if getattr(row_type, "columnar", False):
        return row_type.maker()  # type: ignore[no-any-return]
    return RecordMaker(row_type)


class RecordMaker:
    """Makes records of Arrow batches.

    Attributes:
        schema: the columns that the records have; None for those of the batches.
    """

    def __init__(self, row_type: Any = None) -> None:
        """Say what the records are.

        Args:
            row_type: a dataclass, a msgspec ``Struct`` or a ``NamedTuple``: its objects; a row type
                with names or a ``pyarrow.Schema``: rows with these columns; ``dict``: dicts with
                all columns; None: rows with all columns. Structs inside of rows are rows, and
                inside of dicts they are dicts.

        Raises:
            TypeError: when there is no column type for a field.
        """
        self._type = row_type.cls if isinstance(row_type, PythonTypeInfo) else row_type
        self.schema: pa.Schema | None = None if row_type in (None, dict) else schema_of(row_type)

    def records(self, batch: pa.RecordBatch) -> list[Any]:
        """Return the records of a batch, in order.

        A column that the batch does not have is None in all of them, if the type allows None.

        Raises:
            ValueError: when a column is missing that cannot be None, or a value does not fit the
                type.
        """
        schema = batch.schema if self.schema is None else self.schema
        columns = [self._column(batch, field) for field in schema]
        return list(map(self._maker(schema.names), zip(*columns, strict=True)))

    def _column(self, batch: pa.RecordBatch, field: pa.Field) -> Sequence[Any]:
        position = batch.schema.get_field_index(field.name)
        if position < 0:
            if field.nullable:
                return [None] * batch.num_rows
            found = ", ".join(batch.schema.names)
            message = (
                f"there is no column '{field.name}', and it cannot be None; the columns are "
                f"{found}; declare the field as X | None, or leave it out of the type"
            )
            raise ValueError(message)
        column = batch.column(position)
        convert = self._converter(column.type)
        values: list[Any] = column.to_pylist()
        return values if convert is _SAME else [None if v is None else convert(v) for v in values]

    def _maker(self, names: list[str]) -> Callable[[Sequence[Any]], Any]:
        """Return a function from the values of a record to the record."""
        if not self._makes_rows:
            as_dict = _dict_maker(names)
            return as_dict if self._type is dict else _object_maker(self._type, as_dict)
        index = field_index(tuple(names))
        return lambda values: make_row([*values], index)

    @property
    def _makes_rows(self) -> bool:
        return not isinstance(self._type, type)

    def _converter(self, column: pa.DataType) -> Convert | None:
        """Return a function for values of a type that contains structs or maps."""
        if pa.types.is_map(column):
            return _over_pairs(self._converter(column.key_type), self._converter(column.item_type))
        if pa.types.is_struct(column):
            fields = [(field.name, self._converter(field.type)) for field in column]
            return self._struct_maker(fields)
        if _is_list(column):
            each = self._converter(column.value_type)
            return _SAME if each is _SAME else _over_list(each)
        return _SAME

    def _struct_maker(self, fields: list[tuple[str, Convert | None]]) -> Convert:
        names = [name for name, _ in fields]
        make = _dict_maker(names) if not self._makes_rows else self._maker(names)

        def convert(found: dict[str, Any]) -> Any:
            return make([_converted(each, found[name]) for name, each in fields])

        return convert


def _is_list(column: pa.DataType) -> bool:
    is_sized = pa.types.is_fixed_size_list(column)
    return bool(is_sized or pa.types.is_list(column) or pa.types.is_large_list(column))


def _dict_maker(names: list[str]) -> Callable[[Sequence[Any]], dict[str, Any]]:
    return lambda values: dict(zip(names, values, strict=True))


def _object_maker(
    cls: type, as_dict: Callable[[Sequence[Any]], dict[str, Any]]
) -> Callable[[Sequence[Any]], Any]:
    def make(values: Sequence[Any]) -> Any:
        return msgspec.convert(list(values) if issubclass(cls, tuple) else as_dict(values), cls)

    return make


def _over_list(each: Convert) -> Convert:
    return lambda found: [None if item is None else each(item) for item in found]


def _over_pairs(key: Convert | None, value: Convert | None) -> Convert:
    return lambda found: {_converted(key, k): _converted(value, v) for k, v in found}


def _converted(convert: Convert | None, value: Any) -> Any:
    return value if convert is _SAME or value is None else convert(value)
