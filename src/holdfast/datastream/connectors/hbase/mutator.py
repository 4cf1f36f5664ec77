"""Buffers mutations of an HBase table and sends them in the background, in batches."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from holdfast.common.time import wall_clock
from holdfast.datastream.connectors.hbase.options import HBaseWriteOptions
from holdfast.datastream.connectors.hbase.rows import Cells

#: how many full batches may wait for the one being sent, before the next mutation waits, too
_WAITING = 1
#: in seconds
_LONGEST_END = 1.0


@dataclass
class Batch:
    """Mutations that are sent in one call.

    All have the same timestamp, taken with the first of them. So the order of mutations depends on
    their timestamps and not on when they arrive: a batch may be sent twice, and a call that
    was given up may still be executed by a server later, without hiding newer values.

    Attributes:
        timestamp: in milliseconds; no two batches of a mutator have the same.
        rows: one merged mutation for each row.
        mutations: the number of mutations before merging.
        size: of keys, columns and values, in bytes.
    """

    timestamp: int
    rows: dict[bytes, Cells] = field(default_factory=dict)
    mutations: int = 0
    size: int = 0

    def add(self, key: bytes, cells: Cells) -> None:
        """Take a mutation."""
        self.rows.setdefault(key, {}).update(cells)
        self.mutations += 1
        self.size += len(key) + sum(len(c) + len(v or b"") for c, v in cells.items())


class BufferedMutator:
    """Sends a batch when it has enough mutations or bytes, or is old enough.

    One thread takes mutations; another sends, one batch after the other, and exists only while
    there is something to send, because a function whose epoch has failed is not closed. An error in
    it is raised at the next call. The batch is kept and sent again after that, so a caller that
    retries loses nothing.

    Invariant: what is not known to be written is in ``_unsent``, oldest batch first; the last of
    them may still be filled. Consequence: ``unsent`` returns all that another mutator needs
    to continue.
    """

    def __init__(self, send: Callable[[Batch], None], options: HBaseWriteOptions) -> None:
        """Send nothing yet; ``send`` is called by a thread of this object."""
        self._send = send
        self._options = options
        self._unsent: deque[Batch] = deque()
        self._filling: Batch | None = None
        self._filling_since = 0.0
        #: of the latest batch; the next one is later, even if the clock was set back
        self.last_timestamp = 0
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._sender: threading.Thread | None = None

    def mutate(self, key: bytes, cells: Cells) -> None:
        """Take a mutation; waits while too much is in flight.

        Raises:
            Exception: the error of an earlier mutation.
        """
        with self._changed:
            self._raise_error()
            batch = self._filling or self._begin()
            batch.add(key, cells)
            if self._is_full(batch):
                self._hand_over()
                self._wait_until(lambda: len(self._unsent) <= 1 + _WAITING)

    def flush(self) -> None:
        """Send everything, and wait until HBase has it.

        Raises:
            Exception: the error; nothing is lost, and flush can be called again.
        """
        with self._changed:
            self._raise_error()
            self._hand_over()
            self._wait_until(lambda: not self._unsent)

    def unsent(self) -> list[Batch]:
        """Return the batches that may not be written; valid until the next mutation."""
        with self._changed:
            return list(self._unsent)

    def replace(self, unsent: Iterable[Batch], last_timestamp: int) -> None:
        """Replace all batches by those that another mutator had not sent."""
        with self._changed:
            self._error = None
            self._unsent = deque(unsent)
            self.last_timestamp = max(self.last_timestamp, last_timestamp)
            self._hand_over()

    def close(self) -> bool:
        """Drop what is not sent; return whether the thread ended, or is still blocked in a call."""
        with self._changed:
            self._unsent.clear()
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._sender is None, _LONGEST_END)

    def _begin(self) -> Batch:
        self.last_timestamp = max(wall_clock(), self.last_timestamp + 1)
        self._filling = Batch(self.last_timestamp)
        self._filling_since = time.monotonic()
        self._unsent.append(self._filling)
        if self._options.buffer_flush_interval_millis:
            self._wake()
        return self._filling

    def _hand_over(self) -> None:
        """Send everything immediately."""
        self._filling = None
        if self._unsent:
            self._wake()

    def _is_full(self, batch: Batch) -> bool:
        rows = self._options.buffer_flush_max_rows
        size = self._options.buffer_flush_max_size_in_bytes
        return 0 < rows <= batch.mutations or 0 < size <= batch.size

    def _wait_until(self, done: Callable[[], bool]) -> None:
        self._changed.wait_for(lambda: done() or self._error is not None)
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _wake(self) -> None:
        """Start the sending thread if something is due."""
        self._changed.notify_all()
        if self._sender is None:
            sender = threading.Thread(target=self._run, name="hbase-sender", daemon=True)
            sender.start()
            self._sender = sender

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            error: BaseException | None = None
            try:
                self._send(batch)
            except BaseException as problem:  # whatever it is: a caller waits for this thread
                error = problem
            with self._changed:
                # NB: it is another one if all were replaced meanwhile.
                if self._unsent and self._unsent[0] is batch:
                    self._error = error
                    if error is None:
                        self._unsent.popleft()
                self._changed.notify_all()

    def _next(self) -> Batch | None:
        """Wait for the next batch to send; None if there is none before another call."""
        with self._changed:
            while self._unsent and self._error is None:
                batch = self._unsent[0]
                left = self._time_left(batch)
                if left is None:
                    break
                if left <= 0:
                    self._filling = None if batch is self._filling else self._filling
                    return batch
                self._changed.wait(left)
            self._sender = None
            self._changed.notify_all()
            return None

    def _time_left(self, batch: Batch) -> float | None:
        """Return the seconds until a batch is due; None: not before a flush."""
        if batch is not self._filling:
            return 0
        interval = self._options.buffer_flush_interval_millis
        return self._filling_since + interval / 1000 - time.monotonic() if interval else None
