"""Splits batches by the values of columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.datastream.columns.batch import Batch


def can_split_by(schema: pa.Schema, names: Sequence[str]) -> bool:
    """Return whether batches with these columns can be split by some of them."""
    places = [schema.get_field_index(name) for name in names]
    return all(at >= 0 and not pa.types.is_nested(schema.field(at).type) for at in places)


def split_by(
    rows: pa.RecordBatch, names: Sequence[str]
) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """Yield the values of columns, and the rows that have them, in their order."""
    if not names:
        if rows.num_rows:
            yield (), rows
        return
    columns = [_plain(rows.column(name)) for name in names]
    codes = np.zeros(rows.num_rows, np.int64)
    firsts = codes[:1]
    for column in columns:
        encoded = pc.dictionary_encode(column, null_encoding="encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        _, firsts, codes = np.unique(codes, return_index=True, return_inverse=True)
    for at, part in Batch(rows).split(codes, len(firsts)):
        yield tuple(column[int(firsts[at])].as_py() for column in columns), part.rows


def _plain(column: pa.Array) -> pa.Array:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
