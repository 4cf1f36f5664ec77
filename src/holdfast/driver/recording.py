"""Records the history of a job: turns what the driver does into events, in memory and in a file."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

import holdfast
from holdfast.checkpoint.events import (
    CheckpointRecord,
    CheckpointStatus,
    ReportCheckpoint,
    SubtaskAcknowledged,
)
from holdfast.checkpoint.saved_image import SavedImage
from holdfast.common import Configuration
from holdfast.common.job_status import JobStatus
from holdfast.common.options.setting import defaults_for
from holdfast.common.secrets import masked
from holdfast.datastream.checkpoint_config import CheckpointConfig
from holdfast.datastream.engines import needed_slots
from holdfast.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention
from holdfast.datastream.state_backend import state_settings
from holdfast.driver.engine import EngineChoice
from holdfast.driver.epoch_book import Barrier, EpochBook
from holdfast.driver.job_events import Cause
from holdfast.errors import UserFunctionError, first_line
from holdfast.history import events
from holdfast.history.figures import (
    Epoch,
    Stored,
    checkpoint_parts,
    figures_after,
    figures_during,
    metrics_by_operator,
)
from holdfast.history.job import JobHistory
from holdfast.history.journal import Journal
from holdfast.history.logs import LogBook
from holdfast.history.points import PointStart, point_since
from holdfast.history.starts import StartClock
from holdfast.history.watchers import tell_watchers
from holdfast.plan.model import Plan
from holdfast.plan.vertices import JobGraph, job_graph
from holdfast.printable import get_logger
from holdfast.runtime.wire.protocol import Acknowledgement, Loaded, Progress, StoredState
from holdfast.state.format.head import Head

_logger = get_logger(__name__)
#: this name is documented
_checkpoint_logger = get_logger("holdfast.driver.checkpoints.job_checkpoints")

#: interval at which the figures of subtasks are written, in seconds
_FIGURES: Final = 5.0
#: interval at which points for charts are measured, in milliseconds
_POINTS: Final = 5000
#: maximum length of a stack trace; its end is kept, because it says most
_LONGEST_TRACE: Final = 20_000


@dataclass(frozen=True)
class _AcceptedCheckpoint:
    """A checkpoint whose epoch was accepted.

    Attributes:
        known: the files of the previous checkpoint.
        stored: the states that were stored since, by (level, subtask).
    """

    graph: JobGraph
    epoch: Epoch
    triggered: int
    known: Set[str]
    stored: dict[tuple[int, int], Stored] = field(default_factory=dict)

    def parts(self, late: Set[tuple[int, int]]) -> events.Parts:
        """Return the parts of the subtasks that acknowledged in time."""
        found = checkpoint_parts(self.graph, self.epoch, self.triggered, self.known, self.stored)
        levels = {vertex.id: vertex.level for vertex in self.graph.vertices}
        return {
            vertex: [
                None if (levels[vertex], subtask) in late else part
                for subtask, part in enumerate(parts)
            ]
            for vertex, parts in found.items()
        }


class Recorder:
    """Records what happens in the history of a job.

    Attributes:
        history: what is known about the job; any thread may read it.
        logs: what its functions logged last; it does not outlive the process.
        starts: measures the starts of attempts.
    """

    def __init__(self) -> None:
        """Start with an empty history; without `keep_in` it does not outlive the process."""
        self.history = JobHistory()
        self.logs = LogBook()
        self.starts = StartClock()
        self._journal: Journal | None = None
        #: the checkpoints in flight whose epoch was accepted, by id
        self._accepted: dict[int, _AcceptedCheckpoint] = {}
        #: the state files of the previous checkpoint
        self._files: set[str] = set()
        self._written = 0.0
        #: where the next point for charts starts
        self._measuring: PointStart | None = None
        #: the checkpoints that have ended since then
        self._ended: list[events.CheckpointSeen] = []
        #: held while an event is recorded, because requests come from any thread
        self._lock = threading.RLock()

    def keep_in(self, journal: Journal) -> None:
        """Write the events recorded so far, and all later ones, to a file too."""
        self._journal = journal
        if journal.directory is not None:
            self.history.tell(events.JournalOpened(journal.directory))
        for event in self.history.remembered():
            journal.tell(event)

    def job(
        self,
        job_id: str,
        plan: Plan,
        configuration: Configuration,
        choice: EngineChoice | None = None,
    ) -> None:
        """Record that a job was created."""
        self._tell(
            events.JobBegan(
                id=job_id,
                name=plan.name,
                started=_now(),
                version=holdfast.__version__,
                parallelism=max(op.parallelism for op in plan.operators.values()),
                configuration=masked(configuration.to_dict()),
                checkpointing=_checkpointing(configuration),
                engine="" if choice is None else choice.name,
                engine_reason="" if choice is None else choice.reason,
                origins={key: configuration._origin_of(key) for key in configuration._origins},
                defaults=defaults_for(configuration),
                spark={} if choice is None else masked(choice.settings),
                spark_page="" if choice is None else choice.page or "",
            )
        )

    def plan(self, plan: Plan) -> None:
        """Record the plan that runs now."""
        self.measure()
        self._tell(events.PlanMade(_now(), job_graph(plan)))

    def page(self, url: str) -> None:
        """Record that a server at this address shows the job."""
        self._tell(events.PageServed(_now(), url))
        _logger.info("job '%s' is at %s", self.history.name, self.history.page)

    def status(self, status: JobStatus, savepoint: str | None = None) -> None:
        """Record a new status of the job, and the savepoint that it was stopped with."""
        if status.is_terminal_state():
            self.measure()
            self._write(self.history.subtasks)
        self._tell(events.StatusChanged(_now(), status.name, savepoint))

    def attempt(self, number: int, start: SavedImage | None) -> None:
        """Record the start of an attempt."""
        self._measuring = PointStart(_now(), {})
        if start is None:
            self._tell(events.AttemptBegan(number, _now()))
            return
        saved = start.metadata
        event = events.AttemptBegan(number, _now(), saved.id, start.address, saved.savepoint)
        self._tell(event)
        if number == 0:
            _logger.warning("job '%s' continues %s", self.history.name, event.origin_with_path)

    def failure(
        self,
        number: int,
        failure: BaseException,
        restart_ms: int | None = None,
        restart_from: str | None = None,
        reason: str = "",
    ) -> None:
        """Record that an attempt failed; the next one starts after ``restart_ms``, if not None."""
        self.measure()
        event = msgspec.structs.replace(
            failure_event(number, failure),
            restart=restart_ms,
            restart_from=restart_from,
            reason=reason,
        )
        self._tell(event)
        if restart_ms is not None:
            _logger.warning(
                "job '%s' failed: %s; it restarts in %.1f s, %s",
                self.history.name,
                event.message,
                restart_ms / 1000,
                restart_from,
            )

    def rescale(self, number: int, cause: Cause, before: Plan, after: Plan, wanted: Plan) -> None:
        """Record that the parallelism of the job will change."""
        fewer = cause is Cause.RECOVERABLE_FAILOVER
        # NB: this change began with the attempt that waited for slots
        started = self.history.attempts[-1].time if fewer else _now()
        seen = events.RescaleSeen(
            id=number,
            cause=cause.name,
            started=started,
            slots_desired=needed_slots(wanted),
            slots_before=needed_slots(before),
            slots_after=needed_slots(after),
            vertices=dict(_vertex_rescales(before, after, wanted)),
        )
        self._tell(seen)
        log = _logger.warning if fewer else _logger.info
        log(
            "job '%s' will run on %d instead of %d task slots (%d are wanted): %s",
            self.history.name,
            seen.slots_after,
            seen.slots_before,
            seen.slots_desired,
            cause.value,
        )

    def rescale_ended(self, number: int, failure: BaseException | None, reason: str) -> None:
        """Record how a change of parallelism ended; ignore one that was refused at once."""
        seen = self.history.rescales.get(number)
        if seen is None:
            return
        problem = None if failure is None else first_line(failure)
        ended = msgspec.structs.replace(seen, ended=_now(), reason=reason, failure=problem)
        self._tell(ended)
        what = "runs on" if problem is None else "does not run on"
        why = "" if problem is None else f": {problem}"
        _logger.info("job '%s' %s %d task slots%s", self.history.name, what, seen.slots_after, why)

    def epoch(
        self,
        started: float,
        ended: events.EpochEnded,
        acks: list[Acknowledgement],
        book: EpochBook,
        barrier: Barrier,
    ) -> None:
        """Record an accepted epoch; `epoch_ended` follows when its last steps are done.

        ``started``: when it began, in seconds; ``ended``: what is known about it so far.
        """
        history = self.history
        if any(ack.loaded is not None for ack in acks):
            self._note_loaded(acks)
        self._note_start(started, ended, acks)
        epoch = Epoch(started, ended.seconds, acks, self._pause(started))
        figures = figures_after(history.graph, history.subtasks.figures, epoch)
        seen = events.SubtasksSeen(_now(), figures, metrics_by_operator(book.metrics))
        self._tell_figures(seen)
        if barrier.checkpoint is not None:
            accepted = _AcceptedCheckpoint(history.graph, epoch, barrier.timestamp, self._files)
            self._accepted[barrier.checkpoint] = accepted
            self._files = {
                file.name for heads in book.heads for head in heads for file in head.all_files
            }

    def progress(self, progress: Sequence[Progress]) -> None:
        """Record what subtasks do while an epoch takes long: their rates and loads."""
        history = self.history
        figures = figures_during(history.graph, history.subtasks.figures, progress)
        seen = msgspec.structs.replace(history.subtasks, time=_now(), figures=figures)
        self._tell_figures(seen)

    def _tell_figures(self, seen: events.SubtasksSeen) -> None:
        self.history.tell(seen)
        if time.monotonic() - self._written > _FIGURES:
            self._write(seen)

    def _note_loaded(self, acks: list[Acknowledgement]) -> None:
        begun = self.history.attempts[-1]
        loaded = _loaded(begun.number, acks)
        self._tell(loaded)
        if begun.checkpoint is not None:
            _logger.info(
                "job '%s' continues %s: %d bytes of state were read from the checkpoint storage, "
                "%d from copies on the hosts",
                self.history.name,
                begun.origin,
                loaded.stored,
                loaded.local,
            )

    def _note_start(
        self, started: float, ended: events.EpochEnded, acks: list[Acknowledgement]
    ) -> None:
        """Record how long the start of the attempt took, once that is known."""
        has_sinks = any(op.sink for v in self.history.graph.vertices for op in v.operators)
        gave = any(any(ack.written.values()) for ack in acks) if has_sinks else ended.records > 0
        start = self.starts.epoch(started, ended.steps.get("load", 0.0), gave)
        if start is None:
            return
        self._tell(start)
        if start.number > 0 and start.first_result is not None:
            _logger.info(
                "job '%s' restarted in %.2f s: %.2f s until its previous attempt had stopped, "
                "%.2f s delay, %.2f s until it had its task slots, %.2f s until its state was "
                "loaded, %.2f s until its first result",
                self.history.name,
                start.seconds,
                start.stop,
                start.delay,
                start.slots,
                start.load,
                start.first_result,
            )

    def stored(self, state: StoredState, head: Head) -> None:
        """Record a state that was stored after its barrier; ``head`` is the previous head."""
        known = {file.name for file in head.all_files}
        written = sum(file.size for file in state.head.all_files if file.name not in known)
        if state.checkpoint in self._accepted:
            place = state.level, state.subtask
            self._accepted[state.checkpoint].stored[place] = Stored(state, written)

    def epoch_ended(self, ended: events.EpochEnded) -> None:
        """Record that all steps of an epoch are done."""
        steps = {step: round(took, 6) for step, took in ended.steps.items()}
        rounded = msgspec.structs.replace(ended, seconds=round(ended.seconds, 6), steps=steps)
        self._tell(rounded)
        if self._measuring is not None and _now() - self._measuring.since >= _POINTS:
            self.measure()

    def measure(self) -> None:
        """Record a point for charts: what happened since the previous one of this attempt."""
        with self._lock:
            history, now, start = self.history, _now(), self._measuring
            last = history.epochs[-1] if history.epochs else None
            if start is None or last is None or last.started + 1000 * last.seconds <= start.since:
                return
            self._measuring = PointStart(now, history.subtasks.figures)
            ended, self._ended = self._ended, []
            self._tell(point_since(start, now, history.graph, history.subtasks, ended, last))

    def acknowledgements(self, acks: Iterable[Acknowledgement]) -> Iterator[SubtaskAcknowledged]:
        """Yield when each subtask of each vertex acknowledged.

        Rows that Spark reads are acknowledged by the subtasks that receive them. Their vertex is
        therefore never late itself.
        """
        times = {(ack.level, ack.subtask): ack.acknowledged for ack in acks}
        for vertex in self.history.graph.vertices:
            for subtask in range(vertex.parallelism):
                name = f"{vertex.name} ({subtask + 1}/{vertex.parallelism})"
                time = times.get((vertex.level, subtask), 0)
                yield SubtaskAcknowledged(vertex.level, subtask, name, time)

    def _pause(self, started: float) -> float:
        """Return how long nothing ran before an epoch; 0 before the first epoch of an attempt."""
        last = self.history.epochs[-1] if self.history.epochs else None
        begun = self.history.attempts[-1].time if self.history.attempts else 0
        if last is None or last.started < begun:
            return 0.0
        return max(0.0, started - (last.started / 1000 + last.seconds))

    def checkpoint(self, told: ReportCheckpoint, retained: tuple[int, ...]) -> None:
        """Record that a checkpoint began or ended; ``retained`` are the ids of those kept now."""
        accepted = self._accepted.pop(told.record.id, None)
        parts = {} if accepted is None else accepted.parts(told.late)
        seen = _checkpoint(told.record, retained, parts, self.history.graph.subtasks)
        self._tell(seen)
        if told.record.status is not CheckpointStatus.IN_PROGRESS:
            with self._lock:
                self._ended.append(seen)
        self._log_checkpoint(told)

    def _log_checkpoint(self, told: ReportCheckpoint) -> None:
        record, job = told.record, self.history.name
        details: tuple[object, ...]
        match record.status:
            case CheckpointStatus.IN_PROGRESS:
                line = "triggering checkpoint %d @ %d for job '%s'"
                details = record.id, record.trigger_timestamp, job
            case CheckpointStatus.COMPLETED:
                line = "completed checkpoint %d for job '%s' (%d bytes in %d ms)"
                details = record.id, job, record.size, record.duration
            case CheckpointStatus.FAILED:
                line = "checkpoint %d of job '%s' failed: %s"
                details = record.id, job, record.failure
        level = logging.WARNING if told.is_failure else logging.INFO
        _checkpoint_logger.log(level, line, *details)

    def close(self) -> None:
        """Close the file. Nothing is recorded after this."""
        with self._lock:
            journal, self._journal = self._journal, None
            if journal is not None:
                journal.close()

    def _tell(self, event: events.Event) -> None:
        with self._lock:
            self.history.tell(event)
            self._write(event)
        # NB: without the lock, because a watcher may have to wait for a terminal
        tell_watchers(self.history, event)

    def _write(self, event: events.Event) -> None:
        with self._lock:
            if self._journal is not None:
                self._journal.tell(event)
            if isinstance(event, events.SubtasksSeen):
                self._written = time.monotonic()


def failure_event(number: int, failure: BaseException) -> events.AttemptFailed:
    """Return the event for a failure, with the user's traceback or the message of the error."""
    message = str(failure).strip() or type(failure).__name__
    event = events.AttemptFailed(
        number=number,
        time=_now(),
        error=type(failure).__name__,
        message=first_line(failure),
        trace=message[-_LONGEST_TRACE:],
    )
    if isinstance(failure, UserFunctionError):
        named = failure.error.partition(":")[0]
        event = msgspec.structs.replace(
            event,
            error=named,
            task=failure.operator,
            subtask=failure.subtask,
            record=failure.record,
        )
    return event


def _loaded(attempt: int, acks: Iterable[Acknowledgement]) -> events.StateLoaded:
    found = {(ack.level, ack.subtask): ack.loaded or Loaded() for ack in acks}
    levels: dict[int, list[tuple[int, int]]] = {}
    for (level, _), loaded in sorted(found.items()):
        levels.setdefault(level, []).append((loaded.stored, loaded.local))
    return events.StateLoaded(
        number=attempt,
        time=_now(),
        stored=sum(loaded.stored for loaded in found.values()),
        local=sum(loaded.local for loaded in found.values()),
        damaged=sum(loaded.damaged for loaded in found.values()),
        subtasks=list(levels.values()),
    )


def _vertex_rescales(
    before: Plan, after: Plan, wanted: Plan
) -> Iterator[tuple[str, events.VertexRescale]]:
    """Yield how the parallelism of each vertex of a plan changes."""
    old, desired = _parallelism(before), _parallelism(wanted)
    for vertex in job_graph(after).vertices:
        head = vertex.heads[0]
        row = events.VertexRescale(vertex.name, desired[head], old[head], vertex.parallelism)
        yield vertex.id, row


def _parallelism(plan: Plan) -> dict[str, int]:
    return {op.uid: op.parallelism for op in plan.operators.values()}


def _checkpoint(
    record: CheckpointRecord, retained: tuple[int, ...], parts: events.Parts, total: int
) -> events.CheckpointSeen:
    missing = sum(of_vertex.count(None) for of_vertex in parts.values())
    return events.CheckpointSeen(
        id=record.id,
        status=record.status.name,
        triggered=record.trigger_timestamp,
        savepoint=record.savepoint,
        ended=record.end_timestamp,
        size=record.size or 0,
        written=record.written or 0,
        path=record.path,
        failure=record.failure,
        total=total,
        acknowledged=total - missing if parts else 0,
        subtasks=parts if record.end_timestamp is not None else {},
        retained=retained,
    )


def _checkpointing(configuration: Configuration) -> dict[str, Any]:
    """Return the checkpoint settings of the job, with the names of Flink's REST API."""
    config = CheckpointConfig(configuration)
    retention = config.get_externalized_checkpoint_retention()
    kept = config.get_checkpoint_directory() is not None
    rocksdb = state_settings(configuration).rocksdb
    return {
        "mode": config.get_checkpointing_mode().name.lower(),
        "interval": config.get_checkpoint_interval(),
        "timeout": config.get_checkpoint_timeout(),
        "min_pause": config.get_min_pause_between_checkpoints(),
        "max_concurrent": config.get_max_concurrent_checkpoints(),
        "externalization": {
            "enabled": kept,
            "delete_on_cancellation": (
                retention is not ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
            ),
        },
        "state_backend": "EmbeddedRocksDBStateBackend" if rocksdb else "HashMapStateBackend",
        "checkpoint_storage": "FileSystemCheckpointStorage" if kept else "JobDirectory",
        "unaligned_checkpoints": False,
        "tolerable_failed_checkpoints": config.get_tolerable_checkpoint_failure_number(),
        "aligned_checkpoint_timeout": 0,
        "checkpoints_after_tasks_finish": True,
        "state_changelog_enabled": False,
        "changelog_periodic_materialization_interval": 0,
        "changelog_storage": "",
    }


def _now() -> int:
    return round(time.time() * 1000)
