"""Writes the states of checkpoints to the storage, in a thread beside that of the subtask."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from holdfast.errors import HoldfastError
from holdfast.runtime.protocol import StoredState
from holdfast.runtime.resident.outbox import Post
from holdfast.state.backend import StateStorage
from holdfast.state.capture import Capture
from holdfast.state.chain import Chain

__all__ = ["StateWriter"]


class StateWriter:
    """Writes captures in the order in which they were taken.

    Attributes:
        chain: the head of what was written last.
    """

    def __init__(
        self, storage: StateStorage, post: Post, clock: Callable[[], int], place: tuple[int, int]
    ) -> None:
        """Write for the subtask at that level and of that number; the thread starts when needed."""
        self.chain = Chain()
        self._storage = storage
        self._post = post
        self._clock = clock
        self._place = place
        self._captures: SimpleQueue[tuple[int, Capture, float] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    def write(self, checkpoint: int, capture: Capture) -> None:
        """Write a capture, and tell the driver."""
        self._captures.put((checkpoint, capture, time.perf_counter()))
        self._wake()

    def _wake(self) -> None:
        """There is something to write."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="holdfast-state", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Write no more; what is being written may still come to its end."""
        self._closed = True
        self._captures.put(None)

    def _run(self) -> None:
        while (item := self._captures.get()) is not None and not self._closed:
            self._store(*item)

    def _store(self, checkpoint: int, capture: Capture, began: float) -> None:
        failure = None
        try:
            self.chain = capture.write(self._storage, uploads=True)
        except HoldfastError as error:
            failure = str(error)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        seconds = time.perf_counter() - began
        pickled = tuple(sorted(capture.pickled))
        now = self._clock()
        state = StoredState(checkpoint, *self._place, self.chain, failure, now, seconds, pickled)
        if not self._closed:
            self._post.stored(state)
