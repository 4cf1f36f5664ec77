"""The coordinator of a job's checkpoints: a state machine with events in, instructions out.

It has no thread, no clock and no file: an executor passes events to it and carries out its
instructions. In each epoch:

    handle(EpochStarting)     step 1   → InjectBarrier, if this epoch carries a checkpoint
    notifications()           step 3   → what listeners are notified of in this epoch
    handle(EpochAccepted)     step 8   → WriteMetadata, if it carried one that succeeded so far
    handle(MetadataWritten)   step 9   → DiscardCheckpoint for those no longer retained (step 10)

A checkpoint is in flight from its barrier until its metadata is written, or until it is aborted.
Its state and its metadata may be written while the next epochs run; handle(TimePassed) aborts it if
that takes too long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, assert_never

from holdfast.checkpoint.events import (
    AnswerRequest,
    AttemptStarting,
    CheckpointRecord,
    CheckpointRequested,
    CheckpointSettings,
    CheckpointStatus,
    DiscardCheckpoint,
    EpochAccepted,
    EpochFailed,
    EpochStarting,
    Event,
    FailJob,
    InjectBarrier,
    Instruction,
    JobEnding,
    MarkFinished,
    MetadataFailed,
    MetadataWritten,
    Notifications,
    Outcome,
    ReportCheckpoint,
    StopJob,
    SubtaskAcknowledged,
    TimePassed,
    WriteMetadata,
)
from holdfast.checkpoint.schedule import Schedule
from holdfast.errors import InternalError

#: how many late subtasks an error message names; it counts the others
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class _InFlight:
    id: int
    epoch: int
    triggered: int
    #: the requests to answer when it ends: any number of requests for a checkpoint, or one for a
    #: savepoint
    requests: tuple[CheckpointRequested, ...]
    #: whether it is, or also is, a checkpoint in the job's checkpoint directory
    in_store: bool

    @property
    def savepoint(self) -> CheckpointRequested | None:
        wanted = [request for request in self.requests if request.directory is not None]
        return wanted[0] if wanted else None

    @property
    def stops(self) -> bool:
        return self.savepoint is not None and self.savepoint.stop

    def answers(self, path: str | None = None, failure: str | None = None) -> list[Instruction]:
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
        duration = max(0, now - self.triggered)
        return replace(
            self.record(), status=status, end_timestamp=now, duration=duration, **figures
        )


class Coordinator:
    """Decides when a checkpoint is taken and what becomes of it.

    Invariant: ids strictly increase, from ``first_id`` on, over restarts too.

    Invariant: at most one epoch runs, and it carries at most one checkpoint; at most
    ``max_concurrent`` checkpoints are in flight, not counting savepoints.

    Invariant: a completed checkpoint is discarded only after a newer one is completed, or when the
    job ends and is not to be continued. Consequence: there is always a checkpoint to recover from.

    Invariant: a notification is repeated until an epoch that carried it was accepted, or until the
    attempt that it concerns is over. Consequence: a listener may be notified of a checkpoint twice
    (if the epoch was run again), and never misses one as long as the attempt lasts.

    Listeners are not notified of a completed savepoint at which the job does not stop: recovery
    does not return to it, so nothing may be committed for it. What it covers is committed with the
    next checkpoint.

    Args:
        first_id: the id of the next checkpoint: larger than all ids ever used.
        completed: ids of the checkpoints that are already in the checkpoint directory.
    """

    def __init__(
        self,
        settings: CheckpointSettings,
        first_id: int = 1,
        completed: Iterable[int] = (),
    ) -> None:
        self.settings = settings
        self._next_id = first_id
        #: the running epoch, and the checkpoint that it carries
        self._epoch: int | None = None
        self._barrier: _InFlight | None = None
        #: all and only those whose metadata is being written, oldest first
        self._writing: dict[int, _InFlight] = {}
        #: aborted while their metadata was being written; if it is written nevertheless, it is
        #: discarded
        self._late: dict[int, _InFlight] = {}
        #: the requests that wait for an epoch
        self._requests: deque[CheckpointRequested] = deque()
        #: in the checkpoint directory, oldest first
        self._completed = sorted(completed)
        #: also there, but newer than the start of this attempt: damaged, or not wanted
        self._passed_over: list[int] = []
        #: number of consecutive failures
        self._failures = 0
        #: None: there are no periodic checkpoints
        self._schedule: Schedule | None = None
        if settings.interval_ms is not None:
            self._schedule = Schedule(settings.interval_ms, settings.min_pause_ms)
        self._pending = Notifications()
        self._carried = Notifications()
        self._stopping = False

    @property
    def next_id(self) -> int:
        """Return the id that the next checkpoint gets."""
        return self._next_id

    @property
    def running(self) -> int | None:
        """Return the id of the checkpoint that the running epoch carries, if it carries one."""
        return None if self._barrier is None else self._barrier.id

    @property
    def in_flight(self) -> tuple[int, ...]:
        """Return the ids of all checkpoints in flight."""
        running = (self._barrier.id,) if self._barrier else ()
        return (*self._writing, *running)

    @property
    def completed(self) -> tuple[int, ...]:
        """Return the ids of the retained checkpoints, oldest first.

        Within one run of the job, a restart returns to the last of these, or to the start of the
        run if there is none. It never returns to a checkpoint that the run skipped at its start.
        """
        return tuple(self._completed)

    @property
    def must_wait(self) -> bool:
        """Return whether only a closing epoch may start now, because the job is stopping."""
        return any(checkpoint.stops for checkpoint in self._writing.values())

    def requests_of(self, checkpoint: int) -> tuple[CheckpointRequested, ...]:
        """Return the requests that wait for a checkpoint in flight."""
        running = () if self._barrier is None else (self._barrier,)
        flight = {c.id: c for c in (*self._writing.values(), *running)}
        return flight[checkpoint].requests if checkpoint in flight else ()

    def expired(self, now: int) -> tuple[int, ...]:
        """Return the checkpoints that `TimePassed` would abort."""
        return tuple(c.id for c in self._writing.values() if self._is_expired(c, now))

    def due_in(self, now: int, forced: bool = False) -> int | None:
        """Return within how many milliseconds an epoch is needed; None: none is needed.

        ``forced``: as in `EpochStarting`, for the next epoch.
        """
        if self._pending != Notifications() or (self._possible_requests and not self._stopping):
            return 0
        wanted = [c.triggered + self.settings.timeout_ms + 1 for c in self._writing.values()]
        trigger = self._next_trigger(now, forced)
        if trigger is not None:
            wanted.append(trigger)
        return max(0, min(wanted) - now) if wanted else None

    def _next_trigger(self, now: int, forced: bool) -> int | None:
        """Return when the next periodic checkpoint is due."""
        if self._schedule is None or self._stopping or not self._has_room:
            return None
        return now if forced else self._schedule.next_trigger(now)

    def notifications(self) -> Notifications:
        """Return the notifications of the running epoch, or of the next one (step 3)."""
        return self._pending if self._epoch is None else self._carried

    def handle(self, event: Event) -> list[Instruction]:
        """Handle an event and return the instructions to carry out now, in order.

        Raise an InternalError if the event is impossible in the current state.
        """
        match event:
            case EpochStarting():
                return self._epoch_starting(event)
            case EpochAccepted():
                return self._epoch_accepted(event)
            case EpochFailed():
                return self._epoch_failed(event)
            case TimePassed():
                return self._time_passed(event)
            case MetadataWritten():
                return self._metadata_written(event)
            case MetadataFailed():
                return self._metadata_failed(event)
            case CheckpointRequested():
                return self._requested(event)
            case AttemptStarting():
                return self._attempt_starting(event)
            case JobEnding():
                return self._job_ending(event)
            case _:
                assert_never(event)

    # Step 1: trigger

    def _epoch_starting(self, event: EpochStarting) -> list[Instruction]:
        if self._epoch is not None:
            raise InternalError(f"epoch {event.epoch} starts while epoch {self._epoch} runs")
        if self.must_wait and not event.closing:
            raise InternalError(f"epoch {event.epoch} starts, but the job stops at a savepoint")
        self._epoch = event.epoch
        self._carried = self._pending
        if event.closing:
            return []
        requests = () if self._stopping else self._next_requests()
        return self._trigger(event, requests) if requests or self._is_due(event) else []

    def _next_requests(self) -> tuple[CheckpointRequested, ...]:
        """Take the requests of the next checkpoint: one for a savepoint, or all for checkpoints."""
        possible = self._possible_requests
        taken = possible[:1]
        if taken and taken[0].directory is None:
            taken = [request for request in possible if request.directory is None]
        self._requests = deque(request for request in self._requests if request not in taken)
        return tuple(taken)

    @property
    def _possible_requests(self) -> list[CheckpointRequested]:
        return [r for r in self._requests if r.directory is not None or self._has_room]

    @property
    def _has_room(self) -> bool:
        """Return whether another checkpoint may be in flight."""
        running = [c for c in self._writing.values() if c.savepoint is None]
        return len(running) < self.settings.max_concurrent

    def _is_due(self, event: EpochStarting) -> bool:
        if self._schedule is None or self._stopping or not self._has_room:
            return False
        return self._schedule.is_due(event.now) or event.forced

    def _trigger(
        self, event: EpochStarting, requests: tuple[CheckpointRequested, ...]
    ) -> list[Instruction]:
        barrier = _InFlight(self._next_id, event.epoch, event.now, requests, in_store=True)
        savepoint = barrier.savepoint
        if savepoint is not None:
            barrier = replace(barrier, in_store=savepoint.stop and self.settings.enabled)
        elif self._schedule is not None:
            self._schedule.triggered(event.now)
        self._barrier = barrier
        self._next_id += 1
        return [
            ReportCheckpoint(barrier.record()),
            InjectBarrier(barrier.id, event.now, savepoint),
        ]

    # Step 8: agree

    def _epoch_accepted(self, event: EpochAccepted) -> list[Instruction]:
        barrier = self._end_epoch(event.epoch)
        self._pending = _without(self._pending, self._carried)
        if barrier is None:
            return []
        late = self._late_subtasks(barrier, event.now, event.acknowledged)
        failure = self._failure(barrier, event, late)
        if failure is not None:
            return self._abort(barrier, event.now, failure, late=_places(late))
        self._writing[barrier.id] = barrier
        return [WriteMetadata(barrier.id, barrier.epoch, barrier.savepoint, barrier.in_store)]

    def _failure(
        self, barrier: _InFlight, event: EpochAccepted, late: list[SubtaskAcknowledged]
    ) -> str | None:
        if event.snapshot_failures:
            return "; ".join(event.snapshot_failures)
        if not self._is_expired(barrier, event.now):
            return None
        took, timeout = event.now - barrier.triggered, self.settings.timeout_ms
        expired = f"it expired: its epoch took {took} ms, the timeout is {timeout} ms"
        return f"{expired}; {_in_time(event.acknowledged, late)}" if event.acknowledged else expired

    def _late_subtasks(
        self, barrier: _InFlight, now: int, acks: Iterable[SubtaskAcknowledged]
    ) -> list[SubtaskAcknowledged]:
        # NB: the clocks of machines differ, so the time of an acknowledgement is no proof.
        if not self._is_expired(barrier, now):
            return []
        return [ack for ack in acks if ack.time is None or self._is_expired(barrier, ack.time)]

    def _is_expired(self, barrier: _InFlight, now: int) -> bool:
        return now - barrier.triggered > self.settings.timeout_ms

    def _time_passed(self, event: TimePassed) -> list[Instruction]:
        instructions: list[Instruction] = []
        for checkpoint in self.expired(event.now):
            instructions += self._expire(self._writing[checkpoint], event)
        # NB: FailJob ends the attempt, so all other instructions come before it
        failing = [i for i in instructions if isinstance(i, FailJob)]
        return [i for i in instructions if not isinstance(i, FailJob)] + failing[:1]

    def _expire(self, checkpoint: _InFlight, event: TimePassed) -> list[Instruction]:
        acks = event.acknowledged.get(checkpoint.id, ())
        late = self._late_subtasks(checkpoint, event.now, acks)
        took, timeout = event.now - checkpoint.triggered, self.settings.timeout_ms
        reason = f"it expired: not stored after {took} ms, the timeout is {timeout} ms"
        if acks:
            reason += f"; {_in_time(acks, late)}"
        return self._abandon(checkpoint, event.now, reason, counts=True, late=_places(late))

    def _epoch_failed(self, event: EpochFailed) -> list[Instruction]:
        barrier = self._end_epoch(event.epoch)
        if barrier is None:
            return []
        if barrier.savepoint is None and self._schedule is not None:
            self._schedule.failed(event.now)
        return self._abort(barrier, event.now, event.reason, counts=False)

    def _end_epoch(self, epoch: int) -> _InFlight | None:
        if epoch != self._epoch:
            raise InternalError(f"epoch {epoch} ended, but the one that runs is {self._epoch}")
        barrier, self._epoch, self._barrier = self._barrier, None, None
        return barrier

    # Steps 9 and 10: complete, and discard what is not needed any more

    def _metadata_written(self, event: MetadataWritten) -> list[Instruction]:
        late = self._late.pop(event.checkpoint, None)
        if late is not None:
            return [DiscardCheckpoint(late.id)] if late.in_store else []
        checkpoint = self._written(event.checkpoint)
        record = checkpoint.ended(
            event.now,
            CheckpointStatus.COMPLETED,
            size=event.size,
            written=event.written,
            path=event.path or None,
        )
        instructions: list[Instruction] = [ReportCheckpoint(record)]
        if checkpoint.in_store:
            instructions += self._complete(checkpoint, event.now)
        if checkpoint.in_store or checkpoint.stops:
            self._notify(completed=checkpoint.id)
        instructions += checkpoint.answers(path=event.path)
        if checkpoint.savepoint is not None and checkpoint.stops:
            self._stopping = True
            instructions.append(StopJob(event.path, checkpoint.savepoint.drain))
        return instructions

    def _complete(self, checkpoint: _InFlight, now: int) -> list[Instruction]:
        self._failures = 0
        if self._schedule is not None:
            self._schedule.completed(now)
        instructions: list[Instruction] = []
        older = [c for c in self._writing.values() if c.savepoint is None and c.id < checkpoint.id]
        for subsumed in older:
            reason = f"checkpoint {checkpoint.id} was completed before it"
            instructions += self._abandon(subsumed, now, reason)
        self._completed.append(checkpoint.id)
        surplus = self._completed[: -self.settings.retained]
        self._completed = self._completed[-self.settings.retained :]
        discarded = sorted((*self._passed_over, *surplus))
        self._passed_over = []
        return [*instructions, *map(DiscardCheckpoint, discarded)]

    def _metadata_failed(self, event: MetadataFailed) -> list[Instruction]:
        if self._late.pop(event.checkpoint, None) is not None:
            return []
        return self._abort(self._written(event.checkpoint), event.now, event.reason)

    def _written(self, checkpoint: int) -> _InFlight:
        if checkpoint not in self._writing:
            raise InternalError(f"metadata of checkpoint {checkpoint}, which is not being written")
        return self._writing.pop(checkpoint)

    # Aborts

    def _abort(
        self,
        checkpoint: _InFlight,
        now: int,
        reason: str,
        counts: bool = True,
        late: frozenset[tuple[int, int]] = frozenset(),
    ) -> list[Instruction]:
        """Abort a checkpoint; ``counts``: it failed itself, rather than its epoch or the job."""
        self._notify(aborted=checkpoint.id)
        record = checkpoint.ended(now, CheckpointStatus.FAILED, failure=reason)
        told = [ReportCheckpoint(record, counts, late), *checkpoint.answers(failure=reason)]
        if not counts:
            return told
        if checkpoint.savepoint is None:
            return [*told, *self._count_failure(checkpoint.id, reason)]
        if checkpoint.savepoint.drain:
            # the sources have ended, so the job can continue only from an earlier state
            why = f"the job was drained for a savepoint that failed: {reason}"
            return [*told, FailJob(why)]
        return told

    def _count_failure(self, checkpoint: int, reason: str) -> list[Instruction]:
        self._failures += 1
        tolerable = self.settings.tolerable_failures
        if self._failures <= tolerable:
            return []
        self._failures = 0
        why = f"at most {tolerable} consecutive failures are tolerated"
        return [FailJob(f"checkpoint {checkpoint} failed, and {why}: {reason}")]

    def _abandon(
        self,
        checkpoint: _InFlight,
        now: int,
        reason: str,
        counts: bool = False,
        late: frozenset[tuple[int, int]] = frozenset(),
    ) -> list[Instruction]:
        """Abort a checkpoint whose metadata may still be written."""
        del self._writing[checkpoint.id]
        self._late[checkpoint.id] = checkpoint
        return self._abort(checkpoint, now, reason, counts, late)

    def _abort_all(self, now: int, reason: str) -> list[Instruction]:
        instructions: list[Instruction] = []
        for checkpoint in list(self._writing.values()):
            instructions += self._abandon(checkpoint, now, reason)
        if self._barrier is not None:
            instructions += self._abort(self._barrier, now, reason, counts=False)
        self._epoch = self._barrier = None
        return instructions

    def _notify(self, completed: int | None = None, aborted: int | None = None) -> None:
        self._pending = Notifications(
            self._pending.completed + (() if completed is None else (completed,)),
            self._pending.aborted + (() if aborted is None else (aborted,)),
        )

    # The job

    def _requested(self, event: CheckpointRequested) -> list[Instruction]:
        if self._stopping:
            return [AnswerRequest(event, 0, failure="the job is stopping")]
        self._requests.append(event)
        return []

    def _attempt_starting(self, event: AttemptStarting) -> list[Instruction]:
        instructions = self._abort_all(event.now, "the job was restarted")
        self._failures = 0
        if self._schedule is not None:
            self._schedule.begin_attempt()
        self._stopping = False
        restored = -1 if event.restored is None else event.restored
        # Functions are created again with the state of the restored checkpoint, and are not
        # notified of later ones.
        known = tuple(c for c in self._pending.completed if c <= restored)
        self._pending = Notifications(completed=known)
        self._passed_over += [c for c in self._completed if c > restored]
        self._completed = [c for c in self._completed if c <= restored]
        return instructions

    def _job_ending(self, event: JobEnding) -> list[Instruction]:
        instructions = self._abort_all(event.now, "the job ended")
        for request in self._requests:
            instructions.append(AnswerRequest(request, 0, failure="the job ended"))
        self._requests.clear()
        self._stopping = True
        keep = event.outcome in (Outcome.FAILED, Outcome.STOPPED) or (
            event.outcome is Outcome.CANCELLED and self.settings.retain_on_cancellation
        )
        if keep or not (self.settings.enabled or self._completed):
            return instructions
        discarded = sorted((*self._completed, *self._passed_over))
        self._completed, self._passed_over = [], []
        return [*instructions, MarkFinished(), *map(DiscardCheckpoint, discarded)]


def _places(acks: Iterable[SubtaskAcknowledged]) -> frozenset[tuple[int, int]]:
    return frozenset((ack.level, ack.subtask) for ack in acks)


def _in_time(acks: Sequence[SubtaskAcknowledged], late: Sequence[SubtaskAcknowledged]) -> str:
    """Return a text with the number of subtasks that acknowledged in time and the late ones."""
    counts = f"{len(acks) - len(late)} of {len(acks)} subtasks acknowledged in time"
    if not late:
        return counts
    more = f" and {len(late) - _NAMED} more" if len(late) > _NAMED else ""
    return f"{counts}; late: {', '.join(ack.name for ack in late[:_NAMED])}{more}"


def _without(pending: Notifications, carried: Notifications) -> Notifications:
    return Notifications(
        tuple(c for c in pending.completed if c not in carried.completed),
        tuple(c for c in pending.aborted if c not in carried.aborted),
    )
