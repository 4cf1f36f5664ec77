"""Buffers mutations of an HBase table and sends them in the background, in batches."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from holdfast.common.time import wall_clock
from holdfast.datastream.connectors._hbase_options import HBaseWriteOptions
from holdfast.datastream.connectors._hbase_rows import Cells

__all__ = ["Batch", "BufferedMutator"]

#: how many full batches may wait for the one that is under way, before the next mutation waits too
_WAITING = 1
#: in seconds
_LONGEST_END = 1.0


@dataclass
class Batch:
    """Mutations that are sent in one call.

    All have one timestamp, taken when the first of them came. It makes the order of mutations a
    matter of what they say and not of when they arrive: a batch may be sent twice, and a call that
    was given up may still be carried out by a server later, without hiding what came after.

    Attributes:
        timestamp: in milliseconds; no two batches of a mutator have the same.
        rows: for each row one mutation, in which all that came are merged.
        mutations: how many came.
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
    """Sends a batch when it holds enough mutations, or bytes, or is old enough.

    One thread takes mutations; another sends, one batch after the other, and is there only while
    there is something to send: nobody closes a function whose epoch has failed. What goes wrong in
    it is raised at the next call here. The batch is kept and sent again after that, so whoever asks
    again loses nothing.

    Invariant: what is not known to be written is in ``_unsent``, oldest batch first; the last of
    them may still be filled. Consequence: what ``unsent`` returns is all that another mutator needs
    to go on from here.
    """

    def __init__(self, send: Callable[[Batch], None], options: HBaseWriteOptions) -> None:
        """Send nothing yet; ``send`` is called by a thread of this object."""
        self._send = send
        self._options = options
        self._unsent: deque[Batch] = deque()
        self._filling: Batch | None = None
        self._filling_since = 0.0
        #: of the latest batch; the next one is later, even if the clock was put back
        self.last_timestamp = 0
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._sender: threading.Thread | None = None

    def mutate(self, key: bytes, cells: Cells) -> None:
        """Take a mutation; waits while too much is under way.

        Raises:
            Exception: what went wrong with an earlier one.
        """
        with self._changed:
            self._raise_error()
            batch = self._filling or self._begin()
            batch.add(key, cells)
            if self._is_full(batch):
                self._hand_over()
                self._wait_until(lambda: len(self._unsent) <= 1 + _WAITING)

    def flush(self) -> None:
        """Send what there is, and wait until HBase has it.

        Raises:
            Exception: what went wrong; nothing is forgotten, so that flush can be called again.
        """
        with self._changed:
            self._raise_error()
            self._hand_over()
            self._wait_until(lambda: not self._unsent)

    def unsent(self) -> list[Batch]:
        """What is not known to be written; valid until the next mutation."""
        with self._changed:
            return list(self._unsent)

    def replace(self, unsent: Iterable[Batch], last_timestamp: int) -> None:
        """Take what another mutator, or this one at another time, had not sent."""
        with self._changed:
            self._error = None
            self._unsent = deque(unsent)
            self.last_timestamp = max(self.last_timestamp, last_timestamp)
            self._hand_over()

    def close(self) -> bool:
        """Let go of what is not sent; whether the thread ended, or a call still holds it up."""
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
        """Let everything be sent at once."""
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
        """See that somebody sends what is due."""
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
            except BaseException as problem:  # whatever it is: somebody waits for this thread
                error = problem
            with self._changed:
                # NB: it is another one if all were replaced meanwhile.
                if self._unsent and self._unsent[0] is batch:
                    self._error = error
                    if error is None:
                        self._unsent.popleft()
                self._changed.notify_all()

    def _next(self) -> Batch | None:
        """Wait for a batch that is to be sent; None if there will be none without a call."""
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
        """How many seconds until a batch is to be sent; None: when somebody says so."""
        if batch is not self._filling:
            return 0
        interval = self._options.buffer_flush_interval_millis
        return self._filling_since + interval / 1000 - time.monotonic() if interval else None
