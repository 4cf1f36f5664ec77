"""The function of ``DataStream.project``."""

from __future__ import annotations

from typing import Any


class Projection:
    """Keeps some fields of a record, as a tuple."""

    def __init__(self, indexes: tuple[int, ...]) -> None:
        """Keep the fields at these indexes, in this order."""
        self._indexes = indexes

    def __call__(self, record: Any) -> tuple[Any, ...]:
        """Return the fields."""
        return tuple(record[index] for index in self._indexes)
