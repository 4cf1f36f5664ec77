"""The report of a torture: as JSON, as a page, and as lines for a terminal."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from holdfast.printable import counted

__all__ = ["FaultEntry", "Finding", "SinkEntry", "TortureReport", "page_of", "write_report"]


#: how many characters of a record are shown in a terminal
_LONGEST: Final = 300


class FaultEntry(msgspec.Struct, frozen=True):
    """A fault that was carried out.

    Attributes:
        run: in which run of the program.
        moment: when the plan wanted it.
        what: what was done.
        seconds: since the run began.
        records: how many records the sources had read then.
    """

    number: int
    run: str
    kind: str
    moment: str
    what: str
    seconds: float
    records: int


class SinkEntry(msgspec.Struct, frozen=True):
    """A sink that was compared, or could not be.

    Attributes:
        guarantee: what was checked.
        unread: why it was not compared; empty if it was.
    """

    run: str
    name: str
    guarantee: str
    expected: int
    found: int
    missing: int
    surplus: int
    repeated: int
    unread: str


class Finding(msgspec.Struct, frozen=True):
    """Something that is wrong.

    Attributes:
        kind: ``missing`` and ``surplus`` are about a record; ``failed`` and ``stuck`` about a run.
        fault: the number of the last fault before it was seen; None if that is not known.
    """

    run: str
    kind: str
    sink: str
    text: str
    fault: int | None


class TortureReport(msgspec.Struct):
    """What was done to a job, and what was found.

    Attributes:
        asked: how many faults were asked for.
        repeat: the command that does the same again.
        skipped: by kind, how many faults could not be carried out, which do not count, and why
            the last one could not.
        enough: the numbers of fewer faults that were enough for a difference, if that was tried.
        records: how many records the sources read undisturbed.
    """

    program: str
    seed: int
    asked: int
    kinds: tuple[str, ...]
    began: float
    repeat: str = ""
    records: int = 0
    seconds: float = 0.0
    enough: tuple[int, ...] = ()
    faults: list[FaultEntry] = []
    sinks: list[SinkEntry] = []
    findings: list[Finding] = []
    skipped: dict[str, tuple[int, str]] = {}

    @property
    def carried_out(self) -> int:
        """Return how many faults were carried out."""
        return len(self.faults)

    @property
    def is_complete(self) -> bool:
        """Return whether all faults were carried out."""
        return self.carried_out >= self.asked

    @property
    def by_kind(self) -> dict[str, int]:
        """Return how many faults were carried out of each kind."""
        return dict(Counter(fault.kind for fault in self.faults).most_common())

    def lines(self) -> list[str]:
        """Return the result for a terminal."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.by_kind.items()) or "none"
        lines = [f"{self.carried_out} of {self.asked} faults in {self.seconds:.0f} s: {kinds}"]
        lines += [
            f"not possible: {count} {kind}: {reason}"
            for kind, (count, reason) in self.skipped.items()
        ]
        lines += [_sink_line(sink) for sink in self.sinks]
        lines += [self.shown(finding) for finding in self.findings]
        if self.enough:
            numbers = ", ".join(map(str, self.enough))
            lines.append(f"there is a difference with these faults alone: {numbers}")
        again = [f"repeat it with: {self.repeat}"] if self.findings and self.repeat else []
        return [*lines, self.verdict, *again]

    @property
    def verdict(self) -> str:
        """Return the result in one line."""
        if self.findings:
            return f"FAILED: {counted(len(self.findings), 'difference')} shown"
        if not self.is_complete:
            return (
                f"nothing found, but only {self.carried_out} of {self.asked} faults were possible"
            )
        return "passed: the results are those of the undisturbed run"

    def shown(self, finding: Finding) -> str:
        """Return a finding with the fault before it."""
        where = f" in sink '{finding.sink}'" if finding.sink else ""
        text = finding.text
        if finding.sink and len(text) > _LONGEST:
            text = f"{text[:_LONGEST]}... ({len(text)} characters)"
        return f"{finding.kind}{where}: {text}{self._after(finding)}"

    def _after(self, finding: Finding) -> str:
        if finding.fault is None:
            return ""
        fault = next(fault for fault in self.faults if fault.number == finding.fault)
        return f"; seen after fault {fault.number}: {fault.what}"


def _sink_line(sink: SinkEntry) -> str:
    if sink.unread:
        return f"not compared: sink '{sink.name}': {sink.unread}"
    again = f", {sink.repeated} repeated" if sink.repeated else ""
    return (
        f"sink '{sink.name}', {sink.guarantee}: {sink.expected} records expected, {sink.found} "
        f"found, {sink.missing} missing, {sink.surplus} surplus{again}"
    )


def write_report(report: TortureReport, directory: Path) -> tuple[Path, Path]:
    """Write the report into a directory; returns the paths of the JSON file and of the page."""
    directory.mkdir(parents=True, exist_ok=True)
    as_json, page = directory / "report.json", directory / "report.html"
    data = {**msgspec.to_builtins(report), "verdict": report.verdict, "by_kind": report.by_kind}
    as_json.write_bytes(msgspec.json.format(msgspec.json.encode(data), indent=2))
    page.write_text(page_of(report))
    return as_json, page


_STYLE: Final = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 }
th, td { text-align: left; padding: .25rem .6rem; vertical-align: top }
tr { border-bottom: 1px solid #8884 }
.verdict { padding: .8rem 1rem; border-radius: .4rem; font-weight: 600 }
.good { background: #2e7d3233 } .bad { background: #c6282833 }
pre { white-space: pre-wrap; margin: 0 }
tr.blamed td { background: #c6282822 }
"""


def page_of(report: TortureReport) -> str:
    """Return the report as one HTML page that needs nothing else."""
    blamed = {finding.fault for finding in report.findings}
    parts = [
        f"<h1>{_escaped(report.program)}</h1>",
        f'<p class="verdict {"bad" if report.findings else "good"}">{_escaped(report.verdict)}</p>',
        f"<p>{report.carried_out} of {report.asked} faults in {report.seconds:.0f} s, seed "
        f"{report.seed}; the sources read {report.records} records.</p>",
        f"<pre>{_escaped(report.repeat)}</pre>",
    ]
    if report.findings:
        parts += ["<h2>Differences</h2>", _findings_table(report)]
    if report.enough:
        numbers = ", ".join(map(str, report.enough))
        parts.append(f"<p>There is a difference with these faults alone: {numbers}.</p>")
    parts += ["<h2>Sinks</h2>", _sinks_table(report)]
    if report.skipped:
        skipped = [(kind, count, reason) for kind, (count, reason) in report.skipped.items()]
        parts += ["<h2>Not possible</h2>", _table(("fault", "times", "why"), skipped)]
    rows = [
        (str(f.number), f.run, f.kind, f.what, f"{f.seconds:.1f} s", str(f.records))
        for f in report.faults
    ]
    marks = [fault.number in blamed for fault in report.faults]
    names = ("#", "run", "fault", "what was done", "after", "records read")
    parts += ["<h2>Faults</h2>", _table(names, rows, marks)]
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>Torture of {_escaped(report.program)}</title><style>{_STYLE}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n"
    )


def _findings_table(report: TortureReport) -> str:
    rows = [
        (f.kind, f.sink, f.text, "" if f.fault is None else f"{f.fault}") for f in report.findings
    ]
    return _table(("kind", "sink", "record or message", "after fault"), rows)


def _sinks_table(report: TortureReport) -> str:
    names = ("run", "sink", "checked", "expected", "found", "missing", "surplus", "repeated")
    rows = []
    for s in report.sinks:
        figures = (s.expected, s.found, s.missing, s.surplus, s.repeated)
        told = ("", "", "", "", "") if s.unread else tuple(map(str, figures))
        rows.append((s.run, s.name, s.unread or s.guarantee, *told))
    return _table(names, rows)


def _table(
    names: Sequence[str], rows: Sequence[Sequence[object]], marks: list[bool] | None = None
) -> str:
    lines = ["<tr>" + "".join(f"<th>{_escaped(name)}</th>" for name in names) + "</tr>"]
    for number, row in enumerate(rows):
        cells = "".join(f"<td><pre>{_escaped(str(cell))}</pre></td>" for cell in row)
        mark = ' class="blamed"' if marks and marks[number] else ""
        lines.append(f"<tr{mark}>{cells}</tr>")
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def _escaped(text: str) -> str:
    return html.escape(text)
