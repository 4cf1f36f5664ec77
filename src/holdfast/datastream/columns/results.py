"""Checks what functions of batches return, and gives the rows their timestamps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from reprlib import repr as repr_of
from typing import Any

import pyarrow as pa

from holdfast.common.callables import described, with_place
from holdfast.datastream.columns.batch import Batch, millis_of

_WANTED = (
    "a pyarrow RecordBatch or Table, a dict of arrays, a frame with the Arrow interface (pandas, "
    "polars), an iterable of these, or None"
)


class BatchResults:
    """Turns the results of a function into batches of the declared columns."""

    def __init__(self, function: Any, schema: pa.Schema, time_column: str | None = None) -> None:
        """Take the declared columns; ``time_column``: the one with the timestamps of results."""
        self._function = function
        self._schema = schema
        self._time_column = time_column

    def batches(self, result: Any, timestamps: pa.Array | None = None) -> Iterator[Batch]:
        """Yield the batches of a result that have rows.

        ``timestamps``: those of the rows that the function was called with. A result with as many
        rows has them row by row.

        Raises:
            TypeError: when a result is not a batch, or does not fit the columns.
            ValueError: when a column has nulls and must not, or columns differ in length.
        """
        for rows in self._parts(result):
            if rows.num_rows:
                yield Batch(rows, self._timestamps(rows, timestamps))

    def _parts(self, result: Any) -> Iterator[pa.RecordBatch]:
        if result is None:
            return
        if isinstance(result, pa.RecordBatch):
            yield self._fitted(result)
        elif isinstance(result, Mapping):
            yield self._fitted(self._from_arrays(result))
        elif isinstance(result, pa.Table) or hasattr(result, "__arrow_c_stream__"):
            table = pa.table(result).combine_chunks()
            yield from map(self._fitted, table.to_batches())
        elif hasattr(result, "__iter__") and not isinstance(result, str | bytes):
            for part in result:
                yield from self._parts(part)
        else:
            message = (
                f"{described(self._function)} returned {repr_of(result)} "
                f"({type(result).__name__}); return {_WANTED}"
            )
            raise with_place(TypeError(message), self._function)

    def _from_arrays(self, arrays: Mapping[str, Any]) -> pa.RecordBatch:
        named = {}
        for name, values in arrays.items():
            at = self._schema.get_field_index(name)
            wanted = self._schema.field(at).type if at >= 0 else None
            try:
                named[name] = _array(values, wanted)
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                raise self._misfit(name, wanted, f"values that do not fit: {error}") from None
        if len(set(map(len, named.values()))) > 1:
            raise self._uneven(named)
        return pa.RecordBatch.from_pydict(named)

    def _fitted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the declared columns of a result."""
        schema = self._schema
        if not rows.schema.equals(schema):
            names = rows.schema.names
            for field in schema:
                if field.name not in names:
                    got = f"only {', '.join(names)}" if names else "no columns"
                    raise self._misfit(field.name, field.type, got, "return the column")
                found = rows.column(field.name).type
                if found != field.type and not _same_values(found, field.type):
                    raise self._misfit(field.name, field.type, f"a column of {found}")
            columns = [rows.column(field.name).cast(field.type) for field in schema]
            rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        for field, column in zip(schema, rows.columns, strict=True):
            if not field.nullable and column.null_count:
                raise self._misfit(
                    field.name, f"{field.type} without nulls", f"{column.null_count} nulls"
                )
        return rows

    def _misfit(
        self,
        name: str,
        declared: Any,
        got: str,
        remedy: str = "cast the column (pyarrow.compute.cast)",
    ) -> TypeError:
        message = (
            f"the result of {described(self._function)} does not fit its schema: column '{name}' "
            f"is declared {declared}; got {got}; {remedy}, or change the declared schema"
        )
        return with_place(TypeError(message), self._function)

    def _uneven(self, columns: Mapping[str, Any]) -> ValueError:
        sizes = ", ".join(f"'{name}' has {len(values)}" for name, values in columns.items())
        message = (
            f"the result of {described(self._function)} has columns of different lengths: {sizes}; "
            "return a value for each row in every column"
        )
        return with_place(ValueError(message), self._function)

    def _timestamps(self, rows: pa.RecordBatch, given: pa.Array | None) -> pa.Array | None:
        if self._time_column is not None:
            return times_in(rows, self._time_column)
        return given if given is not None and len(given) == rows.num_rows else None


def times_in(rows: pa.RecordBatch, name: str) -> pa.Array:
    """Return a column as timestamps.

    Raises:
        TypeError: when there is no such column, or it has no times.
        ValueError: when a time is null.
    """
    if name not in rows.schema.names:
        problem = f"there is no such column; the columns are {', '.join(rows.schema.names)}"
        raise _no_times(name, TypeError(problem))
    try:
        return millis_of(rows.column(name))
    except (TypeError, ValueError) as error:
        raise _no_times(name, error) from None


def _no_times(name: str, error: Exception) -> Exception:
    message = (
        f"column '{name}' cannot give the timestamps: {error}; name a column of milliseconds "
        "(int64) or of type timestamp, without nulls"
    )
    return type(error)(message)


def _same_values(found: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether two types differ only in how they store texts or bytes."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    # NB: polars gives views of texts
    texts = {pa.string(), pa.large_string(), pa.string_view()}
    binary = {pa.binary(), pa.large_binary(), pa.binary_view()}
    return found == declared or any({found, declared} <= alike for alike in (texts, binary))


def _array(values: Any, wanted: pa.DataType | None) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    return values if isinstance(values, pa.Array) else pa.array(values, wanted)
