"""The result of `execute` when a job has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.common.job_id import JobID

__all__ = ["JobExecutionResult"]


class JobExecutionResult:
    """The runtime of a finished job, and the values of its accumulators."""

    __slots__ = ("_accumulators", "_job_id", "_net_runtime")

    def __init__(
        self, job_id: JobID, net_runtime: int, accumulators: Mapping[str, Any] | None = None
    ) -> None:
        self._job_id = job_id
        self._net_runtime = net_runtime
        self._accumulators = dict(accumulators or {})

    def get_job_id(self) -> JobID:
        """Return the id of the job."""
        return self._job_id

    def is_job_execution_result(self) -> bool:
        """Return True: this object only exists for jobs that have run to their end."""
        return True

    def get_net_runtime(self) -> int:
        """Return how long the job ran, in milliseconds, without the planning before it."""
        return self._net_runtime

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """Return the value of the named accumulator, or None if the job had none of that name."""
        return self._accumulators.get(accumulator_name)

    def get_all_accumulator_results(self) -> dict[str, Any]:
        """Return the values of all accumulators by name."""
        return dict(self._accumulators)

    def __str__(self) -> str:
        lines = [
            "Program execution finished",
            f"Job with JobID {self._job_id} has finished.",
            f"Job Runtime: {self._net_runtime} ms",
        ]
        if self._accumulators:
            lines.append("Accumulator Results:")
            lines += [f"- {name}: {value}" for name, value in self._accumulators.items()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<JobExecutionResult {self._job_id}, {self._net_runtime} ms>"
