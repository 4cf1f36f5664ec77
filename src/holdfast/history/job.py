"""`JobHistory`: what is known of a job, made from its events, whether it runs or has ended."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

import msgspec

from holdfast.history.events import (
    AttemptBegan,
    AttemptFailed,
    CheckpointSeen,
    Counted,
    EpochEnded,
    Event,
    JobBegan,
    PlanMade,
    RescaleSeen,
    StateLoaded,
    StatusChanged,
    SubtaskFigures,
    SubtasksSeen,
)
from holdfast.plan.vertices import JobGraph

__all__ = ["ENDED", "JobHistory"]

#: Flink's words for a job that is over
ENDED: Final = frozenset({"FINISHED", "CANCELED", "FAILED"})
_EPOCHS: Final = 1000
_CHECKPOINTS: Final = 100
#: checkpoints whose subtasks are remembered
_DETAILED: Final = 20
_ATTEMPTS: Final = 100
_RESCALES: Final = 100

T = TypeVar("T")


class JobHistory:
    """A bounded memory of a job.

    Invariant: it is a function of the events that it was told. Consequence: what is read back from
    a file is what was there when the job ran.

    One thread tells; any may look, with `look`, and sees all of an event or nothing of it.

    Attributes:
        version: counts the events.
        changed: the version at which something of a kind was last told, by the name of its class.
        timestamps: when the job came to each status.
        epochs, failures, attempts, checkpoints, rescales: the last of them, oldest first.
        counts: how many there were, with those that are forgotten.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        """Begin with what is known."""
        self.version = 0
        self.changed: dict[str, int] = {}
        self.began: JobBegan | None = None
        self.graph = JobGraph("", ())
        self.status = "INITIALIZING"
        self.modified = 0
        self.timestamps: dict[str, int] = {}
        self.attempts: deque[AttemptBegan] = deque(maxlen=_ATTEMPTS)
        self.failures: deque[AttemptFailed] = deque(maxlen=_ATTEMPTS)
        self.epochs: deque[EpochEnded] = deque(maxlen=_EPOCHS)
        self.checkpoints: dict[int, CheckpointSeen] = {}
        self.rescales: dict[int, RescaleSeen] = {}
        self.retained: tuple[int, ...] = ()
        self.subtasks = SubtasksSeen(0, {})
        self.counts = Counted()
        self._lock = threading.Lock()
        for event in events:
            self.tell(event)

    @property
    def id(self) -> str:
        """The job's id."""
        return "" if self.began is None else self.began.id

    @property
    def name(self) -> str:
        """The job's name."""
        return self.graph.name if self.began is None else self.began.name

    @property
    def started(self) -> int:
        """When it began."""
        return 0 if self.began is None else self.began.started

    @property
    def engine(self) -> str:
        """What runs it; empty if nobody said."""
        return "" if self.began is None else self.began.engine

    @property
    def engine_reason(self) -> str:
        """Why that runs it."""
        return "" if self.began is None else self.began.engine_reason

    @property
    def ended(self) -> int | None:
        """When it was over; None if it is not, or if nobody knows."""
        return self.timestamps.get(self.status) if self.status in ENDED else None

    def look(self, view: Callable[[JobHistory], T]) -> T:
        """Return what a function makes of this, with nothing told meanwhile."""
        with self._lock:
            return view(self)

    def tell(self, event: Event) -> None:
        """Take note of what happened."""
        with self._lock:
            self._take(event)
            self.version += 1
            self.changed[type(event).__name__] = self.version

    def _take(self, event: Event) -> None:
        match event:
            case JobBegan():
                self.began, self.modified = event, event.started
            case PlanMade():
                self.graph = event.graph
                self.subtasks = _no_figures(event.time, event.graph)
            case StatusChanged():
                self.status, self.modified = event.status, event.time
                self.timestamps[event.status] = event.time
            case AttemptBegan():
                self.attempts.append(event)
                self.subtasks = _no_figures(event.time, self.graph)
                self._count(attempts=1, restored=int(event.checkpoint is not None))
            case StateLoaded():
                self._take_loaded(event)
            case AttemptFailed():
                self.failures.append(event)
                self._count(failures=1)
            case EpochEnded():
                self.epochs.append(event)
                self._count(epochs=1, read=event.read)
            case SubtasksSeen():
                self.subtasks = event
            case CheckpointSeen():
                self._take_checkpoint(event)
            case RescaleSeen():
                self._take_rescale(event)
            case Counted():
                self.counts = event

    def _take_loaded(self, event: StateLoaded) -> None:
        if self.attempts and self.attempts[-1].number == event.number:
            self.attempts[-1] = msgspec.structs.replace(self.attempts[-1], loaded=event)

    def _count(self, **more: int) -> None:
        sums = {name: getattr(self.counts, name) + number for name, number in more.items()}
        self.counts = msgspec.structs.replace(self.counts, **sums)

    def _take_checkpoint(self, event: CheckpointSeen) -> None:
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

    def _take_rescale(self, event: RescaleSeen) -> None:
        self._count(rescales=int(event.id not in self.rescales))
        self.rescales[event.id] = event
        for forgotten in list(self.rescales)[:-_RESCALES]:
            del self.rescales[forgotten]

    def remembered(self) -> list[Event]:
        """The events that make a history equal to this one."""
        return self.look(lambda history: list(history._events()))

    def _events(self) -> Iterator[Event]:
        if self.began is not None:
            yield self.began
        yield PlanMade(self.started, self.graph)
        yield from self.attempts
        yield from self.failures
        yield from self.epochs
        yield from self.checkpoints.values()
        yield from self.rescales.values()
        yield self.subtasks
        for status, time in sorted(self.timestamps.items(), key=lambda item: item[1]):
            if status != self.status:
                yield StatusChanged(time, status)
        if self.status in self.timestamps:
            yield StatusChanged(self.timestamps[self.status], self.status)
        yield self.counts


def _no_figures(time: int, graph: JobGraph) -> SubtasksSeen:
    figures = {
        vertex.id: [SubtaskFigures() for _ in range(vertex.parallelism)]
        for vertex in graph.vertices
    }
    return SubtasksSeen(time, figures)
