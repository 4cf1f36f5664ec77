"""Shows a running job: a live picture in a terminal, plain lines elsewhere."""

import shutil
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol, TextIO

from examples.orders.events import STEPS
from examples.orders.progress import Checkpoint, Incident, Progress

__all__ = ["LineView", "TerminalView", "View", "make_view", "render"]

#: a frame fits into a terminal of this width
WIDTH = 80
_BAR = 40
_SHOWN_CHECKPOINTS = 3
_SHOWN_INCIDENTS = 7
#: seconds between two plain lines
_LINE_EVERY = 2.0


class View(Protocol):
    """Where progress is shown."""

    def update(self, progress: Progress) -> None:
        """Show how far the job is."""

    def close(self) -> None:
        """Leave the terminal as it was found."""


def make_view(stream: TextIO = sys.stdout) -> View:
    """The view that suits where the output goes."""
    return TerminalView(stream) if stream.isatty() else LineView(stream)


class TerminalView:
    """Draws over what it drew before."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._drawn = 0

    def update(self, progress: Progress) -> None:
        size = shutil.get_terminal_size()
        lines = [line[: size.columns - 1] for line in render(progress)][: size.lines - 1]
        up = f"\x1b[{self._drawn}F" if self._drawn else ""
        self._stream.write(up + "".join(f"\x1b[2K{line}\n" for line in lines) + "\x1b[0J")
        self._stream.flush()
        self._drawn = len(lines)

    def close(self) -> None:
        """What was drawn last stays."""
        self._drawn = 0


class LineView:
    """A line every two seconds, and one for everything that happens."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._next = 0.0
        self._told: set[Incident | str] = set()
        self._checkpoint = 0
        self._last = ""

    def update(self, progress: Progress) -> None:
        if progress.page and progress.page not in self._told:
            self._told.add(progress.page)
            self._print(f"page: {progress.page}")
        for incident in progress.incidents:
            if incident not in self._told:
                self._told.add(incident)
                self._print(_incident(incident))
        for checkpoint in progress.checkpoints:
            if checkpoint.id > self._checkpoint:
                self._checkpoint = checkpoint.id
                self._print(_checkpoint(checkpoint))
        if self._clock() >= self._next:
            self._next = self._clock() + _LINE_EVERY
            line = _line(progress)
            if line != self._last:
                self._print(line)
            self._last = line

    def close(self) -> None:
        """Nothing to do."""

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


def render(progress: Progress) -> list[str]:
    """The picture of a job: lines of at most 79 characters, fewer than 24 of them."""
    most = max([1, *progress.orders.values()])
    shows = progress.subtasks and not progress.note
    subtasks = f", {progress.subtasks} subtasks per operator" if shows else ""
    lines = [
        "",
        f"  {progress.status:<11} {_pace(progress)}{subtasks}",
        f"  event time  {_event_time(progress.watermark)}    "
        f"{progress.duplicates:,} duplicates dropped",
        f"  page        {progress.page or 'when Spark has started'}",
        "",
    ]
    for step in STEPS:
        count = progress.orders.get(step, 0)
        lines.append(f"  {step:<10} {count:>9,}  {'█' * (count * _BAR // most)}")
    lines += [f"  {'low stock':<10} {progress.low_stock:>9,}  products", ""]
    lines += [f"  {_checkpoint(one)}" for one in progress.checkpoints[-_SHOWN_CHECKPOINTS:]]
    incidents = progress.incidents[-_SHOWN_INCIDENTS:]
    lines += ["", *(f"  {_incident(incident)}" for incident in incidents)]
    return [line[: WIDTH - 1] for line in lines]


def _pace(progress: Progress) -> str:
    return progress.note or f"{progress.rate:,.0f} events/s"


def _line(progress: Progress) -> str:
    status = progress.status.lower()
    if not progress.total:
        return f"{status}: {progress.note or 'nothing was read yet'}"
    orders = ", ".join(f"{progress.orders.get(step, 0):,} {step}" for step in STEPS)
    return f"{status}: {_pace(progress)}; {orders}; {progress.low_stock:,} products low"


def _event_time(watermark: int | None) -> str:
    if watermark is None:
        return "not known"
    try:
        return f"{datetime.fromtimestamp(watermark / 1000, UTC):%Y-%m-%d %H:%M}"
    except (OverflowError, ValueError):  # the watermark after the last event
        return "at its end"


def _checkpoint(one: Checkpoint) -> str:
    figures = f"{one.duration:,} ms, {one.size / 1024:,.0f} kB"
    return f"checkpoint {one.id} {one.status.lower()} ({figures})"


def _incident(incident: Incident) -> str:
    return f"{datetime.fromtimestamp(incident.time, UTC):%H:%M:%S} UTC  {incident.text}"
