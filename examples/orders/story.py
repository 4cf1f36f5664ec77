"""What happened so far, over all programs and attempts; what is shown is made of it.

A job that starts again has no figures until it has loaded its state. The story remembers those from
before, so that nothing that is shown falls to zero, and tells from where the job counts on.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from examples.orders.progress import Checkpoint, Incident, Progress

__all__ = ["Life", "Sample", "Story"]

RUNNING, FINISHED, STARTING = "RUNNING", "FINISHED", "STARTING"


@dataclass(frozen=True)
class Sample:
    """How fast the job was at a time; None while it did not run."""

    time: float
    rate: float | None
    subtasks: int


@dataclass
class Life:
    """A program, from its start to its end."""

    started: float
    process: int
    ended: float | None = None


@dataclass
class Story:
    """Takes what programs tell of the job, one after another.

    Attributes:
        samples: the rates so far.
        lives: the programs so far.
        checkpoints: all that have ended, by id; those of a later program go on counting.
    """

    clock: Callable[[], float] = time.time
    samples: list[Sample] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)
    #: what programs told, and what happened to them
    _incidents: dict[Incident, None] = field(default_factory=dict)
    #: the last figures that a job had
    _figures: Progress | None = None
    #: the job has none at the moment
    _lost: bool = False
    _last: Progress = field(default_factory=lambda: Progress(STARTING))

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """Everything that happened, in order."""
        return tuple(sorted(self._incidents, key=lambda incident: incident.time))

    def begin(self, process: int) -> None:
        """A program was started."""
        self.lives.append(Life(self.clock(), process))
        self._last = replace(self._last, status=STARTING, events=0, rate=0.0, page="")

    def end(self) -> None:
        """The program has ended."""
        self.lives[-1].ended = self.clock()

    def happened(self, text: str, kind: str) -> None:
        """Something was done to the job."""
        self._incidents[Incident(self.clock(), text, kind)] = None

    def now(self) -> Progress:
        """What is to be shown, while the program tells nothing."""
        return self.tell(self._last)

    def tell(self, progress: Progress) -> Progress:
        """Take what a program tells; return what is to be shown."""
        self._last = progress
        self._incidents |= dict.fromkeys(progress.incidents)
        self.checkpoints |= {one.id: one for one in progress.checkpoints}
        self._keep_figures(progress)
        works = progress.status == RUNNING and progress.rate > 0 and not self._lost
        rate = progress.rate if works else None
        self.samples.append(Sample(self.clock(), rate, progress.subtasks))
        shown = self._figures or progress
        return replace(
            progress,
            orders=shown.orders,
            low_stock=shown.low_stock,
            duplicates=shown.duplicates,
            watermark=shown.watermark,
            subtasks=shown.subtasks,
            checkpoints=tuple(self.checkpoints.values()),
            incidents=self.incidents,
            note="" if works else self._note(progress),
        )

    def _keep_figures(self, progress: Progress) -> None:
        if not progress.total:
            self._lost = self._figures is not None
            return
        if self._lost:
            self.happened(f"counts on from {progress.total:,} orders", "counts")
        self._figures, self._lost = progress, False

    def _note(self, progress: Progress) -> str:
        """What goes on while no events are read."""
        if progress.status == STARTING:
            began = self.lives[-1].started if self.lives else self.clock()
            again = "again " if len(self.lives) > 1 else ""
            return f"starting Spark {again}… {self.clock() - began:.0f} s"
        if progress.status == FINISHED:
            return "every event is read"
        if progress.status != RUNNING:
            return "waiting for the restart …"
        if self._lost:
            return "loading the state of the checkpoint …"
        return "reading the first events …" if self._figures is None else "no event at the moment"
