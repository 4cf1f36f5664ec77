"""Whether a failed attempt is followed by another. Pure."""

from __future__ import annotations

from holdfast.driver.job.repeated_failures import RepeatedFailures, repeated
from holdfast.driver.job.restart_policy import GiveUp, RestartPolicy
from holdfast.driver.job_events import ActionFailed, ReportFailure


class Restarts:
    """The failures of a job so far: the restart policy counts them, and those on each record."""

    def __init__(self, policy: RestartPolicy, same_record_limit: int) -> None:
        """Start with no failures; ``policy`` is used until the job ends."""
        self.policy = policy
        self._repeats = RepeatedFailures(same_record_limit)

    def decide(self, event: ActionFailed, attempt: int) -> ReportFailure:
        """Return the report of a failure, which says after what time the job is restarted."""
        decision = self.policy.on_failure(event.now)
        count = self._repeats.count(event.place, event.checkpoint)
        if isinstance(decision, GiveUp):
            return ReportFailure(attempt, event.failure, None, decision.reason)
        note = self._repeats.note(count)
        if self._repeats.is_too_often(count):
            return ReportFailure(attempt, repeated(event.failure, count), None, note)
        return ReportFailure(attempt, event.failure, decision.after_ms, note)
