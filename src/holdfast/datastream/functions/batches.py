"""Functions that take many records at once, as columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from holdfast.datastream.functions.base import Function

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.datastream.output_tag import OutputTag
    from holdfast.state.columns.keys import Keys

__all__ = ["BatchFunction", "KeyedBatchFunction"]


class BatchFunction(Function):
    """A function of batches, for ``DataStream.map_batches``."""

    @abstractmethod
    def map_batch(self, batch: pa.RecordBatch) -> Iterable[Any] | Any:
        """Return or yield the results for the rows of a batch: a batch, several, or None."""


class KeyedBatchFunction(Function):
    """A function of batches with state per key, for ``KeyedStream.process_batches``.

    Request states in ``open`` with ``runtime_context.get_column_state``.
    """

    class Context(ABC):
        """What a function is told about a batch, or about timers."""

        @property
        @abstractmethod
        def timestamps(self) -> pa.Array | None:
            """Return the event timestamp of each row, in milliseconds; None if there are none."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the watermark."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the time of this machine's clock, in milliseconds."""

        @abstractmethod
        def register_timers(self, keys: Keys, timestamps: Any) -> None:
            """Register an event-time timer for each row: at its timestamp, for its key.

            ``timestamps`` is an array with a time for each row of ``keys``, in milliseconds; null
            registers none. Equal timers of one key are one timer.
            """

        @abstractmethod
        def output(self, output_tag: OutputTag, batch: Any) -> None:
            """Emit rows to a side output, whose tag has a ``BatchTypeInfo``."""

    @abstractmethod
    def process_batch(
        self, batch: pa.RecordBatch, keys: Keys, ctx: KeyedBatchFunction.Context
    ) -> Iterable[Any] | Any:
        """Return or yield the results for the rows of a batch: a batch, several, or None.

        ``keys`` are the keys of the rows (`Keys`), with which states are read and changed.
        """

    def on_timers(
        self, keys: Keys, timestamps: pa.Array, ctx: KeyedBatchFunction.Context
    ) -> Iterable[Any] | Any:
        """Return or yield the results for timers that are due: a key and a time for each of them.

        Timers are passed in the order of their times. A key that has several timers at different
        times occurs several times.
        """
        return None
