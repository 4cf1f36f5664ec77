"""Requests for checkpoints and savepoints. They come from any thread, and are answered once."""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

from holdfast.checkpoint.errors import CheckpointError
from holdfast.checkpoint.events import AnswerRequest, CheckpointRequested
from holdfast.common import CompletableFuture
from holdfast.filesystem import check_scheme


class CheckpointRequests:
    """The requests of users, and of the job itself, to the coordinator."""

    def __init__(self, checkpoints: bool, savepoints: str | None) -> None:
        """Start without requests.

        ``checkpoints``: the job takes checkpoints. ``savepoints``: default directory of savepoints.
        """
        self._checkpoints = checkpoints
        self._savepoints = savepoints
        self._queue: SimpleQueue[CheckpointRequested] = SimpleQueue()
        #: the future of each request: the id of a checkpoint, or the path of a savepoint
        self._answers: dict[str, CompletableFuture[Any]] = {}

    def ask_savepoint(
        self, directory: str | None, stop: bool = False, drain: bool = False
    ) -> CompletableFuture[str]:
        """Request a savepoint with one of the next epochs."""
        target = directory or self._savepoints
        if target is None:
            message = (
                "a savepoint needs a directory: name one, or set "
                "'execution.checkpointing.savepoint-dir'"
            )
            return CompletableFuture.failed(CheckpointError(message))
        try:
            check_scheme(target)
        except ValueError as error:
            problem = CheckpointError(f"there is no savepoint: {error}")
            return CompletableFuture.failed(problem)
        return self._ask(target, stop, drain)

    def ask_checkpoint(self, halts: bool = False) -> CompletableFuture[int]:
        """Request a checkpoint with one of the next epochs, even if none is due.

        ``halts``: nothing is read after it, because the job leaves its plan with it.
        """
        if not self._checkpoints:
            message = (
                "the job takes no checkpoints; set 'execution.checkpointing.interval', or "
                "take a savepoint"
            )
            return CompletableFuture.failed(CheckpointError(message))
        return self._ask(None, leaves=halts)

    def _ask(
        self, directory: str | None, stop: bool = False, drain: bool = False, leaves: bool = False
    ) -> CompletableFuture[Any]:
        answer: CompletableFuture[Any] = CompletableFuture()
        request = CheckpointRequested(directory, stop, drain, str(id(answer)), leaves)
        self._answers[request.request] = answer
        self._queue.put(request)
        return answer

    @property
    def waiting(self) -> bool:
        """Return whether there are requests that were not taken yet."""
        return not self._queue.empty()

    def take(self) -> Iterator[CheckpointRequested]:
        """Yield and remove the requests that have arrived; called by one thread only."""
        while self.waiting:
            yield self._queue.get_nowait()

    def answer(self, answer: AnswerRequest) -> None:
        """Report the result of a request to the caller."""
        asked, savepoint = self._answers.pop(answer.request.request), answer.request.directory
        if answer.failure is not None:
            what = "checkpoint" if savepoint is None else "savepoint"
            asked.set_exception(CheckpointError(f"there is no {what}: {answer.failure}"))
        else:
            asked.set_result(answer.checkpoint_id if savepoint is None else answer.path)

    def refuse(self) -> None:
        """Fail the requests that are unanswered when the job has ended."""
        while self._answers:
            self._answers.popitem()[1].set_exception(
                CheckpointError("there is no checkpoint: the job has ended")
            )
