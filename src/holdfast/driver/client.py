"""The program's handle of a running job."""

from __future__ import annotations

import threading
from typing import Any

from holdfast.checkpoint.events import CheckpointRecord
from holdfast.common import CompletableFuture, JobClient, JobExecutionResult, JobID, JobStatus
from holdfast.driver.job.runner import JobRunner
from holdfast.driver.reports import (
    AttemptReport,
    EpochReport,
    attempts_of,
    checkpoints_of,
    epochs_of,
)


class JobRunnerClient(JobClient):
    """A job that a runner of this process runs."""

    def __init__(self, job: JobRunner) -> None:
        """Create the client of a job that is being started."""
        self._job = job
        self._result: CompletableFuture[JobExecutionResult] = CompletableFuture()
        self._cancelled: CompletableFuture[None] = CompletableFuture()
        job.at_end("release its callers", self._on_end)

    def get_job_id(self) -> JobID:
        return JobID.from_hex_string(self._job.job_id)

    def get_job_name(self) -> str:
        return self._job.history.name

    def get_web_interface_url(self) -> str | None:
        return None if self._result.done() else self._job.history.page

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        return CompletableFuture.completed(self._job.status)

    def cancel(self) -> CompletableFuture[None]:
        self._job.cancel()
        return self._cancelled

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        return self._result

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        return CompletableFuture.completed(self._accumulators())

    def get_epochs(self) -> list[EpochReport]:
        return epochs_of(self._job.history)

    def get_metrics(self) -> dict[tuple[str, int], dict[str, Any]]:
        return dict(self._job.book.metrics)

    def get_watermarks(self) -> dict[str, int]:
        least: dict[str, int] = {}
        for (uid, _), time in dict(self._job.book.watermarks).items():
            least[uid] = min(time, least.get(uid, time))
        return least

    def get_attempts(self) -> tuple[AttemptReport, ...]:
        return attempts_of(self._job.history)

    def get_checkpoints(self) -> tuple[CheckpointRecord, ...]:
        return checkpoints_of(self._job.history)

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        asked = self._job.savepoint(savepoint_directory, True, advance_to_end_of_event_time)
        stopped: CompletableFuture[str] = CompletableFuture()

        def tell(_: object) -> None:
            failure = asked.exception() or self._result.exception()
            if failure is not None:
                stopped.set_exception(failure)
            else:
                stopped.set_result(asked.result())

        asked.add_done_callback(
            lambda answer: (
                tell(answer) if answer.exception() else self._result.add_done_callback(tell)
            )
        )
        return stopped

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        return self._job.savepoint(savepoint_directory)

    def query_state(
        self, operator: str, state: str, key: Any, window: Any = None
    ) -> CompletableFuture[Any]:
        answer: CompletableFuture[Any] = CompletableFuture()

        def read() -> None:
            try:
                answer.set_result(self._job.query_state(operator, state, key, window))
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=read, name="holdfast-query", daemon=True).start()
        return answer

    def _accumulators(self) -> dict[str, Any]:
        totals: dict[str, Any] = {}
        for values in self.get_metrics().values():
            for name, value in values.items():
                if isinstance(value, int):
                    totals[name] = totals.get(name, 0) + value
        return totals

    def _on_end(self) -> None:
        job = self._job
        self._cancelled.set_result(None)
        if job.error is not None:
            self._result.set_exception(job.error)
        else:
            job_id = self.get_job_id()
            result = JobExecutionResult(job_id, job.net_runtime_ms, self._accumulators())
            self._result.set_result(result)
