"""Batches in memory, as a sequence of rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from holdfast.datastream.columns.batch import AT_ONCE, Batch, BatchList
from holdfast.datastream.columns.types import BatchTypeInfo
from holdfast.errors import JobTypeError


class RowsOfBatches(Sequence[Any]):
    """The rows of batches of one schema. A slice of it is a list of batches.

    Attributes:
        batch_type: the type of a stream of these rows.
        at_once: how many rows a reader takes at once, at most.
    """

    at_once = AT_ONCE

    def __init__(self, batches: Sequence[pa.RecordBatch], declared: Any = None) -> None:
        """Take the batches; ``declared``: the type of the records, if it is not just rows."""
        schema = batches[0].schema
        for batch in batches:
            if not batch.schema.equals(schema):
                message = (
                    "from_collection: all batches must have the same columns; got "
                    f"{schema.names} and {batch.schema.names} (or other types)"
                )
                raise JobTypeError(message)
        if isinstance(declared, BatchTypeInfo):
            declared = declared.declared
        self.batch_type = BatchTypeInfo(schema if declared is None else declared)
        if declared is not None and not self.batch_type.schema.equals(schema):
            message = (
                f"from_collection: the batches have the columns {schema}; the declared type "
                f"{declared!r} has {self.batch_type!r}"
            )
            raise JobTypeError(message)
        self._batches = [batch for batch in batches if batch.num_rows]
        self._firsts: list[int] = list(accumulate((b.num_rows for b in self._batches), initial=0))

    def __len__(self) -> int:
        return self._firsts[-1]

    def __getitem__(self, place: Any) -> Any:
        first, last, _ = place.indices(len(self))
        found = BatchList()
        while first < last:
            at = bisect_right(self._firsts, first) - 1
            count = min(last, self._firsts[at + 1]) - first
            found.append(Batch(self._batches[at].slice(first - self._firsts[at], count)))
            first += count
        return found
