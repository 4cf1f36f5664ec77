"""The handle on a running job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from holdfast.common.completable_future import CompletableFuture
from holdfast.common.job_execution_result import JobExecutionResult
from holdfast.common.job_id import JobID
from holdfast.common.job_status import JobStatus

__all__ = ["JobClient"]


class JobClient(ABC):
    """A client for one job, as `execute_async` returns it.

    Every request returns at once with a future; whatever goes wrong is the future's exception.
    """

    @abstractmethod
    def get_job_id(self) -> JobID:
        """Return the id of the job."""

    @abstractmethod
    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """Ask what the job is doing."""

    @abstractmethod
    def cancel(self) -> CompletableFuture[None]:
        """Stop the job without a savepoint; the future completes when it has stopped."""

    @abstractmethod
    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """Take a savepoint and stop the job; the result is the path of the savepoint.

        With ``advance_to_end_of_event_time`` the last watermark is sent first, so that all
        event-time timers and windows fire before the savepoint.
        """

    @abstractmethod
    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Take a savepoint and go on; the result is the path of the savepoint."""

    @abstractmethod
    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """Ask for the accumulators, while the job runs or after it."""

    @abstractmethod
    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Ask for the result of the job; the future completes when the job is over."""

    @abstractmethod
    def get_epochs(self) -> list[Any]:
        """Return a report of each of the last epochs; not in PyFlink.

        A report has ``epoch``, ``started``, ``seconds``, ``read``, ``records``, ``quota``,
        ``steps``, ``memory`` and ``state_bytes``. What the steps are: ``docs/internals/epoch.md``.
        """

    @abstractmethod
    def get_metrics(self) -> dict[Any, dict[str, Any]]:
        """Return the users' metrics as of the last epoch; not in PyFlink.

        The keys are operator uid and subtask; the values are by metric name.
        """

    @abstractmethod
    def query_state(
        self, operator: str, state: str, key: Any, window: Any = None
    ) -> CompletableFuture[Any]:
        """Ask for what a key has in a keyed state as of the last completed epoch; not in PyFlink.

        The result is a plain value: a list or a dict of list and map states, an accumulator, a dict
        for a record; None if the key has nothing. What has a time-to-live may be over.

        Args:
            operator: its uid, or its name if no other has that.
            state: the name of the state.
            key: exactly what the key selector returns.
            window: of state that is kept by window: the window, or its start and end.
        """

    @abstractmethod
    def get_watermarks(self) -> dict[str, int]:
        """Return how far time was after the last epoch, by operator uid; not in PyFlink.

        The least of the subtasks counts. An operator without time is not there.
        """

    @abstractmethod
    def get_attempts(self) -> tuple[Any, ...]:
        """Return a report of each attempt, oldest first; not in PyFlink.

        A report has ``number``, ``started``, ``checkpoint``, ``failure`` and ``failed``.
        """

    @abstractmethod
    def get_checkpoints(self) -> tuple[Any, ...]:
        """Return the last checkpoints and savepoints, oldest first; not in PyFlink.

        One has ``id``, ``status``, ``trigger_timestamp``, ``end_timestamp``, ``duration``,
        ``size``, ``written``, ``failure`` and ``savepoint``.
        """
