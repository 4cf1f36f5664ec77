"""Tortures a program: undisturbed runs, disturbed runs, and what differs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from holdfast.torture.faults import draw
from holdfast.torture.report import FaultEntry, TortureReport
from holdfast.torture.runs import CalmRuns, DisturbedRun
from holdfast.torture.settings import TortureError, TortureSettings

__all__ = ["fewest", "torture"]

T = TypeVar("T")

#: how many disturbed runs there are if each ends before its faults are done
_RUNS: Final = 20


def torture(settings: TortureSettings) -> TortureReport:
    """Run the program, undisturbed and disturbed, and compare its sinks.

    Raises:
        TortureError: when the program cannot run undisturbed, or gives no comparable results.
    """
    place = settings.order.path
    if place.exists() and any(place.iterdir()):
        message = f"'{place}' is there, and not empty; choose another directory for the report"
        raise TortureError(message)
    # NB: what a run is told may have passwords
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    began = time.time()
    calm = CalmRuns(settings)
    report = TortureReport(
        program=" ".join([settings.order.program, *settings.order.arguments]),
        seed=settings.seed,
        asked=settings.faults,
        kinds=tuple(kind.name for kind in settings.kinds),
        began=began,
        repeat=settings.repeat,
        records=calm.records,
    )
    plan = draw(settings.seed, settings.kinds, settings.order.interval_ms / 1000)
    for number in range(1, _RUNS + 1):
        before = report.carried_out
        run = DisturbedRun(settings, calm, report, f"run-{number}")
        run.strike(plan, settings.faults - before)
        if report.findings and settings.shrink:
            report.enough = _shrunk(settings, calm, run)
        if report.findings or report.is_complete or report.carried_out == before:
            break
    report.seconds = time.time() - began
    return report


def _shrunk(settings: TortureSettings, calm: CalmRuns, run: DisturbedRun) -> tuple[int, ...]:
    """Return the numbers of some faults of a run that are enough for a difference."""
    runs = itertools.count(1)

    def differs(faults: Sequence[FaultEntry]) -> bool:
        trial = TortureReport("", settings.seed, len(faults), (), 0.0)
        again = DisturbedRun(settings, calm, trial, f"shrink-{next(runs)}")
        again.strike(iter([run.planned[fault.number] for fault in faults]), len(faults))
        return bool(trial.findings)

    return tuple(fault.number for fault in fewest(run.struck, differs, settings.shrink))


def fewest(things: Sequence[T], differs: Callable[[Sequence[T]], bool], trials: int) -> Sequence[T]:
    """Return fewer things for which something still holds, found by halving, in so many trials."""
    while len(things) > 1 and trials > 0:
        middle = len(things) // 2
        for half in (things[:middle], things[middle:]):
            trials -= 1
            if differs(half):
                things = half
                break
            if not trials:
                return things
        else:
            return things
    return things
