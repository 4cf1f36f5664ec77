"""How a rate is measured, the same way for every system.

While a program runs, it leaves *marks*: at this time, so many records were through. Systems that
work record by record leave them from the last Python function before the sink (`Meter`, one
mark per thousand records and process). Systems that work in micro-batches leave one at the end
of each, commit included, because before that nobody may rely on the output.

From the marks come two rates:

- **with start-up**: all records, divided by the time from the start of the process to the last
  mark;
- **after warm-up**: the records after the warm-up, which is the first quarter, divided by the time
  they took, from the mark that ends the warm-up to the last one.

A system is thus never charged for starting its JVM, its workers and its first batch, nor for
shutting down, when the rate is said to exclude start-up. Another way would be to run two sizes
and divide the differences; it needs two runs, and the noise of both start-ups ends up in the
result, which for the slow systems is larger than what is measured.

What the figure asks for in return is a run that is long against the buffers between a source and
the last function: records that wait there at the end of the warm-up have part of their work
behind them. That is why even slow systems get hundreds of thousands of records.

Times are taken from `time.time`, since they are compared between processes.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = [
    "PYTHON",
    "STARTED",
    "STEP",
    "WARM_UP",
    "Mark",
    "Measurement",
    "Meter",
    "emit",
    "measured",
    "read_marks",
]

#: A point in time, and how many records were through by then.
Mark = tuple[float, float]

#: Records between two marks of one `Meter`.
STEP = 1000

#: The share of the records that only warms up.
WARM_UP = 0.25

#: The runner sets this to the time at which it starts a program.
STARTED = "BENCHMARK_STARTED"
#: And this to the interpreter that has Holdfast, for programs that run with that of a peer.
PYTHON = "BENCHMARK_PYTHON"


class Meter:
    """Counts records in one process and leaves a mark for every thousand of them.

    Make it where the function runs (in ``open``), not where it is defined: it holds a file.

    Args:
        directory: Where the marks go; each meter has its own file there.
    """

    def __init__(self, directory: str) -> None:
        path = Path(directory) / f"{os.getpid()}-{uuid.uuid4().hex}.marks"
        self._file = path.open("a", buffering=1, encoding="utf-8")
        self._count = 0

    def tick(self) -> None:
        """Count one record."""
        self._count += 1
        if self._count == STEP:
            self.flush()

    def add(self, count: int) -> None:
        """Count several records."""
        self._count += count
        if self._count >= STEP:
            self.flush()

    def flush(self) -> None:
        """Leave a mark for what was counted since the last one, if anything was."""
        if self._count:
            self._file.write(f"{time.time()} {self._count}\n")
            self._count = 0

    def close(self) -> None:
        """Leave the last mark and close the file."""
        self.flush()
        self._file.close()


def read_marks(directory: str, per_record: float = 1.0) -> list[Mark]:
    """Return the marks of all meters together.

    Args:
        directory: The directory the meters were given.
        per_record: How many times each record was counted, where several branches count it.
    """
    lines = [
        line.split()
        for path in Path(directory).glob("*.marks")
        for line in path.read_text("utf-8").splitlines()
    ]
    total = 0.0
    marks = []
    for at, count in sorted((float(at), int(count)) for at, count in lines):
        total += count / per_record
        marks.append((at, total))
    return marks


@dataclass(frozen=True)
class Measurement:
    """What one program measured; every program prints one of these, as one line of JSON."""

    #: How many records came through.
    records: int = 0
    #: From the start of the process to the last mark.
    seconds: float = 0.0
    #: From the start of the process to the first mark.
    first_output: float = 0.0
    #: Records per second with start-up.
    rate: float = 0.0
    #: Records per second after warm-up.
    warm_rate: float = 0.0
    #: Other figures, by name.
    figures: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, data: dict[str, Any]) -> Measurement:
        """Return the measurement that `emit` wrote."""
        return cls(**data)


def measured(
    marks: Iterable[Mark], started: float | None = None, warm_up: float | None = None
) -> Measurement:
    """Compute both rates from the marks of a run.

    Args:
        marks: Time and number of records through by then.
        started: The start of the process; unless given, what the runner noted.
        warm_up: How many records only warm up; unless given, a quarter of them.

    >>> m = measured([(12.0, 250), (13.0, 600), (14.0, 1000)], started=10.0)
    >>> m.rate, m.warm_rate, m.first_output
    (250.0, 375.0, 2.0)
    """
    marks = sorted(marks)
    if not marks:
        raise ValueError("the program left no marks: no record came through")
    if started is None:
        started = float(os.environ[STARTED])
    end, records = marks[-1]
    enough = records * WARM_UP if warm_up is None else warm_up
    warm, before = next(mark for mark in marks if mark[1] >= enough)
    if warm == end:
        raise ValueError("the warm-up took the whole run: run more records, or smaller batches")
    return Measurement(
        records=round(records),
        seconds=end - started,
        first_output=marks[0][0] - started,
        rate=records / (end - started),
        warm_rate=(records - before) / (end - warm),
    )


def emit(measurement: Measurement) -> None:
    """Print a measurement for the runner; the programs' last act."""
    print(json.dumps({"measurement": asdict(measurement)}), flush=True)
