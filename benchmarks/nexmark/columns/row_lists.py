"""`RowLists`: several rows per key, in state in columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.datastream.functions import RuntimeContext
from holdfast.datastream.state import ColumnStateDescriptor

__all__ = ["RowLists"]


class RowLists:
    """Some rows of each key: for each column a state with a list of values."""

    def __init__(self, context: RuntimeContext, fields: Sequence[pa.Field], name: str) -> None:
        self._states = {
            field.name: context.get_column_state(
                ColumnStateDescriptor(f"{name}_{field.name}", pa.list_(field.type))
            )
            for field in fields
        }

    def get(self, keys: Any) -> tuple[pa.RecordBatch, Any]:
        """The rows of the distinct keys, and the number of the key of each."""
        lists = [state.get_distinct(keys) for state in self._states.values()]
        counts = pc.list_value_length(lists[0]).fill_null(0).to_numpy()
        rows = pa.record_batch([each.flatten() for each in lists], names=list(self._states))
        return rows, np.repeat(np.arange(len(counts)), counts)

    def put(self, keys: Any, rows: pa.RecordBatch, owners: Any) -> None:
        """Set the rows of the distinct keys; ``owners``: the number of the key of each row."""
        counts = np.bincount(owners, minlength=len(keys.slots))
        self.clear(keys.take(keys.last_rows[counts == 0]))
        some = np.flatnonzero(counts)
        if not len(some):
            return
        offsets = pa.array(np.concatenate(([0], np.cumsum(counts[some]))).astype(np.int32))
        order = pa.array(np.argsort(owners, kind="stable"))
        with_rows = keys.take(keys.last_rows[some])
        for name, state in self._states.items():
            state.put(with_rows, pa.ListArray.from_arrays(offsets, rows[name].take(order)))

    def add(self, keys: Any, rows: pa.RecordBatch) -> None:
        """Put a row behind those of each row's key."""
        before, owners = self.get(keys)
        columns = [pa.concat_arrays([before[name], rows[name]]) for name in before.schema.names]
        every = pa.record_batch(columns, names=before.schema.names)
        self.put(keys, every, np.concatenate((owners, keys.indices)))

    def clear(self, keys: Any) -> None:
        """Remove the rows of keys."""
        for state in self._states.values():
            state.clear(keys)
