"""The runs of a program: undisturbed, and while faults strike it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from holdfast.torture.comparing import SinkComparison, SinkContents, compare, compare_all
from holdfast.torture.faults import PlannedFault
from holdfast.torture.order import Order, read_notes
from holdfast.torture.pacing import records_read, set_pace
from holdfast.torture.program import ProgramEndedError, ProgramRun, ProgramStuckError
from holdfast.torture.reading import read_contents
from holdfast.torture.report import FaultEntry, Finding, SinkEntry, TortureReport
from holdfast.torture.settings import TortureError, TortureSettings
from holdfast.torture.striking import NotPossibleError, Striker

__all__ = ["CalmRuns", "DisturbedRun"]

#: how many records of a difference are shown
_SHOWN: Final = 5
#: seconds that a fault takes, before any is measured
_GUESS: Final = 3.0
#: records per second and subtask: the least, and for a job of which nothing is known
_SLOWEST: Final = 1.0
_UNKNOWN: Final = 1_000.0
#: how many faults in a row may turn out to be impossible
_IN_VAIN: Final = 50


def _read(settings: TortureSettings, order: Order) -> dict[str, SinkContents]:
    found = read_contents(order, settings.contents)
    return {
        name: replace(contents, unread="as asked")
        if contents.name in settings.ignored
        else contents
        for name, contents in found.items()
    }


@contextmanager
def running(settings: TortureSettings, order: Order) -> Iterator[ProgramRun]:
    Path(order.shared).mkdir(parents=True, exist_ok=True)
    Striker.prepare(order.path)
    run = ProgramRun(order, settings.command, settings.patience)
    try:
        yield run
    finally:
        run.close()


def _order_of(settings: TortureSettings, name: str, disturbed: bool) -> Order:
    base = settings.order
    return msgspec.structs.replace(
        base,
        directory=str(base.path / name),
        name=f"{base.name}-{name}",
        disturbed=disturbed,
    )


class CalmRuns:
    """What the program does undisturbed.

    Attributes:
        records: how many records its sources read.
        contents: what its sinks hold afterwards, by id.
    """

    def __init__(self, settings: TortureSettings) -> None:
        """Run the program.

        Raises:
            TortureError: when it fails, or its results differ from run to run.
        """
        self._settings = settings
        self.records = 0
        runs = [self._run(f"calm-{number}") for number in range(1, settings.calm + 1)]
        self.contents = runs[0]
        if all(sink.unread for sink in self.contents.values()):
            message = (
                "there is nothing to compare: the job has no sink that can be read; write to files "
                "below {run}, or give a function with --contents"
            )
            raise TortureError(message)
        for other in runs[1:]:
            self._check_same(other)

    def _run(self, name: str) -> dict[str, SinkContents]:
        settings, order = self._settings, _order_of(self._settings, name, False)
        settings.say(f"{name}: undisturbed")
        with running(settings, order) as run:
            try:
                code = run.finish(settings.patience * 5)
            except ProgramStuckError as error:
                message = f"{error}, undisturbed; give it an end, or fewer records with --records"
                raise TortureError(message) from None
            if code:
                message = f"the program fails undisturbed, with exit code {code}:\n{run.log}"
                raise TortureError(message)
        if not read_notes(order.path):
            message = (
                "the program has started no job; it must get its environment from "
                "StreamExecutionEnvironment.get_execution_environment()"
            )
            raise TortureError(message)
        self.records = max(self.records, records_read(order.path))
        return _read(settings, order)

    def _check_same(self, other: Mapping[str, SinkContents]) -> None:
        found = compare_all(self.contents, other).values()
        unstable = [sink for sink in found if sink.differs or sink.repeated]
        if unstable:
            names = ", ".join(f"'{sink.name}'" for sink in unstable)
            shown = [*unstable[0].missing, *unstable[0].surplus][:2]
            message = (
                f"the job is not deterministic: two undisturbed runs differ in {names}, for "
                f"example {' and '.join(map(repr, shown))}; so a difference after faults would "
                "prove nothing. Leave out what depends on time, order or chance, leave the sink "
                "out with --ignore, or give a function with --contents"
            )
            raise TortureError(message)


class DisturbedRun:
    """One disturbed run, with its faults."""

    def __init__(
        self, settings: TortureSettings, calm: CalmRuns, report: TortureReport, name: str
    ) -> None:
        """Prepare the run."""
        self._settings = settings
        self._calm = calm
        self._report = report
        self._order = _order_of(settings, name, True)
        #: by sink and record: the fault after which a record was there that should not be
        self._blamed: dict[tuple[str, str], int] = {}
        #: the faults that were carried out, and by their numbers what was planned
        self.struck: list[FaultEntry] = []
        self.planned: dict[int, PlannedFault] = {}
        self._began = time.monotonic()

    def strike(self, plan: Iterator[PlannedFault], count: int) -> None:
        """Run the program; carry out so many faults, let it end, and compare."""
        settings, order = self._settings, self._order
        settings.say(f"{order.path.name}: {count} faults, seed {settings.seed}")
        self._set_pace_of(count, _GUESS, read=0)
        with running(settings, order) as run:
            try:
                self._strike_all(run, plan, count)
                set_pace(order.path, None)
                code = run.finish(settings.patience * 2)
            except ProgramEndedError as error:
                code = error.code
            except ProgramStuckError as error:
                self._find("stuck", "", f"{error}\n{run.log}")
                return
            if code:
                self._find("failed", "", f"the program ended with exit code {code}\n{run.log}")
                return
        # NB: what a fault breaks may be written only when the job reads the rest of its input
        self._look()
        self._compare()

    def _strike_all(self, run: ProgramRun, plan: Iterator[PlannedFault], count: int) -> None:
        striker, done, in_vain = Striker(run), 0, 0
        spent = _GUESS
        known = 0
        while done < count:
            if in_vain >= _IN_VAIN:
                return
            fault = next(plan, None)
            if fault is None:
                return
            before = time.monotonic()
            run.wait_until(
                lambda: run.checkpoints() >= known + fault.checkpoints,  # noqa: B023
                f"a checkpoint after fault {self._report.carried_out}",
            )
            if fault.step is None and not in_vain:
                end = time.monotonic() + fault.delay
                run.wait_until(lambda: time.monotonic() >= end, "the next fault")  # noqa: B023
            self._look()
            if self._carry_out(striker, fault):
                done, in_vain = done + 1, 0
                # NB: not before, because the fault may have waited for a step, or stopped the job
                known = run.checkpoints()
                spent += 0.3 * (time.monotonic() - before - spent)
                self._set_pace_of(count - done, spent, records_read(self._order.path))
            else:
                in_vain += 1
        # NB: so that the last fault is one that the job must recover from while it still reads
        run.wait_until(lambda: run.checkpoints() > known, "a checkpoint after the last fault")
        self._look()

    def _carry_out(self, striker: Striker, fault: PlannedFault) -> bool:
        report, run = self._report, self._order.path
        try:
            what = striker.strike(fault)
        except NotPossibleError as reason:
            count, _ = report.skipped.get(fault.kind, (0, ""))
            report.skipped[fault.kind] = (count + 1, str(reason).splitlines()[0])
            return False
        entry = FaultEntry(
            number=report.carried_out + 1,
            run=run.name,
            kind=fault.kind,
            moment=fault.moment,
            what=what,
            seconds=round(time.monotonic() - self._began, 2),
            records=records_read(run),
        )
        report.faults.append(entry)
        self.struck.append(entry)
        self.planned[entry.number] = fault
        self._settings.say(f"  {entry.number:4} {entry.kind:13} {entry.what}")
        return True

    def _set_pace_of(self, left: int, seconds: float, read: int) -> None:
        """Spread the records that are left over the faults that are left."""
        total, order = self._calm.records, self._order
        if not total:
            rate = _UNKNOWN
        else:
            subtasks = max(1, sum(1 for _ in (order.path / "read").glob("*-*[0-9]")))
            rate = max(_SLOWEST, (total - read) / (left + 1) / seconds / subtasks)
        order.path.mkdir(parents=True, exist_ok=True)
        set_pace(order.path, rate)

    # What differs

    def _look(self) -> None:
        """Note which records are there that should not be, and after which fault that is."""
        if not self.struck:
            return
        found: dict[str, SinkContents] = {}
        with suppress(OSError):  # a file may be gone before it is read
            found = read_contents(self._order, only_local=True)
        for name, contents in found.items():
            expected = self._calm.contents.get(name)
            if expected is None or contents.values:
                continue
            for record in compare(expected, contents).surplus:
                self._blamed.setdefault((name, record), self.struck[-1].number)

    def _compare(self) -> None:
        found = _read(self._settings, self._order)
        for name, comparison in compare_all(self._calm.contents, found).items():
            self._report.sinks.append(
                SinkEntry(
                    run=self._order.path.name,
                    name=comparison.name,
                    guarantee=comparison.guarantee.value,
                    expected=comparison.expected,
                    found=comparison.found,
                    missing=comparison.missing.total(),
                    surplus=comparison.surplus.total(),
                    repeated=comparison.repeated,
                    unread=comparison.unread,
                )
            )
            self._find_in(name, comparison)

    def _find_in(self, name: str, comparison: SinkComparison) -> None:
        for kind, records in (("surplus", comparison.surplus), ("missing", comparison.missing)):
            for record, count in itertools.islice(sorted(records.items()), _SHOWN):
                blamed = self._blamed.get((name, record)) if kind == "surplus" else None
                text = record if count == 1 else f"{record} ({count} times)"
                self._find(kind, comparison.name, text, blamed)

    def _find(self, kind: str, sink: str, text: str, fault: int | None = None) -> None:
        last = self.struck[-1].number if self.struck else None
        before = fault if fault is not None else (last if kind in ("stuck", "failed") else None)
        self._report.findings.append(
            Finding(run=self._order.path.name, kind=kind, sink=sink, text=text, fault=before)
        )
