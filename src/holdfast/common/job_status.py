"""The states of a job."""

from enum import Enum

__all__ = ["JobStatus"]


class JobStatus(Enum):
    """The status of a job, from its creation to its end."""

    CREATED = 0
    """Nothing has run yet."""
    RUNNING = 1
    """Epochs are being run."""
    FAILING = 2
    """The job has failed and is being cleaned up."""
    FAILED = 3
    """The job has failed and is not restarted."""
    CANCELLING = 4
    """The job has been asked to stop."""
    CANCELED = 5
    """The job was stopped on request."""
    FINISHED = 6
    """All input is processed."""
    RESTARTING = 7
    """The job is being restored from its last checkpoint."""
    SUSPENDED = 8
    """The job is stopped here and may be resumed by another process."""
    RECONCILING = 9
    """The job is determining what was running before."""

    def is_globally_terminal_state(self) -> bool:
        """Return whether the job has ended and is never resumed by this or any other process."""
        return self in _OVER

    def is_terminal_state(self) -> bool:
        """Return whether the job has ended for this process; this includes `SUSPENDED`."""
        return self in _OVER or self is JobStatus.SUSPENDED


_OVER = frozenset({JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED})
