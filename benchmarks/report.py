"""Turns results into tables for people and JSON for programs."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import Measurement
from benchmarks.runner import Result, Settings
from benchmarks.workloads import BARS, WORKLOADS, Bar

__all__ = ["Verdict", "as_json", "commit_of", "figure_of", "judge", "render", "write_json"]

#: The system that the others are compared with.
OURS = "holdfast"


@dataclass(frozen=True)
class Verdict:
    """Whether a bar was reached; ``value`` is None where something was not measured."""

    workload: str
    text: str
    value: float | None
    limit: str
    #: ``pass``, ``FAIL`` or ``not measured``.
    outcome: str


def judge(results: Iterable[Result], bars: Iterable[Bar] = BARS) -> list[Verdict]:
    """Hold the results against the bars of the workloads that were run."""
    by_name = {(r.workload, r.program): r for r in results}
    run = {workload for workload, _ in by_name}
    return [_verdict(bar, by_name) for bar in bars if bar.workload in run]


def _verdict(bar: Bar, results: dict[tuple[str, str], Result]) -> Verdict:
    value = figure_of(results.get((bar.workload, bar.program)), bar.figure)
    if bar.by is not None:
        divisor = figure_of(results.get((bar.workload, bar.by)), bar.by_figure or bar.figure)
        value = value / divisor if value is not None and divisor else None
    limit = f"≥ {bar.at_least:g}" if bar.at_least is not None else f"≤ {bar.at_most:g}"
    return Verdict(bar.workload, bar.text, value, limit, _outcome(bar, value))


def _outcome(bar: Bar, value: float | None) -> str:
    if value is None:
        return "not measured"
    low = bar.at_least is None or value >= bar.at_least
    high = bar.at_most is None or value <= bar.at_most
    return "pass" if low and high else "FAIL"


def figure_of(result: Result | None, name: str) -> float | None:
    """Return a figure of a result by its name, or None if it was not measured."""
    if result is None or result.measurement is None:
        return None
    measurement = result.measurement
    if name in measurement.figures:
        return measurement.figures[name]
    value = getattr(measurement, name, None)
    return float(value) if value is not None else None


def render(results: Sequence[Result], verdicts: Sequence[Verdict]) -> str:
    """Return the tables: one per workload, then the bars."""
    names = dict.fromkeys(result.workload for result in results)
    parts = [_workload(name, [r for r in results if r.workload == name]) for name in names]
    if verdicts:
        parts.append(_verdicts(verdicts))
    return "\n\n".join(parts)


def _workload(name: str, results: Sequence[Result]) -> str:
    unit = WORKLOADS[name].unit if name in WORKLOADS else "records"
    head = (
        "system",
        unit,
        "first output",
        "/s with start-up",
        "/s after warm-up",
        f"{OURS} is, with",
        "after",
    )
    failures = [f"  {result.program}: {result.failure}" for result in results if result.failure]
    if name in WORKLOADS and WORKLOADS[name].figures_are_rates:
        return "\n".join([name, _rates(results), *failures])
    ours = next((r.measurement for r in results if r.program == OURS), None)
    rows = [_row(result, ours) for result in results]
    text = f"{name}\n{_table([head, *rows])}"
    figures = [
        f"  {result.program}: {key} = {value:,.4g}"
        for result in results
        if result.measurement is not None
        for key, value in result.measurement.figures.items()
    ]
    return "\n".join([text, *figures, *failures])


def _rates(results: Sequence[Result]) -> str:
    """A table of figures that are rates: one row each, the first program against the others."""
    figures = [r.measurement.figures if r.measurement else {} for r in results]
    peers = [f"{results[0].program} is" for _ in results[1:]]
    head = ("", *(f"{result.program}, /s" for result in results), *peers)
    rows = []
    for name in dict.fromkeys(name for each in figures for name in each):
        rates = [each.get(name) for each in figures]
        cells = ["" if rate is None else f"{rate:,.0f}" for rate in rates]
        rows.append((name, *cells, *(_times(rates[0], rate) for rate in rates[1:])))
    return _table([head, *rows])


def _times(ours: float | None, theirs: float | None) -> str:
    return f"{ours / theirs:.2f} ×" if ours is not None and theirs else ""


def _row(result: Result, ours: Measurement | None) -> tuple[str, ...]:
    m = result.measurement
    if m is None:
        return (result.program, f"{result.records:,}", "failed", "", "", "", "")
    if not m.warm_rate:
        return (result.program, f"{m.records or result.records:,}", "", "", "", "", "")
    against = ours if ours is not None and result.program != OURS else None
    return (
        result.program,
        f"{m.records:,}",
        f"{m.first_output:.1f} s",
        f"{m.rate:,.0f}",
        f"{m.warm_rate:,.0f}",
        f"{against.rate / m.rate:.1f} ×" if against else "",
        f"{against.warm_rate / m.warm_rate:.1f} ×" if against else "",
    )


def _verdicts(verdicts: Sequence[Verdict]) -> str:
    rows = [
        (v.workload, v.text, "" if v.value is None else f"{v.value:.2f}", v.limit, v.outcome)
        for v in verdicts
    ]
    return f"bars\n{_table([('workload', 'holdfast', 'measured', 'bar', ''), *rows])}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Align columns: the first and texts to the left, figures to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    right = [all(_is_figure(row[i]) for row in rows[1:]) for i in range(len(widths))]
    lines = [
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(f"  {line}" for line in lines)


def _is_figure(cell: str) -> bool:
    return not cell or cell[0].isdigit() or cell == "failed"


def as_json(
    results: Sequence[Result], verdicts: Sequence[Verdict], settings: Settings
) -> dict[str, Any]:
    """Return everything as plain data."""
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": commit_of(settings.root),
        "machine": {
            "cores": os.cpu_count(),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
            "load_before": settings.load,
            "platform": platform.platform(),
            "python": platform.python_version(),
        },
        "settings": {
            "quick": settings.quick,
            "records": settings.records,
            "checkpoint_seconds": settings.checkpoint,
        },
        "results": [asdict(result) for result in results],
        "bars": [asdict(verdict) for verdict in verdicts],
    }


def commit_of(directory: Path) -> str:
    """Return the commit of a checkout; "" where git does not know it."""
    command = ["git", "--no-optional-locks", "--git-dir", str(directory / ".git")]
    command += ["--work-tree", str(directory), "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write the data, making the directory if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=2) + "\n", "utf-8")
