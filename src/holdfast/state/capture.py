"""`Capture`: the state of a subtask at a barrier, to be written while the subtask goes on.

A capture is taken in the subtask's thread and written in any other one. It has all that it needs to
write: the writing thread never looks at the backend. What became of it is left in the capture, and
the backend takes note of that in the subtask's thread, before the next capture.

Captures are written in the order in which they were taken, since each builds on the chain of the
one before it. If one cannot be written, those that build on it fail, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from holdfast.errors import InternalError
from holdfast.state.chain import Chain
from holdfast.state.errors import StateStorageError
from holdfast.state.storage import StateStorage

__all__ = ["Capture", "Unchanged"]


class Capture(ABC):
    """What is to be written of a subtask's state.

    Attributes:
        chain: what `write` returned; None until then.
        failed: whether `write` has raised.
        pickled: the states of which something is pickled in what was written: operator, name, and
            whether it is by namespace.
    """

    def __init__(self, epoch: int, head: Chain, before: Capture | None) -> None:
        """Build on a chain; that of the capture ``before``, if that one is not written yet."""
        self.epoch = epoch
        self.chain: Chain | None = None
        self.failed = False
        self.pickled: set[tuple[str, str, bool]] = set()
        self._head = head
        self._before = before

    def write(self, storage: StateStorage, uploads: bool = False) -> Chain:
        """Write it, once, and return the chain that then is the state.

        ``uploads``: it also is where checkpoints are, then; if that fails, it counts as not
        written. Otherwise later states would build on a file that nobody keeps for them.

        Raises:
            StateStorageError: when it cannot be written, or the capture before it could not be. The
                changes are in the next capture that is taken.
        """
        try:
            chain = self._store(storage, self._predecessor())
            if uploads:
                storage.upload(file.name for file in chain.all_files)
            self.chain = chain
        except BaseException:
            self.failed = True
            raise
        finally:
            # NB: or all captures of a job would be kept, each by the next one.
            self._before = None
            self._release()
        return chain

    def drop(self) -> None:
        """Let go of it: nobody needs it any more. A `write` fails, unless it is under way."""
        self._release()

    @abstractmethod
    def _store(self, storage: StateStorage, head: Chain) -> Chain:
        """Write it as what comes after that chain."""

    @abstractmethod
    def _release(self) -> None:
        """Let go of what was to be written."""

    def _predecessor(self) -> Chain:
        if self.chain is not None or self.failed:
            message = f"the capture of epoch {self.epoch} is written a second time"
            raise InternalError(message)
        if self._before is None:
            return self._head
        if self._before.failed:
            message = (
                f"cannot write the state of epoch {self.epoch}: it builds on that of epoch "
                f"{self._before.epoch}, which could not be written; the next checkpoint has the "
                "changes of both"
            )
            raise StateStorageError(message)
        if self._before.chain is None:
            message = (
                f"the capture of epoch {self.epoch} is written before that of epoch "
                f"{self._before.epoch}; captures are written in the order they were taken"
            )
            raise InternalError(message)
        return self._before.chain


class Unchanged(Capture):
    """Nothing has changed: there is nothing to write, and the chain is that of before."""

    def _store(self, storage: StateStorage, head: Chain) -> Chain:
        return head

    def _release(self) -> None:
        pass
