"""``holdfast torture``: its options, and jobs that it refuses. What it does: tests/torture."""

from __future__ import annotations

from pathlib import Path

from holdfast.torture.faults import KINDS
from tests.cli.conftest import Holdfast, Program


def test_it_lists_the_kinds_of_faults(holdfast: Holdfast) -> None:
    done = holdfast("torture", "--list")
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.output.splitlines()] == [kind.name for kind in KINDS]


def test_an_unknown_kind_of_fault_is_refused(holdfast: Holdfast, program: Program) -> None:
    done = holdfast("torture", "--only", "flood", program("pass"))
    assert done.exit_code == 2
    assert "there is no fault 'flood'" in done.output


def test_a_function_that_is_not_there_is_refused(
    holdfast: Holdfast, program: Program, tmp_path: Path
) -> None:
    done = holdfast("torture", "--contents", f"{tmp_path}/no.py:contents", program("pass"))
    assert done.exit_code == 2
    assert "expected FILE.py:FUNCTION or MODULE:FUNCTION" in done.output


def test_a_program_that_fails_by_itself_cannot_be_tortured(
    holdfast: Holdfast, program: Program, tmp_path: Path
) -> None:
    failing = program("raise SystemExit('it cannot run')")
    done = holdfast("torture", "--report", tmp_path / "report", failing)
    assert done.exit_code == 2
    assert "the program fails undisturbed, with exit code 1" in done.output
    assert "it cannot run" in done.output
