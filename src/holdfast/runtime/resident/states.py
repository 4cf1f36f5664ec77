"""Writes the states of checkpoints to the storage, in a separate thread for each subtask."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from queue import SimpleQueue
from typing import Final

from holdfast.errors import HoldfastError
from holdfast.runtime.resident.outbox import Post
from holdfast.runtime.wire.protocol import StoredState
from holdfast.state.backend import StateStorage
from holdfast.state.backends.capture import Capture
from holdfast.state.format.head import Head

#: stands for the checkpoint that the attempt started from, which is older than all others
_BEGINNING: Final = -1


class StateWriter:
    """Writes captures in the order in which they were taken.

    Attributes:
        head: the head of the state that was written last.
    """

    def __init__(
        self,
        storage: StateStorage,
        post: Post,
        clock: Callable[[], int],
        place: tuple[int, int],
        keep: Callable[[set[str]], None],
    ) -> None:
        """Write for the subtask with this level and number; the thread starts when needed.

        ``keep``: called with the names of the state files that the host should keep. It may delete
        all others.
        """
        self.head = Head()
        #: the heads of the checkpoints that a restart may return to
        self._heads: Mapping[int, Head] = {}
        self._completed = _BEGINNING
        self._keep = keep
        self._storage = storage
        self._post = post
        self._clock = clock
        self._place = place
        self._captures: SimpleQueue[tuple[int, Capture, float] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    def begin(self, head: Head) -> None:
        """Start with the head of an attempt, before its state is loaded."""
        self.head = head
        self._heads = {_BEGINNING: head}
        self._keep_files()

    def note_completed(self, checkpoints: Iterable[int]) -> None:
        """Record checkpoints that are complete; called in the thread of the subtask.

        Files that only earlier ones needed are deleted when the next state has been written.
        """
        self._completed = max(self._completed, *checkpoints, _BEGINNING)

    def write(self, checkpoint: int, capture: Capture) -> None:
        """Write a capture, and report it to the driver."""
        self._captures.put((checkpoint, capture, time.perf_counter()))
        self._wake()

    def _wake(self) -> None:
        """Start the thread if needed, because there is something to write."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="holdfast-state", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Write no more; a write in progress may still complete."""
        self._closed = True
        self._captures.put(None)

    def _run(self) -> None:
        while (item := self._captures.get()) is not None and not self._closed:
            self._store(*item)

    def _store(self, checkpoint: int, capture: Capture, began: float) -> None:
        failure = None
        try:
            self.head = capture.write(self._storage, uploads=True)
        except HoldfastError as error:
            failure = str(error)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        seconds = time.perf_counter() - began
        pickled = tuple(sorted(capture.pickled))
        now = self._clock()
        state = StoredState(checkpoint, *self._place, self.head, failure, now, seconds, pickled)
        if not self._closed:
            self._post.stored(state)
            if failure is None:
                self._heads = needed_heads({**self._heads, checkpoint: self.head}, self._completed)
                self._keep_files()

    def _keep_files(self) -> None:
        self._keep({file.name for head in self._heads.values() for file in head.all_files})


def needed_heads(heads: Mapping[int, Head], completed: int) -> dict[int, Head]:
    """Return the heads, by checkpoint, that a restart may return to.

    It returns to the last complete checkpoint, or to a later one that will be complete.
    """
    last = max((checkpoint for checkpoint in heads if checkpoint <= completed), default=_BEGINNING)
    return {checkpoint: head for checkpoint, head in heads.items() if checkpoint >= last}
