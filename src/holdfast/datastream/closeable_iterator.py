"""What ``execute_and_collect`` returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["CloseableIterator"]


class CloseableIterator:
    """Iterates over the records of a running job; closing it cancels the job."""

    def __init__(self, records: Iterator[Any], close: Callable[[], None]) -> None:
        """Take the records and what ends the job behind them."""
        self._records = records
        self._close = close

    def __iter__(self) -> CloseableIterator:
        return self

    def __next__(self) -> Any:
        return next(self._records)

    def next(self) -> Any:
        """The next record."""
        return next(self._records)

    def close(self) -> None:
        """Cancel the job if it still runs."""
        self._close()

    def __enter__(self) -> CloseableIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
