"""Sources that go on when something has come to pass: what a test relies on, not how long it takes.

They never block: a source that has to wait has nothing to read, so checkpoints go on meanwhile, on
every engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.checkpoint.store import CheckpointStore
from holdfast.datastream.connectors.base import Source, SourceReader

Gate = Callable[[], bool]


@dataclass(frozen=True)
class Exists:
    """Opens when a file is there."""

    path: Path

    def __call__(self) -> bool:
        return self.path.exists()


@dataclass(frozen=True)
class Completed:
    """Opens when a checkpoint of this id, or a later one, is complete in a directory."""

    directory: Path
    checkpoint: int = 1

    def __call__(self) -> bool:
        if not self.directory.exists():
            return False
        return max(CheckpointStore(self.directory).completed(), default=0) >= self.checkpoint


@dataclass
class Covered:
    """Opens when a checkpoint is complete that began after the source had come here."""

    directory: Path
    #: the last one that was complete then; the next one may have begun before
    before: int | None = None

    def __call__(self) -> bool:
        if not self.directory.exists():
            return False
        last = max(CheckpointStore(self.directory).completed(), default=0)
        if self.before is None:
            self.before = last
        return last >= self.before + 2


@dataclass(frozen=True)
class Noted:
    """Opens when a line is in a diary."""

    diary: Path
    line: str

    def __call__(self) -> bool:
        return self.diary.exists() and self.line in self.diary.read_text().splitlines()


#: a number and the step to the next one
Part = tuple[int, int]


class Numbers(Source):
    """The numbers below a limit, dealt out to the subtasks; those of one subtask are in order.

    ``gates``: a number that may have to wait, and those behind it, by the number; a gate at the
    limit keeps the source from ending.
    """

    def __init__(self, limit: int, gates: Mapping[int, Gate] | None = None) -> None:
        self._limit = limit
        self._gates = dict(gates or {})

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _NumbersReader(self._limit, self._gates, (subtask, parallelism))

    def redistribute(self, positions: Sequence[Any], parallelism: int) -> Sequence[Any]:
        parts: list[Part] = [part for position in positions for part in position]
        return [
            [(number + subtask * step, step * parallelism) for number, step in parts]
            for subtask in range(parallelism)
        ]


class _NumbersReader(SourceReader):
    def __init__(self, limit: int, gates: dict[int, Gate], part: Part) -> None:
        self._limit = limit
        self._closed = {number: copy(gate) for number, gate in sorted(gates.items())}
        self._parts = [part]

    def restore(self, position: Any) -> None:
        self._parts = list(position)

    def read(self, limit: int) -> Iterator[Sequence[Any]]:
        horizon = self._horizon()
        for place, (number, step) in enumerate(self._parts):
            numbers = range(number, min(horizon, number + limit * step), step)
            if numbers:
                limit -= len(numbers)
                self._parts[place] = numbers[-1] + step, step
                yield list(numbers)

    def position(self) -> Any:
        return list(self._parts)

    @property
    def finished(self) -> bool:
        return self._next >= self._limit and self._horizon() >= self._limit and not self._closed

    @property
    def _next(self) -> int:
        return min(number for number, _ in self._parts)

    def _horizon(self) -> int:
        """The first number that must not be given yet."""
        while self._closed:
            number, gate = next(iter(self._closed.items()))
            if self._next < number:
                return min(number, self._limit)
            if not gate():
                return number
            del self._closed[number]
        return self._limit


@dataclass(frozen=True)
class After:
    """An element of a script: what is behind it waits for the gate."""

    gate: Gate


class GatedScript(Source):
    """Reads scripts of records and gates, one script per subtask."""

    def __init__(self, *scripts: Sequence[Any]) -> None:
        self._scripts = scripts

    @property
    def parallelism_limit(self) -> int | None:
        return len(self._scripts)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _ScriptReader(self._scripts[subtask])


class _ScriptReader(SourceReader):
    def __init__(self, script: Sequence[Any]) -> None:
        self._script = script
        self._next = 0

    def restore(self, position: Any) -> None:
        self._next = position

    def read(self, limit: int) -> Iterator[Sequence[Any]]:
        records: list[Any] = []
        while not self.finished and len(records) < limit:
            element = self._script[self._next]
            if not isinstance(element, After):
                records.append(element)
            elif records or not element.gate():
                break
            self._next += 1
        if records:
            yield records

    def position(self) -> Any:
        return self._next

    @property
    def finished(self) -> bool:
        return self._next >= len(self._script)
