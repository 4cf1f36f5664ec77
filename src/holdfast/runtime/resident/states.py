"""Writes the states of checkpoints to the storage, in a thread beside that of the subtask."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from queue import SimpleQueue
from typing import Final

from holdfast.errors import HoldfastError
from holdfast.runtime.protocol import StoredState
from holdfast.runtime.resident.outbox import Post
from holdfast.state.backend import StateStorage
from holdfast.state.capture import Capture
from holdfast.state.chain import Chain

__all__ = ["StateWriter", "needed_chains"]

#: stands for the checkpoint that the attempt began with, which is older than all others
_BEGINNING: Final = -1


class StateWriter:
    """Writes captures in the order in which they were taken.

    Attributes:
        chain: the head of what was written last.
    """

    def __init__(
        self,
        storage: StateStorage,
        post: Post,
        clock: Callable[[], int],
        place: tuple[int, int],
        keep: Callable[[set[str]], None],
    ) -> None:
        """Write for the subtask at that level and of that number; the thread starts when needed.

        ``keep``: is told which state files the host should keep; it may delete all others.
        """
        self.chain = Chain()
        #: the chains of the checkpoints that a restart may go back to
        self._chains: Mapping[int, Chain] = {}
        self._completed = _BEGINNING
        self._keep = keep
        self._storage = storage
        self._post = post
        self._clock = clock
        self._place = place
        self._captures: SimpleQueue[tuple[int, Capture, float] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    def begin(self, chain: Chain) -> None:
        """Begin where an attempt does, before its state is loaded."""
        self.chain = chain
        self._chains = {_BEGINNING: chain}
        self._keep_files()

    def note_completed(self, checkpoints: Iterable[int]) -> None:
        """Take note of checkpoints that are complete; from the thread of the subtask.

        What only earlier ones needed is deleted when the next state has been written.
        """
        self._completed = max(self._completed, *checkpoints, _BEGINNING)

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
            if failure is None:
                self._chains = needed_chains(
                    {**self._chains, checkpoint: self.chain}, self._completed
                )
                self._keep_files()

    def _keep_files(self) -> None:
        self._keep({file.name for chain in self._chains.values() for file in chain.all_files})


def needed_chains(chains: Mapping[int, Chain], completed: int) -> dict[int, Chain]:
    """Return the chains, by checkpoint, that a restart may go back to.

    It goes back to the last checkpoint that is complete, or to a later one that will be.
    """
    last = max((checkpoint for checkpoint in chains if checkpoint <= completed), default=_BEGINNING)
    return {checkpoint: chain for checkpoint, chain in chains.items() if checkpoint >= last}
