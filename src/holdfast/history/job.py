"""`JobHistory`: what is known about a running or ended job, derived from its events."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

import msgspec

from holdfast.history import events
from holdfast.history.points import PointSeries
from holdfast.plan.vertices import JobGraph

#: Flink's final job states
ENDED: Final = frozenset({"FINISHED", "CANCELED", "FAILED"})
_EPOCHS: Final = 1000
_CHECKPOINTS: Final = 100
#: number of checkpoints for which the parts of subtasks are kept
_DETAILED: Final = 20
_ATTEMPTS: Final = 100
_RESCALES: Final = 100

T = TypeVar("T")


class JobHistory:
    """The history of a job, of bounded size.

    Invariant: it is a function of the events passed to `tell`. Consequence: a history read from a
    file equals the one that was in memory when the job ran.

    One thread calls `tell`. Any thread may read it with `look`, which sees complete events only.

    Attributes:
        version: counts the events.
        changed: the version of the last event of each kind, by the name of its class.
        served: the server that shows the job while it runs; None if there is none.
        savepoint: the path of the savepoint that the job was stopped with; None if it was not.
        directory: the directory of the job, where its history is kept; None if it is not.
        timestamps: when the job changed to each status.
        epochs, failures, attempts, checkpoints, rescales: the most recent ones, oldest first.
        series: the figures over time, the whole time of the job.
        counts: how many there were in total, including dropped ones.
    """

    def __init__(self, known: Iterable[events.Event] = ()) -> None:
        """Start with these events."""
        self.version = 0
        self.changed: dict[str, int] = {}
        self.began: events.JobBegan | None = None
        self.directory: str | None = None
        self.graph = JobGraph("", ())
        self.status = "INITIALIZING"
        self.modified = 0
        self.served: events.PageServed | None = None
        self.savepoint: str | None = None
        self.timestamps: dict[str, int] = {}
        self.attempts: deque[events.AttemptBegan] = deque(maxlen=_ATTEMPTS)
        self.failures: deque[events.AttemptFailed] = deque(maxlen=_ATTEMPTS)
        self.epochs: deque[events.EpochEnded] = deque(maxlen=_EPOCHS)
        self.checkpoints: dict[int, events.CheckpointSeen] = {}
        self.rescales: dict[int, events.RescaleSeen] = {}
        self.retained: tuple[int, ...] = ()
        self.subtasks = events.SubtasksSeen(0, {})
        self.series = PointSeries()
        self.counts = events.Counted()
        self._lock = threading.Lock()
        for event in known:
            self.tell(event)

    @property
    def id(self) -> str:
        """Return the job's id."""
        return "" if self.began is None else self.began.id

    @property
    def name(self) -> str:
        """Return the job's name."""
        return self.graph.name if self.began is None else self.began.name

    @property
    def started(self) -> int:
        """Return when the job started."""
        return 0 if self.began is None else self.began.started

    @property
    def engine(self) -> str:
        """Return the engine that runs the job; empty if it is unknown."""
        return "" if self.began is None else self.began.engine

    @property
    def engine_reason(self) -> str:
        """Return why this engine was chosen."""
        return "" if self.began is None else self.began.engine_reason

    @property
    def page(self) -> str | None:
        """Return the address of the job in the web UI; None if no server has shown it."""
        return None if self.served is None else f"{self.served.url}/#/jobs/{self.id}"

    @property
    def ended(self) -> int | None:
        """Return when the job ended; None if it has not ended, or the time is unknown."""
        return self.timestamps.get(self.status) if self.status in ENDED else None

    def look(self, view: Callable[[JobHistory], T]) -> T:
        """Return the result of a function of this history, while no event is added."""
        with self._lock:
            return view(self)

    def tell(self, event: events.Event) -> None:
        """Add an event."""
        with self._lock:
            self._take(event)
            self.version += 1
            self.changed[type(event).__name__] = self.version

    def _take(self, event: events.Event) -> None:
        match event:
            case events.JobBegan():
                self.began, self.modified = event, event.started
            case events.JournalOpened():
                self.directory = event.directory
            case events.PlanMade():
                self.graph = event.graph
                self.subtasks = _no_figures(event.time, event.graph)
            case events.StatusChanged():
                self.status, self.modified = event.status, event.time
                self.timestamps[event.status] = event.time
                self.savepoint = event.savepoint
            case events.PageServed():
                self.served = event
            case events.AttemptBegan():
                self.attempts.append(event)
                self.subtasks = _no_figures(event.time, self.graph)
                self._count(attempts=1, restored=int(event.checkpoint is not None))
            case events.StateLoaded():
                self._complete_attempt(event.number, loaded=event)
            case events.StartMeasured():
                self._complete_attempt(event.number, measured=event)
            case events.AttemptFailed():
                self.failures.append(event)
                self._count(failures=1)
            case events.EpochEnded():
                self.epochs.append(event)
                self._count(epochs=1, read=event.read)
            case events.SubtasksSeen():
                self.subtasks = event
            case events.CheckpointSeen():
                self._take_checkpoint(event)
            case events.RescaleSeen():
                self._take_rescale(event)
            case events.PointSeen():
                self.series.add(event)
            case events.Counted():
                self.counts = event

    def _complete_attempt(self, number: int, **known: events.Event) -> None:
        """Add to the last attempt what is known about it now."""
        if self.attempts and self.attempts[-1].number == number:
            self.attempts[-1] = msgspec.structs.replace(self.attempts[-1], **known)

    def _count(self, **more: int) -> None:
        sums = {name: getattr(self.counts, name) + number for name, number in more.items()}
        self.counts = msgspec.structs.replace(self.counts, **sums)

    def _take_checkpoint(self, event: events.CheckpointSeen) -> None:
        before = self.checkpoints.pop(event.id, None)
        self.checkpoints[event.id] = event
        self.retained = event.retained or self.retained
        ended = before is None or before.status == "IN_PROGRESS"
        self._count(
            checkpoints=int(before is None),
            completed=int(ended and event.status == "COMPLETED"),
            failed=int(ended and event.status == "FAILED"),
        )
        self._forget_checkpoints()

    def _forget_checkpoints(self) -> None:
        ended = [seen for seen in self.checkpoints.values() if seen.status != "IN_PROGRESS"]
        for seen in ended[:-_CHECKPOINTS]:
            del self.checkpoints[seen.id]
        for seen in ended[-_CHECKPOINTS:-_DETAILED]:
            if seen.subtasks:
                self.checkpoints[seen.id] = msgspec.structs.replace(seen, subtasks={})

    def _take_rescale(self, event: events.RescaleSeen) -> None:
        self._count(rescales=int(event.id not in self.rescales))
        self.rescales[event.id] = event
        for forgotten in list(self.rescales)[:-_RESCALES]:
            del self.rescales[forgotten]

    def remembered(self) -> list[events.Event]:
        """Return events that reproduce this history."""
        return self.look(lambda history: list(history._events()))

    def _events(self) -> Iterator[events.Event]:
        if self.began is not None:
            yield self.began
        if self.directory is not None:
            yield events.JournalOpened(self.directory)
        yield events.PlanMade(self.started, self.graph)
        if self.served is not None:
            yield self.served
        yield from self.attempts
        yield from self.failures
        yield from self.epochs
        yield from self.checkpoints.values()
        yield from self.rescales.values()
        yield from self.series.points
        yield self.subtasks
        for status, time in sorted(self.timestamps.items(), key=lambda item: item[1]):
            if status != self.status:
                yield events.StatusChanged(time, status)
        if self.status in self.timestamps:
            time = self.timestamps[self.status]
            yield events.StatusChanged(time, self.status, self.savepoint)
        yield self.counts


def _no_figures(time: int, graph: JobGraph) -> events.SubtasksSeen:
    figures = {
        vertex.id: [events.SubtaskFigures() for _ in range(vertex.parallelism)]
        for vertex in graph.vertices
    }
    return events.SubtasksSeen(time, figures)
