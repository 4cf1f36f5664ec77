"""An iterator over the records of a running job.

The job runs only for the iteration. It is cancelled when the iterator is closed, when an interrupt
reaches the loop over it, and when the iterator is garbage collected after a ``break``.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from holdfast.tracebacks import ipython_shell

#: the iterators whose loop an interrupt of a notebook's cell may have left
_in_notebook: weakref.WeakSet[CloseableIterator] = weakref.WeakSet()


class CloseableIterator:
    """An iterator over the records of a running job; closing it cancels the job."""

    def __init__(
        self, records: Iterator[Any], close: Callable[[], None], cancel: Callable[[], object]
    ) -> None:
        """Create an iterator over the records of a job.

        Args:
            records: the records.
            close: cancels the job and waits for its end; called in the thread of the reader.
            cancel: requests the same from any thread, without waiting.
        """
        self._records = records
        self._job = _Job(close, cancel)
        weakref.finalize(self, self._job.abandon).atexit = False
        shell = ipython_shell()
        if shell is not None:
            _watch_cells(shell)
            _in_notebook.add(self)

    def __iter__(self) -> CloseableIterator:
        return self

    def __next__(self) -> Any:
        job = self._job
        job.is_read = job.in_cell = True
        try:
            return next(self._records)
        except StopIteration:
            job.is_open = False
            raise
        except KeyboardInterrupt as interrupt:
            self.close()
            raise interrupt.with_traceback(None) from None  # where it waited tells nothing

    def next(self) -> Any:
        """Return the next record."""
        return next(self)

    def close(self) -> None:
        """Cancel the job if it is still running."""
        self._job.close()

    def cancel(self) -> None:
        """Request the end of the job, from any thread; the records end soon, with an error."""
        self._job.cancel()

    def __enter__(self) -> CloseableIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Job:
    """The job of an iterator.

    Attributes:
        is_open: whether the job may still run.
        is_read: whether the program has asked for a record.
        in_cell: whether it did in the current cell of a notebook.
    """

    def __init__(self, close: Callable[[], None], cancel: Callable[[], object]) -> None:
        self._close = close
        self.cancel = cancel
        self.is_open = True
        self.is_read = self.in_cell = False

    def close(self) -> None:
        self.is_open = False
        self._close()

    def abandon(self) -> None:
        """Cancel a job whose records nobody can read any more.

        A job whose records were never asked for goes on: the program may want only its sinks.
        """
        if self.is_open and self.is_read:
            # NB: an object is garbage collected anywhere, also while locks of the job are held
            threading.Thread(target=self.cancel, name="holdfast-abandon", daemon=True).start()


def _watch_cells(shell: Any) -> None:
    """Call `_cell_ended` after each cell."""
    if _cell_ended not in shell.events.callbacks.get("post_run_cell", ()):
        shell.events.register("post_run_cell", _cell_ended)


def _cell_ended(result: Any) -> None:
    """Cancel the jobs that the cell was reading, if an interrupt has ended it.

    The interrupt may have reached the body of the loop instead of the iterator, and the notebook
    keeps the iterator, for the traceback.
    """
    interrupted = isinstance(result.error_in_exec, KeyboardInterrupt)
    for iterator in list(_in_notebook):
        job = iterator._job
        if interrupted and job.in_cell and job.is_open:
            job.close()
        job.in_cell = False
