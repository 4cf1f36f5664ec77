"""The handle of a running job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from html import escape
from typing import Any

from holdfast.common.completable_future import CompletableFuture
from holdfast.common.job_execution_result import JobExecutionResult
from holdfast.common.job_id import JobID
from holdfast.common.job_status import JobStatus
from holdfast.printable import printable

__all__ = ["JobClient"]


class JobClient(ABC):
    """A client for one job, as `execute_async` returns it.

    Every request returns a future immediately; errors are the future's exception. An interrupt
    while the program waits for a future ends the wait, and not the job.
    """

    def get_job_name(self) -> str:
        """Return the name of the job; not in PyFlink."""
        return ""

    def get_web_interface_url(self) -> str | None:
        """Return the address of the page of a running job, if it has one; not in PyFlink."""
        return None

    def __repr__(self) -> str:
        status, page = self.get_job_status().result().name, self.get_web_interface_url()
        at = f" at {page}" if page else ""
        return f"<{type(self).__name__} '{printable(self.get_job_name())}': {status}{at}>"

    def _repr_html_(self) -> str:
        status, page = self.get_job_status().result().name, self.get_web_interface_url()
        job_id = self.get_job_id().to_hex_string()
        name = f"<b>{escape(self.get_job_name())}</b> ({job_id}): {status}"
        return f'{name}<br><a href="{escape(page)}" target="_blank">{page}</a>' if page else name

    @abstractmethod
    def get_job_id(self) -> JobID:
        """Return the id of the job."""

    @abstractmethod
    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """Request the status of the job."""

    @abstractmethod
    def cancel(self) -> CompletableFuture[None]:
        """Stop the job without a savepoint; the future completes when it has stopped."""

    @abstractmethod
    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """Take a savepoint and stop the job; the result is the path of the savepoint.

        With ``advance_to_end_of_event_time`` the last watermark is sent first, so that all
        event-time timers and windows fire before the savepoint. A job that was drained like that
        has nothing left to process.
        """

    @abstractmethod
    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Take a savepoint and continue; the result is the path of the savepoint."""

    @abstractmethod
    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """Request the users' counters, summed over subtasks, by metric name; also after the end."""

    @abstractmethod
    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Request the result of the job; the future completes when the job has ended."""

    @abstractmethod
    def get_epochs(self) -> list[Any]:
        """Return a report of each of the last epochs, a thousand at most; not in PyFlink.

        A report has ``epoch``, ``started``, ``seconds``, ``read``, ``records``, ``quota``,
        ``steps``, ``memory`` and ``state_bytes``. For the steps see ``docs/internals/epoch.md``.
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
        """Request the keyed state of a key as of the last completed epoch; not in PyFlink.

        The result is a plain value: a list or dict for list and map states, an accumulator, a dict
        for a record; None if the key has no state. With a time-to-live it may have expired.

        Args:
            operator: its uid, or its name if it is unique.
            state: the name of the state.
            key: exactly what the key selector returns.
            window: for state that is kept per window: the window, or its start and end.
        """

    @abstractmethod
    def get_watermarks(self) -> dict[str, int]:
        """Return the watermarks after the last epoch, by operator uid; not in PyFlink.

        It is the minimum over the subtasks. Operators without watermarks are omitted.
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
