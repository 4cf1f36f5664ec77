"""What a comparison of two checkouts comes to: ratios of pairs, their spread, and tables.

Two runs of the same program differ by more than most changes do, since other work and the clock
rate of the processor move all rates for minutes at a time. Two runs side by side see nearly the
same machine, so what is computed first is the ratio of each *pair*, and only then the median of
the ratios. Which of the two runs comes first alternates, so that it favours neither.

Medians and means are taken of logarithms: exchanging the two checkouts gives the inverse of every
ratio.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median
from typing import Literal

__all__ = ["Pair", "Ratio", "Run", "Side", "order", "overall", "ratio", "render"]

Side = Literal["before", "after"]


@dataclass(frozen=True)
class Run:
    """One run of a workload in one checkout."""

    #: Records per second after warm-up.
    rate: float
    #: The most resident memory of all workers together, in MB; 0 if it was not measured.
    workers_mb: float = 0.0


@dataclass(frozen=True)
class Pair:
    """Two runs of a workload, one after the other, one in each checkout."""

    round: int
    #: Which of the two ran first.
    first: Side
    before: Run
    after: Run

    @property
    def rate(self) -> float:
        """The rate after the change, divided by that before."""
        return self.after.rate / self.before.rate

    @property
    def memory(self) -> float | None:
        """The memory of the workers after the change, divided by that before."""
        if not self.before.workers_mb or not self.after.workers_mb:
            return None
        return self.after.workers_mb / self.before.workers_mb


@dataclass(frozen=True)
class Ratio:
    """The median of several ratios, and the lowest and highest of them."""

    median: float
    lowest: float
    highest: float


def order(number: int) -> tuple[Side, Side]:
    """Return the order of the two runs in a round: before, after, after, before, before, ...

    >>> [order(number)[0] for number in range(4)]
    ['before', 'after', 'before', 'after']
    """
    return ("after", "before") if number % 2 else ("before", "after")


def ratio(values: Sequence[float | None]) -> Ratio | None:
    """Return the median of ratios and their spread, or None if there are none.

    >>> ratio([0.5, 2.0])
    Ratio(median=1.0, lowest=0.5, highest=2.0)
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Ratio(math.exp(median(map(math.log, known))), min(known), max(known))


def overall(workloads: Sequence[Sequence[float | None]]) -> Ratio | None:
    """Return the geometric mean over workloads of their median ratios.

    Its spread is that of the rounds' geometric means. A round that has no ratio for one of the
    workloads does not count for the spread.

    Args:
        workloads: For each workload its ratios, round by round.
    """
    medians = [each.median for each in map(ratio, workloads) if each is not None]
    rounds = [
        geometric_mean([value for value in values if value is not None])
        for values in zip(*workloads, strict=False)
        if None not in values
    ]
    if len(medians) < len(workloads) or not rounds:
        return None
    return Ratio(geometric_mean(medians), min(rounds), max(rounds))


def render(pairs: Mapping[str, Sequence[Pair]]) -> str:
    """Return two Markdown tables: the ratios of the workloads, and the runs they come from."""
    return f"{_summary(pairs)}\n\n{_runs(pairs)}"


def _summary(pairs: Mapping[str, Sequence[Pair]]) -> str:
    head = (
        *("workload", "before, /s", "after, /s", "after/before", "lowest to highest"),
        *("workers before, MB", "workers after, MB", "memory after/before", "lowest to highest"),
    )
    rows = [
        (
            workload,
            f"{median(pair.before.rate for pair in each):,.0f}",
            f"{median(pair.after.rate for pair in each):,.0f}",
            *_cells(ratio([pair.rate for pair in each])),
            f"{median(pair.before.workers_mb for pair in each):,.0f}",
            f"{median(pair.after.workers_mb for pair in each):,.0f}",
            *_cells(ratio([pair.memory for pair in each])),
        )
        for workload, each in pairs.items()
        if each
    ]
    measured = [each for each in pairs.values() if each]
    rates = _cells(overall([[pair.rate for pair in each] for each in measured]))
    memory = _cells(overall([[pair.memory for pair in each] for each in measured]))
    return _markdown([head, *rows, ("geometric mean", "", "", *rates, "", "", *memory)])


def _cells(value: Ratio | None) -> tuple[str, str]:
    if value is None:
        return "", ""
    return f"{value.median:.3f} ×", f"{value.lowest:.3f} to {value.highest:.3f}"


def _runs(pairs: Mapping[str, Sequence[Pair]]) -> str:
    head = (
        *("workload", "round", "first", "before, /s", "after, /s", "after/before"),
        *("workers before, MB", "workers after, MB"),
    )
    rows = [
        (
            workload,
            str(pair.round),
            pair.first,
            f"{pair.before.rate:,.0f}",
            f"{pair.after.rate:,.0f}",
            f"{pair.rate:.3f} ×",
            f"{pair.before.workers_mb:,.0f}",
            f"{pair.after.workers_mb:,.0f}",
        )
        for workload, each in pairs.items()
        for pair in each
    ]
    return _markdown([head, *rows])


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table whose columns are aligned in a terminal, too."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    lines.insert(1, " | ".join("-" * width for width in widths))
    return "\n".join(f"| {line} |" for line in lines)
