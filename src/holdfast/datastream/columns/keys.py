"""The keys of rows in batches: columns by name, or a function of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.common.callables import described, with_place
from holdfast.datastream.functions import KeySelector
from holdfast.errors import JobTypeError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ColumnKey", "keys_of_batch"]


class ColumnKey(KeySelector):
    """Finds the key in columns: of one column its value, of several columns a tuple."""

    def __init__(self, names: str | Sequence[str]) -> None:
        self.names = [names] if isinstance(names, str) else list(names)
        self._single = isinstance(names, str)
        if not self.names or not all(isinstance(name, str) for name in self.names):
            message = f"key_by: expected the names of columns; got {names!r}"
            raise JobTypeError(message)

    def get_key(self, value: Any) -> Any:
        """Return the key of a record: a row, a dict, or an object with fields."""
        try:
            parts = [_field(value, name) for name in self.names]
        except (AttributeError, KeyError, TypeError) as error:
            names = ", ".join(map(repr, self.names))
            message = (
                f"key_by: the record has no field of the name {names} ({type(error).__name__}: "
                f"{error}); name a field that all records have, or give a function"
            )
            raise ValueError(message) from None
        return parts[0] if self._single else tuple(parts)

    def problem_in(self, columns: pa.Schema) -> str | None:
        """Return what is wrong with the names for batches of these columns; None: nothing."""
        missing = [name for name in self.names if name not in columns.names]
        if not missing:
            return None
        names = ", ".join(columns.names)
        return f"key_by: there is no column '{missing[0]}'; the columns are {names}"

    def column(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the key of each row."""
        import pyarrow as pa

        problem = self.problem_in(rows.schema)
        if problem is not None:
            raise ValueError(problem)
        parts = [rows.column(name) for name in self.names]
        return parts[0] if self._single else pa.StructArray.from_arrays(parts, self.names)

    def __repr__(self) -> str:
        return f"ColumnKey({self.names!r})"


def keys_of_batch(selector: Any, rows: pa.RecordBatch) -> pa.Array:
    """Return the key of each row of a batch.

    Raises:
        TypeError: when the selector does not return an array with a key for each row.
    """
    import pyarrow as pa

    if isinstance(selector, ColumnKey):
        return selector.column(rows)
    select = getattr(selector, "get_key", selector)
    try:
        keys = select(rows)
    except Exception as error:
        error.add_note(
            "the key selector was called with a pyarrow.RecordBatch, because the stream has "
            "batches; to take the key from a column, name it: key_by('name')"
        )
        raise
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    if not isinstance(keys, pa.Array) and hasattr(keys, "__array__"):
        keys = pa.array(keys)
    if not isinstance(keys, pa.Array) or len(keys) != rows.num_rows:
        got = f"{len(keys)} keys" if isinstance(keys, pa.Array) else type(keys).__name__
        message = (
            f"on a stream of batches, a key selector takes a batch and returns an array with a "
            f"key for each of its {rows.num_rows} rows; {described(select)} returned {got}; return "
            "an array, or name the columns: key_by('name')"
        )
        raise with_place(TypeError(message), select)
    return keys


def _field(record: Any, name: str) -> Any:
    return getattr(record, name) if not hasattr(record, "__getitem__") else _item(record, name)


def _item(record: Any, name: str) -> Any:
    return getattr(record, name) if isinstance(record, tuple) else record[name]
