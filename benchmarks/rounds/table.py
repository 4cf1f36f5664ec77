"""What the rounds come to: medians, ratios of neighbours, and the bars beside them.

As in `benchmarks.ratios`: a ratio is one of two runs of the same round, so that what the machine
does meanwhile is in both, and what counts is the median of the rounds' ratios.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median

from benchmarks.measure import Measurement
from benchmarks.ratios import Ratio, ratio
from benchmarks.report import figure_of
from benchmarks.rounds.suite import Row, Work
from benchmarks.runner import Result

__all__ = ["Line", "Rounds", "lines_of", "render"]

#: By work: in each round, the result of each side.
Rounds = Mapping[str, Sequence[Mapping[str, Result]]]

NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    row: Row
    value: float | None
    other: float | None
    ratio: Ratio | None
    #: ``pass``, ``FAIL``, ``not measured``, or "" where nothing is expected.
    outcome: str


def lines_of(rows: Sequence[Row], rounds: Rounds) -> list[Line]:
    """Return the lines of the works that were run."""
    return [
        _line(row, [_together(each) for each in zip(*works, strict=False)])
        for row in rows
        if all(works := [rounds.get(work, ()) for work in (row.work, *row.more)])
    ]


def _together(works: Sequence[Mapping[str, Result]]) -> Mapping[str, Result]:
    """Return the results of a round, by side: of several works with the figures of all."""
    first, *others = works
    if not others:
        return first
    return {side: _with_figures([work.get(side) for work in works]) for side in first}


def _with_figures(results: Sequence[Result | None]) -> Result:
    measured = [each.measurement for each in results if each and each.measurement]
    figures = {name: value for each in measured for name, value in each.figures.items()}
    return Result("", "", 0, Measurement(figures=figures))


def _line(row: Row, rounds: Sequence[Mapping[str, Result]]) -> Line:
    values = [_figure(row, results.get(row.of)) for results in rounds]
    others = [_figure(row, results.get(row.by)) for results in rounds]
    ratios = [a / b if a and b else None for a, b in zip(values, others, strict=True)]
    value, other, times = _median(values), _median(others), ratio(ratios)
    return Line(row, value, other, times, _outcome(row, value, times))


def _figure(row: Row, result: Result | None) -> float | None:
    found = [figure_of(result, name) for name in row.figures]
    known = [value for value in found if value is not None]
    if len(known) < len(found):
        return None
    return known[0] if len(known) == 1 else geometric_mean(known)


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _outcome(row: Row, value: float | None, times: Ratio | None) -> str:
    bars = (
        (value, row.at_least, row.at_most),
        (times and times.median, row.times_at_least, row.times_at_most),
    )
    outcomes = [_reached(*bar) for bar in bars if bar[1] is not None or bar[2] is not None]
    worst = (each for each in ("FAIL", NOT_MEASURED, "pass") if each in outcomes)
    return next(worst, "")


def _reached(value: float | None, at_least: float | None, at_most: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    low = at_least is None or value >= at_least
    high = at_most is None or value <= at_most
    return "pass" if low and high else "FAIL"


def render(lines: Sequence[Line], works: Mapping[str, Work]) -> str:
    """Return the table in Markdown, aligned in a terminal, too."""
    head = ("part", "figure", "", "measured", "to", "measured", "ratio", "lowest to highest")
    rows = [(*head, "bar", ""), *(_cells(line, works) for line in lines)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    text = [
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    text.insert(1, " | ".join("-" * width for width in widths))
    return "\n".join(f"| {line} |" for line in text)


def _cells(line: Line, works: Mapping[str, Work]) -> tuple[str, ...]:
    row, times = line.row, line.ratio
    return (
        works[row.work].part,
        row.text,
        row.of,
        _shown(line.value, row.unit),
        row.by,
        _shown(line.other, row.unit),
        "" if times is None else f"{times.median:.3g}",
        "" if times is None else f"{times.lowest:.3g} to {times.highest:.3g}",
        _bars(row),
        line.outcome,
    )


def _shown(value: float | None, unit: str) -> str:
    """Return a figure with its unit.

    >>> _shown(1234.5, "/s"), _shown(0.0123, "s")
    ('1,234/s', '0.0123 s')
    """
    if value is None:
        return ""
    number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{number}{unit}" if unit == "/s" else f"{number} {unit}"


def _bars(row: Row) -> str:
    bars = (
        ("≥", row.at_least, row.unit),
        ("≤", row.at_most, row.unit),
        ("≥", row.times_at_least, "×"),
        ("≤", row.times_at_most, "×"),
    )
    return ", ".join(f"{sign} {bar:.3g} {unit}" for sign, bar, unit in bars if bar is not None)
