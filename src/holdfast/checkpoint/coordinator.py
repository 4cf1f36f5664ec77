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

The parts of its state are pure, too: what is in flight (`holdfast.checkpoint.in_flight`), what is
retained, what listeners are to be notified of, which requests wait, and the schedule.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from holdfast.checkpoint.events import (
    AnswerRequest,
    AttemptStarting,
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
from holdfast.checkpoint.in_flight import CheckpointsInFlight, InFlight, why_expired
from holdfast.checkpoint.notifications import PendingNotifications
from holdfast.checkpoint.retained import RetainedCheckpoints
from holdfast.checkpoint.schedule import Schedule
from holdfast.checkpoint.tolerance import FailureTolerance
from holdfast.checkpoint.waiting_requests import WaitingRequests
from holdfast.errors import InternalError


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
        self._flight = CheckpointsInFlight()
        self._requests = WaitingRequests()
        self._retained = RetainedCheckpoints(completed, settings.retained)
        self._notifications = PendingNotifications()
        self._tolerance = FailureTolerance(settings.tolerable_failures)
        #: None: there are no periodic checkpoints
        self._schedule: Schedule | None = None
        if settings.interval_ms is not None:
            self._schedule = Schedule(settings.interval_ms, settings.min_pause_ms)
        self._stopping = False

    @property
    def next_id(self) -> int:
        """Return the id that the next checkpoint gets."""
        return self._next_id

    @property
    def running(self) -> int | None:
        """Return the id of the checkpoint that the running epoch carries, if it carries one."""
        return None if self._flight.barrier is None else self._flight.barrier.id

    @property
    def in_flight(self) -> tuple[int, ...]:
        """Return the ids of all checkpoints in flight."""
        return tuple(checkpoint.id for checkpoint in self._flight.all)

    @property
    def completed(self) -> tuple[int, ...]:
        """Return the ids of the retained checkpoints, oldest first.

        Within one run of the job, a restart returns to the last of these, or to the start of the
        run if there is none. It never returns to a checkpoint that the run skipped at its start.
        """
        return tuple(self._retained.completed)

    @property
    def must_wait(self) -> bool:
        """Return whether only a closing epoch may start now, because the job is stopping."""
        return any(checkpoint.stops for checkpoint in self._flight.writing.values())

    def requests_of(self, checkpoint: int) -> tuple[CheckpointRequested, ...]:
        """Return the requests that wait for a checkpoint in flight."""
        found = (each.requests for each in self._flight.all if each.id == checkpoint)
        return next(found, ())

    def expired(self, now: int) -> tuple[int, ...]:
        """Return the checkpoints that `TimePassed` would abort."""
        return tuple(c.id for c in self._flight.expired(now, self.settings.timeout_ms))

    def due_in(self, now: int, forced: bool = False) -> int | None:
        """Return within how many milliseconds an epoch is needed; None: none is needed.

        ``forced``: as in `EpochStarting`, for the next epoch.
        """
        possible = self._requests.possible(self._has_room)
        if self._notifications or (possible and not self._stopping):
            return 0
        writing = self._flight.writing.values()
        wanted = [c.triggered + self.settings.timeout_ms + 1 for c in writing]
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
        told = self._notifications
        return told.pending if self._flight.epoch is None else told.carried

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
        if self.must_wait and not event.closing:
            raise InternalError(f"epoch {event.epoch} starts, but the job stops at a savepoint")
        self._flight.start_epoch(event.epoch)
        self._notifications.start_epoch()
        if event.closing:
            return []
        requests = () if self._stopping else self._requests.take(self._has_room)
        return self._trigger(event, requests) if requests or self._is_due(event) else []

    @property
    def _has_room(self) -> bool:
        """Return whether another checkpoint may be in flight."""
        return self._flight.has_room(self.settings.max_concurrent)

    def _is_due(self, event: EpochStarting) -> bool:
        if self._schedule is None or self._stopping or not self._has_room:
            return False
        return self._schedule.is_due(event.now) or event.forced

    def _trigger(
        self, event: EpochStarting, requests: tuple[CheckpointRequested, ...]
    ) -> list[Instruction]:
        barrier = InFlight(self._next_id, event.epoch, event.now, requests, in_store=True)
        savepoint = barrier.savepoint
        if savepoint is not None:
            barrier = replace(barrier, in_store=savepoint.stop and self.settings.enabled)
        elif self._schedule is not None:
            self._schedule.triggered(event.now)
        self._flight.barrier = barrier
        self._next_id += 1
        return [
            ReportCheckpoint(barrier.record()),
            InjectBarrier(barrier.id, event.now, savepoint),
        ]

    # Step 8: agree

    def _epoch_accepted(self, event: EpochAccepted) -> list[Instruction]:
        barrier = self._flight.end_epoch(event.epoch)
        self._notifications.accepted()
        if barrier is None:
            return []
        timeout = self.settings.timeout_ms
        late = barrier.late_subtasks(event.now, timeout, event.acknowledged)
        failure = None
        if event.snapshot_failures:
            failure = "; ".join(event.snapshot_failures)
        elif barrier.is_expired(event.now, timeout):
            took = f"its epoch took {event.now - barrier.triggered} ms"
            failure = why_expired(took, timeout, event.acknowledged, late)
        if failure is not None:
            return self._abort(barrier, event.now, failure, late=_places(late))
        self._flight.writing[barrier.id] = barrier
        return [WriteMetadata(barrier.id, barrier.epoch, barrier.savepoint, barrier.in_store)]

    def _time_passed(self, event: TimePassed) -> list[Instruction]:
        instructions: list[Instruction] = []
        for checkpoint in self._flight.expired(event.now, self.settings.timeout_ms):
            instructions += self._expire(checkpoint, event)
        # NB: FailJob ends the attempt, so all other instructions come before it
        failing = [i for i in instructions if isinstance(i, FailJob)]
        return [i for i in instructions if not isinstance(i, FailJob)] + failing[:1]

    def _expire(self, checkpoint: InFlight, event: TimePassed) -> list[Instruction]:
        acks, timeout = event.acknowledged.get(checkpoint.id, ()), self.settings.timeout_ms
        late = checkpoint.late_subtasks(event.now, timeout, acks)
        took = f"not stored after {event.now - checkpoint.triggered} ms"
        reason = why_expired(took, timeout, acks, late)
        return self._abandon(checkpoint, event.now, reason, counts=True, late=_places(late))

    def _epoch_failed(self, event: EpochFailed) -> list[Instruction]:
        barrier = self._flight.end_epoch(event.epoch)
        if barrier is None:
            return []
        if barrier.savepoint is None and self._schedule is not None:
            self._schedule.failed(event.now)
        return self._abort(barrier, event.now, event.reason, counts=False)

    # Steps 9 and 10: complete, and discard what is not needed any more

    def _metadata_written(self, event: MetadataWritten) -> list[Instruction]:
        late = self._flight.take_late(event.checkpoint)
        if late is not None:
            return [DiscardCheckpoint(late.id)] if late.in_store else []
        checkpoint = self._flight.written(event.checkpoint)
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
            self._notifications.completed(checkpoint.id)
        instructions += checkpoint.answers(path=event.path)
        if checkpoint.savepoint is not None and checkpoint.stops:
            self._stopping = True
            instructions.append(StopJob(event.path, checkpoint.savepoint.drain))
        return instructions

    def _complete(self, checkpoint: InFlight, now: int) -> list[Instruction]:
        self._tolerance.reset()
        if self._schedule is not None:
            self._schedule.completed(now)
        instructions: list[Instruction] = []
        for subsumed in list(self._flight.writing.values()):
            if subsumed.savepoint is not None or subsumed.id > checkpoint.id:
                continue
            reason = f"checkpoint {checkpoint.id} was completed before it"
            instructions += self._abandon(subsumed, now, reason)
        discarded = self._retained.add(checkpoint.id)
        return [*instructions, *map(DiscardCheckpoint, discarded)]

    def _metadata_failed(self, event: MetadataFailed) -> list[Instruction]:
        if self._flight.take_late(event.checkpoint) is not None:
            return []
        return self._abort(self._flight.written(event.checkpoint), event.now, event.reason)

    # Aborts

    def _abort(
        self,
        checkpoint: InFlight,
        now: int,
        reason: str,
        counts: bool = True,
        late: frozenset[tuple[int, int]] = frozenset(),
    ) -> list[Instruction]:
        """Abort a checkpoint; ``counts``: it failed itself, rather than its epoch or the job."""
        self._notifications.aborted(checkpoint.id)
        record = checkpoint.ended(now, CheckpointStatus.FAILED, failure=reason)
        told = [ReportCheckpoint(record, counts, late), *checkpoint.answers(failure=reason)]
        if not counts:
            return told
        if checkpoint.savepoint is None:
            return [*told, *self._tolerance.count(checkpoint.id, reason)]
        if checkpoint.savepoint.drain:
            # the sources have ended, so the job can continue only from an earlier state
            why = f"the job was drained for a savepoint that failed: {reason}"
            return [*told, FailJob(why)]
        return told

    def _abandon(
        self,
        checkpoint: InFlight,
        now: int,
        reason: str,
        counts: bool = False,
        late: frozenset[tuple[int, int]] = frozenset(),
    ) -> list[Instruction]:
        """Abort a checkpoint whose metadata may still be written."""
        self._flight.abandon(checkpoint)
        return self._abort(checkpoint, now, reason, counts, late)

    def _abort_all(self, now: int, reason: str) -> list[Instruction]:
        instructions: list[Instruction] = []
        for checkpoint in list(self._flight.writing.values()):
            instructions += self._abandon(checkpoint, now, reason)
        if self._flight.barrier is not None:
            instructions += self._abort(self._flight.barrier, now, reason, counts=False)
        self._flight.epoch = self._flight.barrier = None
        return instructions

    # The job

    def _requested(self, event: CheckpointRequested) -> list[Instruction]:
        if self._stopping:
            return [AnswerRequest(event, 0, failure="the job is stopping")]
        self._requests.append(event)
        return []

    def _attempt_starting(self, event: AttemptStarting) -> list[Instruction]:
        instructions = self._abort_all(event.now, "the job was restarted")
        self._tolerance.reset()
        if self._schedule is not None:
            self._schedule.begin_attempt()
        self._stopping = False
        restored = -1 if event.restored is None else event.restored
        self._notifications.restart(restored)
        self._retained.restart(restored)
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
        if keep or not (self.settings.enabled or self._retained.completed):
            return instructions
        return [*instructions, MarkFinished(), *map(DiscardCheckpoint, self._retained.clear())]


def _places(acks: Iterable[SubtaskAcknowledged]) -> frozenset[tuple[int, int]]:
    return frozenset((ack.level, ack.subtask) for ack in acks)
