"""One attempt of a job: a Structured Streaming query, each of whose micro-batches is a turn.

The query's input is a stream of ticks, together with the DataFrames that the job reads. Spark calls
`foreachBatch` for each micro-batch, in a thread of its own. That thread serves the job's thread
during the turn: Spark jobs that it starts belong to the query, and end with it.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.errors import JobExecutionError
from holdfast.printable import printable
from holdfast.spark.epochs.rows import RowSources
from holdfast.spark.jvm import DriverJvm

#: the interval at which the query is polled, in seconds
_LOOK: Final = 0.02
#: how long a query may take to end, in seconds
_PATIENCE: Final = 10

T = TypeVar("T")


class Turn:
    """A micro-batch, and the thread in which Spark delivers it.

    Attributes:
        batch: its rows.
        number: its number in Spark.
    """

    def __init__(self, batch: DataFrame, number: int) -> None:
        """Create a turn; `serve` waits for calls."""
        self.batch, self.number = batch, number
        self._calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._results: SimpleQueue[tuple[object, BaseException | None]] = SimpleQueue()

    def serve(self) -> None:
        """Execute calls until the turn ends.

        Raises:
            JobExecutionError: if the turn is discarded, so that Spark does not commit the batch.
        """
        while True:
            call = self._calls.get()
            if call is _keep:
                return
            if call is _discard:
                raise JobExecutionError("the epoch is not part of the job")
            try:
                self._results.put((call(), None))
            except BaseException as error:
                self._results.put((None, error))

    def call(self, do: Callable[[], T], check: Callable[[], None]) -> T:
        """Call a function in the serving thread; ``check`` may raise an error meanwhile."""
        self._calls.put(do)
        while True:
            try:
                result, error = self._results.get(timeout=_LOOK)
            except Empty:
                check()
                continue
            if error is not None:
                raise error
            return result  # type: ignore[return-value]

    def end(self, kept: bool) -> None:
        """Release the serving thread; ``kept`` means that the epoch has become part of the job."""
        self._calls.put(_keep if kept else _discard)


def _keep() -> None:
    """Mark the end of a turn."""


def _discard() -> None:
    """Mark the end of a turn that is discarded."""


class Attempt:
    """A query that runs until it is stopped or fails."""

    def __init__(self, name: str, rows: RowSources, jvm: DriverJvm) -> None:
        """Create an attempt without starting it; ``name`` is the name of the job."""
        self._name = name
        self._rows = rows
        self._jvm = jvm
        self._turns: SimpleQueue[Turn] = SimpleQueue()
        #: held while a turn is delivered, so that none is delivered once the attempt is stopped
        self._handing_over = threading.Lock()
        self._stopped = False
        #: held while a turn is served
        self._serving = threading.Lock()
        self._query: StreamingQuery | None = None

    def start(self, log: str, interval_ms: int) -> None:
        """Start the query; Spark writes its log to the directory ``log``."""
        writer = (
            self._rows.stream()
            .writeStream.foreachBatch(self._take_turn)
            .queryName(f"{printable(self._name)}-{uuid.uuid4().hex[:8]}")
            .option("checkpointLocation", log)
            .trigger(processingTime=f"{interval_ms} milliseconds")
        )
        self._query = writer.start()

    def _take_turn(self, batch: DataFrame, number: int) -> None:
        """Called by Spark for every micro-batch."""
        with self._serving:
            turn = Turn(batch, number)
            with self._handing_over:
                if self._stopped:
                    return
                self._turns.put(turn)
            turn.serve()

    def next_turn(self) -> Turn:
        """Wait for the next micro-batch.

        Raises:
            JobExecutionError: if the query has ended.
        """
        assert self._query is not None
        while True:
            try:
                return self._turns.get(timeout=_LOOK)
            except Empty:
                self._jvm.check()
                if not self._query.isActive:
                    raise self._query.exception() or _ended(self._name) from None

    def stop(self, turn: Turn | None) -> None:
        """Stop the query, and wait until its thread has left the turn, which is discarded."""
        with self._handing_over:
            self._stopped = True
        while not self._turns.empty():
            turn = self._turns.get()
        if turn is not None:
            turn.end(kept=False)
        if self._query is None or self._jvm.lost() is not None:
            return
        if turn is not None:
            with contextlib.suppress(PySparkException):
                self._query.awaitTermination(_PATIENCE)
        self._query.stop()
        # NB: a turn may still be served although its query has ended
        while not self._serving.acquire(timeout=_LOOK):
            self._jvm.check()


def _ended(name: str) -> JobExecutionError:
    return JobExecutionError(f"the query of job '{name}' was stopped")
