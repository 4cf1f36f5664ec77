"""What series of `tests.spark.host_faults` have shown, kept in a file: a line of JSON for each.

A long series can be run in pieces. Each piece is a series with its own cluster, job and seed, and
appends its line. `continued` says which piece comes next, and `total` adds up what is there.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Outcome", "Record", "continued", "read", "summary", "total", "write"]


@dataclass(frozen=True)
class Outcome:
    """A fault that was survived.

    Attributes:
        seconds: from the fault to the first results of after it, of all sources; None if the next
            fault came before.
        restarts: how often the job was started again since the fault before.
    """

    name: str
    seconds: float | None
    restarts: int

    def __str__(self) -> str:
        """As progress is printed."""
        seconds = "no" if self.seconds is None else f"{self.seconds:.1f} s to"
        return f"{seconds} new results, {self.restarts} restarts"


@dataclass
class Record:
    """A series.

    Attributes:
        began: date and time, in UTC.
        spot: whether hosts came and went, instead of other faults.
        numbers: how many numbers were committed.
        fewer, more: how often the job went on with fewer slots, and with more.
        seconds: how long it took, with the start of the cluster and the end of the job.
        problems: what was wrong; empty if every count is exact.
    """

    seed: int
    engine: str
    began: str
    spot: bool = False
    outcomes: list[Outcome] = field(default_factory=list)
    numbers: int = 0
    fewer: int = 0
    more: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def restarts(self) -> int:
        """How often the job was started again."""
        return sum(outcome.restarts for outcome in self.outcomes)

    def __str__(self) -> str:
        """All of it in one line, without the text of problems."""
        result = f"{len(self.problems)} PROBLEMS" if self.problems else "every count exact"
        return f"seed {self.seed}, {self.engine} engine: {_figures([self])}; {result}"


def write(path: Path, record: Record) -> None:
    """Append a series to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(asdict(record)) + "\n")


def read(path: Path) -> list[Record]:
    """Return the series of a file; none if there is no file."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [_parsed(json.loads(line)) for line in lines]


def _parsed(fields: dict[str, Any]) -> Record:
    outcomes = [Outcome(**outcome) for outcome in fields.pop("outcomes")]
    return Record(outcomes=outcomes, **fields)


def continued(records: Sequence[Record], seed: int, faults: int) -> tuple[int, int]:
    """Return the seed of the next piece, and how many faults are still to come."""
    done = sum(len(record.outcomes) for record in records)
    after = max((record.seed + 1 for record in records), default=seed)
    return max(seed, after), max(0, faults - done)


def total(records: Sequence[Record]) -> str:
    """Return the figures of several series together, the last line with all of it."""
    lines = [*map(str, records), "", summary(o for record in records for o in record.outcomes)]
    problems = [problem for record in records for problem in record.problems]
    result = f"{len(problems)} PROBLEMS" if problems else "every count exact"
    lines += [*problems, f"{len(records)} series: {_figures(records)}; {result}"]
    return "\n".join(lines)


def summary(outcomes: Iterable[Outcome]) -> str:
    """Return the figures, by fault."""
    by_name = defaultdict(list)
    for outcome in outcomes:
        by_name[outcome.name].append(outcome)
    lines = [f"{'':45} times  restarts  in time  seconds: median, longest"]
    for name, of in sorted(by_name.items()):
        seconds = [outcome.seconds for outcome in of if outcome.seconds is not None]
        restarts = sum(outcome.restarts for outcome in of)
        figures = f"{statistics.median(seconds):16.1f} {max(seconds):8.1f}" if seconds else ""
        lines.append(f"{name:45} {len(of):5} {restarts:9} {len(seconds):8} {figures}")
    return "\n".join(lines)


def _figures(records: Sequence[Record]) -> str:
    faults = sum(len(record.outcomes) for record in records)
    kinds = len({outcome.name for record in records for outcome in record.outcomes})
    fewer, more = sum(r.fewer for r in records), sum(r.more for r in records)
    return (
        f"{faults} faults of {kinds} kinds, {sum(r.restarts for r in records)} restarts, "
        f"{sum(r.numbers for r in records):,} numbers, {fewer} times fewer slots and {more} times "
        f"more, {sum(r.seconds for r in records):.0f} s"
    )
