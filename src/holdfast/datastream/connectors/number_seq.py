"""A source of consecutive numbers, divided over its subtasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.common import Types
from holdfast.datastream.columns.batch import AT_ONCE, Batch, BatchList
from holdfast.datastream.columns.types import BatchTypeInfo
from holdfast.datastream.connectors._sequence import SequenceSource

__all__ = ["NumberSequenceSource"]


class NumberSequenceSource(SequenceSource):
    """The numbers from ``start`` to ``end``, both included; a subtask emits its share in order."""

    def __init__(self, start: int, end: int) -> None:
        """Check the bounds; an empty sequence is an error as in Flink."""
        if start > end:
            message = f"NumberSequenceSource: start {start} is above end {end}"
            raise ValueError(message)
        self.start = start
        self.end = end

    def in_batches(self) -> NumberSequenceSource:
        """Return the source of the same numbers in batches, with one column, ``value``."""
        source = NumberSequenceSource(self.start, self.end)
        source.batch_type = BatchTypeInfo(Types.LONG())
        return source

    def sequence(self) -> Sequence[Any]:
        """Return all numbers."""
        numbers = range(self.start, self.end + 1)
        return numbers if self.batch_type is None else _NumbersInBatches(numbers, self.batch_type)


class _NumbersInBatches(Sequence[Any]):
    """Numbers; a slice of it is a batch."""

    at_once = AT_ONCE

    def __init__(self, numbers: range, kind: BatchTypeInfo) -> None:
        self._numbers = numbers
        self._schema = kind.schema

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, place: Any) -> Any:
        chosen = self._numbers[place]
        values = pa.array(np.arange(chosen.start, chosen.stop, dtype=np.int64))
        return BatchList([Batch(pa.RecordBatch.from_arrays([values], schema=self._schema))])
