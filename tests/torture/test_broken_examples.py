"""The broken examples: each is a program with one mistake, and the torture finds it.

Here they run on the engine without Spark, which takes a few seconds for each, and their tasks fail.
``scripts/torture.py examples`` runs them on Spark.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((ROOT / "examples" / "broken").glob("[!_]*.py"))


def test_there_are_ten_and_the_documentation_has_them() -> None:
    page = (ROOT / "docs" / "torture.md").read_text()
    table = page.partition("## Ten broken jobs")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert len(PROGRAMS) == 10
    assert sorted(named) == [path.stem for path in PROGRAMS]


def test_each_explains_its_mistake_and_marks_the_line() -> None:
    for path in PROGRAMS:
        text = path.read_text()
        assert (ast.get_docstring(ast.parse(text)) or "").startswith("MISTAKE: "), path
        assert text.count("# the mistake") == 1, path


def tortured(folder: Path, program: Path) -> tuple[int, str]:
    """Torture a program on the engine without Spark; returns the exit code and what it said."""
    # NB: when the second checkpoint is nearly complete: all records since the first one come again
    faults = ("--faults", "1", "--seed", "10", "--only", "fail-task")
    command = [sys.executable, "-m", "holdfast", "torture", "--engine", "local", "--calm", "1"]
    done = subprocess.run(
        [*command, *faults, "--report", str(folder / "report"), str(program)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_the_mistake_is_found(tmp_path: Path, program: Path) -> None:
    code, said = tortured(tmp_path, program)
    assert code == 1, said
    report = json.loads((tmp_path / "report" / "report.json").read_bytes())
    assert {finding["kind"] for finding in report["findings"]} <= {"missing", "surplus"}, said
