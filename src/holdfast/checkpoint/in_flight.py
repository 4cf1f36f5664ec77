"""The checkpoints in flight: the one that the running epoch carries, and those being written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.checkpoint.events import (
    AnswerRequest,
    CheckpointRecord,
    CheckpointRequested,
    CheckpointStatus,
    Instruction,
    SubtaskAcknowledged,
)
from holdfast.errors import InternalError

#: how many late subtasks an error message names; it counts the others
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class InFlight:
    """A checkpoint in flight: from its barrier until its metadata is written, or it is aborted.

    Attributes:
        requests: the requests to answer when it ends: any number of requests for a checkpoint, or
            one for a savepoint.
        in_store: whether it is, or also is, a checkpoint in the job's checkpoint directory.
    """

    id: int
    epoch: int
    triggered: int
    requests: tuple[CheckpointRequested, ...]
    in_store: bool

    @property
    def savepoint(self) -> CheckpointRequested | None:
        """Return the request for a savepoint, if it is one."""
        wanted = [request for request in self.requests if request.directory is not None]
        return wanted[0] if wanted else None

    @property
    def stops(self) -> bool:
        """Return whether the job stops with it."""
        return self.savepoint is not None and self.savepoint.stop

    def answers(self, path: str | None = None, failure: str | None = None) -> list[Instruction]:
        """Return the answers to its requests."""
        return [AnswerRequest(request, self.id, path, failure) for request in self.requests]

    def record(self) -> CheckpointRecord:
        """Return the record of a checkpoint in flight."""
        return CheckpointRecord(
            self.id,
            CheckpointStatus.IN_PROGRESS,
            self.triggered,
            savepoint=self.savepoint is not None,
        )

    def ended(self, now: int, status: CheckpointStatus, **figures: Any) -> CheckpointRecord:
        """Return the record of a checkpoint that has ended."""
        duration = max(0, now - self.triggered)
        return replace(
            self.record(), status=status, end_timestamp=now, duration=duration, **figures
        )

    def is_expired(self, now: int, timeout_ms: int) -> bool:
        """Return whether it takes longer than the timeout."""
        return now - self.triggered > timeout_ms

    def late_subtasks(
        self, now: int, timeout_ms: int, acks: Iterable[SubtaskAcknowledged]
    ) -> list[SubtaskAcknowledged]:
        """Return the subtasks that did not acknowledge in time; none, if it is not expired."""
        # NB: the clocks of machines differ, so the time of an acknowledgement is no proof.
        if not self.is_expired(now, timeout_ms):
            return []
        return [ack for ack in acks if ack.time is None or self.is_expired(ack.time, timeout_ms)]


class CheckpointsInFlight:
    """The running epoch, and all checkpoints in flight.

    Attributes:
        epoch: the running epoch; None between two epochs.
        barrier: the checkpoint that it carries.
        writing: all and only those whose metadata is being written, by id, oldest first.
    """

    def __init__(self) -> None:
        """Start between two epochs, with no checkpoints."""
        self.epoch: int | None = None
        self.barrier: InFlight | None = None
        self.writing: dict[int, InFlight] = {}
        #: aborted while their metadata was being written; if it is written nevertheless, it is
        #: discarded
        self._late: dict[int, InFlight] = {}

    @property
    def all(self) -> tuple[InFlight, ...]:
        """Return all checkpoints in flight, oldest first."""
        return (*self.writing.values(), *(() if self.barrier is None else (self.barrier,)))

    def expired(self, now: int, timeout_ms: int) -> tuple[InFlight, ...]:
        """Return those that take longer than the timeout, of those that are being written."""
        return tuple(c for c in self.writing.values() if c.is_expired(now, timeout_ms))

    def has_room(self, max_concurrent: int) -> bool:
        """Return whether another checkpoint may be in flight; savepoints do not count."""
        return sum(c.savepoint is None for c in self.writing.values()) < max_concurrent

    def start_epoch(self, epoch: int) -> None:
        """Start an epoch, which carries no checkpoint yet."""
        if self.epoch is not None:
            raise InternalError(f"epoch {epoch} starts while epoch {self.epoch} runs")
        self.epoch = epoch

    def end_epoch(self, epoch: int) -> InFlight | None:
        """End an epoch; return the checkpoint that it carried."""
        if epoch != self.epoch:
            raise InternalError(f"epoch {epoch} ended, but the one that runs is {self.epoch}")
        barrier, self.epoch, self.barrier = self.barrier, None, None
        return barrier

    def written(self, checkpoint: int) -> InFlight:
        """Remove a checkpoint whose metadata is written, or could not be written."""
        if checkpoint not in self.writing:
            raise InternalError(f"metadata of checkpoint {checkpoint}, which is not being written")
        return self.writing.pop(checkpoint)

    def abandon(self, checkpoint: InFlight) -> None:
        """Remove a checkpoint whose metadata may still be written."""
        del self.writing[checkpoint.id]
        self._late[checkpoint.id] = checkpoint

    def take_late(self, checkpoint: int) -> InFlight | None:
        """Return and forget an abandoned checkpoint; None if it was not abandoned."""
        return self._late.pop(checkpoint, None)


def why_expired(
    took: str,
    timeout_ms: int,
    acks: Sequence[SubtaskAcknowledged],
    late: Sequence[SubtaskAcknowledged],
) -> str:
    """Return why an expired checkpoint has failed; ``took``: what took too long."""
    reason = f"it expired: {took}, the timeout is {timeout_ms} ms"
    return f"{reason}; {_in_time(acks, late)}" if acks else reason


def _in_time(acks: Sequence[SubtaskAcknowledged], late: Sequence[SubtaskAcknowledged]) -> str:
    """Return a text with the number of subtasks that acknowledged in time and the late ones."""
    counts = f"{len(acks) - len(late)} of {len(acks)} subtasks acknowledged in time"
    if not late:
        return counts
    more = f" and {len(late) - _NAMED} more" if len(late) > _NAMED else ""
    return f"{counts}; late: {', '.join(ack.name for ack in late[:_NAMED])}{more}"
