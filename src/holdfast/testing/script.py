"""A source whose input is a script: records, and events that happen between them."""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from holdfast.common import Duration, Time
from holdfast.common.leftovers import OwnDirectory
from holdfast.common.private import user_directory
from holdfast.datastream.connectors.base import Source, SourceReader
from holdfast.errors import JobDefinitionError
from holdfast.testing.clock import ManualClock


class SimulatedCrash(Exception):
    """The error that a ``Crash`` raises in the source."""


@dataclass(frozen=True)
class ScriptPlace:
    """The position of an event in a script."""

    script: str
    position: int


class Event(ABC):
    """An element of a script that is not a record. A repeated epoch reaches it again."""

    #: whether records before it and records after it are read in different epochs
    parts_epochs: bool = False

    @abstractmethod
    def happen(self, place: ScriptPlace) -> None:
        """Called when the reader reaches it, in the process that reads."""


@dataclass(frozen=True)
class EndOfEpoch(Event):
    """Ends the epoch, even if its quota allows more. Works on Spark, too."""

    parts_epochs = True

    def happen(self, place: ScriptPlace) -> None:
        """Do nothing; the reader ends the epoch."""


@dataclass(frozen=True)
class AdvanceClock(Event):
    """Ends the epoch, and moves the clock before the next one begins.

    Only in this process: on Spark the clock cannot be moved, and the source raises an error.
    """

    duration: int | str | timedelta | Duration | Time
    parts_epochs = True

    def happen(self, place: ScriptPlace) -> None:
        """Move the clock of the executor that runs the job."""
        script_clock = _script_clock.get()
        if script_clock is None:
            message = "AdvanceClock works only where the clock is a ManualClock: in a LocalExecutor"
            raise RuntimeError(message)
        if place not in script_clock.advanced:
            script_clock.advanced.add(place)
            script_clock.clock.advance(self.duration)


@dataclass(frozen=True)
class Crash(Event):
    """Raises ``SimulatedCrash`` in the source; the epoch is lost. Happens once per source object.

    A ``LocalExecutor`` raises the failure from the call that ran the epoch, and its next call
    repeats the epoch. On Spark the job fails.
    """

    def happen(self, place: ScriptPlace) -> None:
        """Raise, unless it has happened."""
        try:
            mark = os.open(f"{place.script}-{place.position}", os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return
        os.close(mark)
        message = f"the script crashes here, at element {place.position}"
        raise SimulatedCrash(message)


class ScriptedSource(Source):
    """Reads scripts of records and events, one script per subtask.

    >>> source = ScriptedSource([1, 2, EndOfEpoch(), 3, Crash(), 4, AdvanceClock("5s"), 5])

    It is a source like any other, with a position, so it works on Spark, too; each event says what
    it does there.
    """

    def __init__(self, *scripts: Sequence[Any]) -> None:
        """Take a script, or one for each subtask; the parallelism is their number."""
        if not scripts:
            message = "ScriptedSource: expected at least one script, a list of records and events"
            raise ValueError(message)
        self.scripts = tuple(list(script) for script in scripts)
        marks = OwnDirectory(user_directory(), "script")
        self._marks = str(marks.path)
        # NB: not a field, because the source is sent to the workers
        weakref.finalize(self, marks.remove)

    @property
    def parallelism_limit(self) -> int | None:
        """Return the number of scripts."""
        return len(self.scripts)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        """Return a reader for the subtask's own script.

        Raises:
            JobDefinitionError: when there are not as many subtasks as scripts.
        """
        if parallelism != len(self.scripts):
            count = len(self.scripts)
            message = f"a ScriptedSource of {count} scripts cannot run in {parallelism} subtasks"
            raise JobDefinitionError(message)
        return _ScriptReader(self.scripts[subtask], str(Path(self._marks) / str(subtask)))


class _ScriptReader(SourceReader):
    def __init__(self, script: list[Any], name: str) -> None:
        self._script = script
        self._name = name
        self._next = 0

    def restore(self, position: Any) -> None:
        self._next = position

    def read(self, limit: int) -> Iterator[Sequence[Any]]:
        began = False
        while limit > 0 and not self.finished:
            element = self._script[self._next]
            if not isinstance(element, Event):
                batch = self._records(limit)
                self._next += len(batch)
                limit -= len(batch)
                yield batch
            elif isinstance(element, EndOfEpoch):
                self._next += 1
                return
            elif began and element.parts_epochs:
                return
            else:
                self._next += 1
                element.happen(ScriptPlace(self._name, self._next - 1))
            began = True

    def position(self) -> Any:
        return self._next

    @property
    def finished(self) -> bool:
        return self._next >= len(self._script)

    def _records(self, limit: int) -> list[Any]:
        """Return the records up to the next event."""
        records = []
        for element in self._script[self._next : self._next + limit]:
            if isinstance(element, Event):
                break
            records.append(element)
        return records


class ScriptClock:
    """The clock for the events of a script, in the process of a ``LocalExecutor``."""

    def __init__(self, clock: ManualClock) -> None:
        """Take the clock."""
        self.clock = clock
        self.advanced: set[ScriptPlace] = set()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Let events in this context use this clock."""
        token = _script_clock.set(self)
        try:
            yield
        finally:
            _script_clock.reset(token)


_script_clock: ContextVar[ScriptClock | None] = ContextVar("script clock", default=None)
