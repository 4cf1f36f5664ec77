"""A trial: faults strike a program, and what differs afterwards is found.

The program is an actor (`tests.torture.acting`); tests on Spark are in ``test_torture.py``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.torture.faults import kinds_named
from holdfast.torture.order import Order
from holdfast.torture.program import child_command
from holdfast.torture.report import TortureReport, write_report
from holdfast.torture.settings import TortureError, TortureSettings
from holdfast.torture.trial import fewest, torture


def tried(
    folder: Path,
    mistake: str,
    faults: int = 2,
    only: str = "kill-driver",
    calm: int = 1,
    **more: Any,
) -> TortureReport:
    order = Order(
        str(folder / "report"), str(folder / "report" / "shared"), "t", "actor", (mistake,)
    )
    # at any time: only a job on an engine has steps
    kinds = tuple(replace(kind, steps=()) for kind in kinds_named(only.split(",")))
    settings = TortureSettings(
        order, child_command("tests.torture.acting"), faults, 3, kinds, calm, patience=60.0, **more
    )
    return torture(settings)


def test_a_good_program_passes(tmp_path: Path) -> None:
    report = tried(tmp_path, "nothing", faults=3)
    assert report.findings == []
    assert report.by_kind == {"kill-driver": 3}
    assert report.verdict == "passed: the results are those of the undisturbed run"
    (sink,) = report.sinks
    assert (sink.expected, sink.found, sink.guarantee) == (60, 60, "exactly once")


def test_a_difference_is_shown_with_the_fault_before_it(tmp_path: Path) -> None:
    report = tried(tmp_path, "writes again", faults=1)
    assert {finding.kind for finding in report.findings} == {"surplus"}
    assert {finding.fault for finding in report.findings} == {1}
    shown = "\n".join(report.lines())
    assert "seen after fault" in shown
    assert "FAILED" in shown
    as_json, page = write_report(report, tmp_path / "written")
    read = json.loads(as_json.read_bytes())
    assert read["seed"] == 3
    assert read["findings"][0]["kind"] == "surplus"
    assert "killed the program" in page.read_text()


def test_a_program_that_fails_after_a_fault_is_a_finding(tmp_path: Path) -> None:
    (finding,) = tried(tmp_path, "fails after a restart").findings
    assert finding.kind == "failed"
    assert "it does not recover" in finding.text
    assert finding.fault == 1


def test_the_faults_that_matter_are_found_by_halving() -> None:
    tried_with: list[list[int]] = []

    def differs(numbers: Sequence[int]) -> bool:
        tried_with.append(list(numbers))
        return 6 in numbers

    assert fewest(range(1, 9), differs, 10) == range(6, 7)
    assert tried_with == [[1, 2, 3, 4], [5, 6, 7, 8], [5, 6], [5], [6]]
    assert fewest(range(1, 9), differs, 2) == range(5, 9)
    assert fewest(range(1, 9), lambda numbers: len(numbers) == 8, 10) == range(1, 9)


def test_a_difference_is_traced_to_fewer_faults(tmp_path: Path) -> None:
    report = tried(tmp_path, "writes again", faults=2, shrink=1)
    assert report.enough == (1,)
    assert "there is a difference with these faults alone: 1" in report.lines()


def test_a_torture_without_a_possible_fault_is_not_complete(tmp_path: Path) -> None:
    report = tried(tmp_path, "nothing", faults=1, only="kill-source")
    assert not report.is_complete
    assert report.verdict == "nothing found, but only 0 of 1 faults were possible"


def test_faults_that_are_not_possible_do_not_count(tmp_path: Path) -> None:
    report = tried(tmp_path, "nothing", faults=2, only="kill-driver,kill-source")
    assert report.by_kind == {"kill-driver": 2}
    _, reason = report.skipped["kill-source"]
    assert reason == "no source function has a process of its own"


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("fails", r"the program fails undisturbed, with exit code 1:\n(.|\n)*it is broken"),
        ("starts no job", r"the program has started no job"),
        ("not deterministic", r"two undisturbed runs differ in 'files in \{run\}'"),
    ],
)
def test_a_program_that_cannot_be_tortured_is_refused(
    tmp_path: Path, mistake: str, message: str
) -> None:
    with pytest.raises(TortureError, match=message):
        tried(tmp_path, mistake, calm=2)


def test_a_report_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "file").touch()
    with pytest.raises(TortureError, match="is there, and not empty"):
        tried(tmp_path, "nothing")
