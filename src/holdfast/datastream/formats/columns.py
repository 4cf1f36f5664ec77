"""Records as Arrow columns: `schema_of` derives the columns of a type, `Columns` fills them.

Nothing is lost on the way: a value that a column cannot hold exactly is a `RowError`, not a cut
number, a dropped time zone or a null. Fields that the schema does not name are left out.
"""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from holdfast.common.types import Row
from holdfast.datastream.formats._arrow_types import arrow_type, schema_of
from holdfast.datastream.formats._cells import Cell, Misfit, cell_of, values_of
from holdfast.errors import HoldfastError
from holdfast.printable import printable

__all__ = ["Columns", "RowError", "arrow_type", "schema_of"]

#: What Arrow and the extraction of fields raise for records that do not fit; `_row` tells why.
_MISFITS: Final = (Misfit, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class RowError(HoldfastError, ValueError):
    """A record does not fit into its columns.

    Attributes:
        field: the path of the field, as in ``address.city`` or ``items[2]``; empty if the record as
            a whole does not fit.
        value: what the field has.
        record: the record.
    """

    def __init__(self, message: str, field: str, value: Any, record: Any) -> None:
        super().__init__(message)
        self.field = field
        self.value = value
        self.record = record

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.field, self.value, self.record)


class Columns:
    """Turns records into Arrow batches of a schema.

    A record is a `Row`, a tuple, a dict, or an object with fields (a dataclass, a msgspec
    ``Struct``). Tuples, and rows without names, have the values in the order of the columns. All
    others are read by the names of the columns.
    """

    def __init__(self, schema: pa.Schema) -> None:
        """Take the columns.

        Raises:
            TypeError: for a column type that is not supported.
        """
        self.schema = schema
        self._names: list[str] = schema.names
        self._cells = [cell_of(field.type) for field in schema]

    def batch(self, records: Sequence[Any]) -> pa.RecordBatch:
        """Return the records as one batch.

        Raises:
            RowError: for the first record that does not fit.
        """
        found = self._all_at_once(records)
        return self._assemble([self._row(each) for each in records]) if found is None else found

    def sort_out(self, records: Sequence[Any]) -> tuple[pa.RecordBatch, list[RowError]]:
        """Return the records that fit as one batch, and an error for each of the others."""
        found = self._all_at_once(records)
        if found is not None:
            return found, []
        rows: list[Sequence[Any]] = []
        errors: list[RowError] = []
        for record in records:
            try:
                rows.append(self._row(record))
            except RowError as error:
                errors.append(error)
        return self._assemble(rows), errors

    def error_of(self, record: Any) -> RowError | None:
        """Return why a record does not fit; None if it fits."""
        try:
            self._row(record)
        except RowError as error:
            return error
        return None

    def _all_at_once(self, records: Sequence[Any]) -> pa.RecordBatch | None:
        """Return the batch; None if a record needs a closer look."""
        try:
            taken = _taken(records, self._names)
            arrays = [
                pa.array(cell.all_of(values, field.nullable), field.type)
                for cell, field, values in zip(self._cells, self.schema, taken, strict=True)
            ]
        except _MISFITS:
            return None
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _assemble(self, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        columns = zip(*rows, strict=True) if rows else [()] * len(self._names)
        arrays = [
            pa.array(values, field.type) for field, values in zip(self.schema, columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _row(self, record: Any) -> Sequence[Any]:
        """Return the values of a record as Arrow takes them, or raise a `RowError`."""
        try:
            values = values_of(record, self._names)
        except Misfit as misfit:
            path = misfit.path.removeprefix(".")
            message = f"a record does not fit: {_shown(record)} {misfit.problem}"
            raise RowError(message, path, None, record) from None
        columns = zip(self.schema, self._cells, values, strict=True)
        return [_one(field, cell, value, record) for field, cell, value in columns]

    def __reduce__(self) -> tuple[Any, ...]:
        return Columns, (self.schema,)


def _one(field: pa.Field, cell: Cell, value: Any, record: Any) -> Any:
    try:
        converted = cell.one_of(value, field.nullable)
        pa.array([converted], field.type)
    except Misfit as misfit:
        raise _row_error(field, misfit.path, misfit.value, misfit.problem, record) from None
    except _MISFITS as error:
        problem = f"does not fit ({error}); change the value, or use a wider column"
        raise _row_error(field, "", value, problem, record) from None
    return converted


def _row_error(field: pa.Field, path: str, value: Any, problem: str, record: Any) -> RowError:
    name = f"{field.name}{path}"
    message = (
        f"a record does not fit: field '{printable(name)}' is declared {field.type}; its value "
        f"{_shown(value)} {printable(problem)}; the record is {_shown(record)}"
    )
    return RowError(message, name, value, record)


def _shown(value: Any) -> str:
    return printable(reprlib.repr(value))


def _taken(records: Sequence[Any], names: Sequence[str]) -> Iterable[Sequence[Any]]:
    """Return the values of each column. What it does not expect raises, and is looked at again."""
    kinds = set(map(type, records))
    if len(kinds) != 1:
        return zip(*[values_of(record, names) for record in records], strict=True)
    kind = kinds.pop()
    if issubclass(kind, Row):
        return _of_rows(records, names)
    if issubclass(kind, Mapping):
        return [[record[name] for record in records] for name in names]
    if issubclass(kind, tuple | list) and not hasattr(kind, "_fields"):
        return _transposed(records, len(names))
    return [[getattr(record, name) for record in records] for name in names]


def _transposed(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    # NB: zip(*rows) makes an iterator per row, and so work for the garbage collector
    if set(map(len, rows)) - {width}:
        raise ValueError
    return [list(map(operator.itemgetter(at), rows)) for at in range(width)]


def _of_rows(rows: Sequence[Row], names: Sequence[str]) -> Iterable[Sequence[Any]]:
    shapes = {id(row._index): row._index for row in rows}
    if all(index is None or list(index) == names for index in shapes.values()):
        return _transposed([row._values for row in rows], len(names))
    return zip(*[row.get_fields_by_names(names) for row in rows], strict=True)
