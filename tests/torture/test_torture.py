"""``holdfast torture`` on Spark: a short one. ``scripts/torture.py`` has longer ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LONGEST = 400

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(LONGEST + 60)]

#: keyed state; every number is counted once, and printed at least once
GOOD = """
import sys
from holdfast.common import Encoder
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.file_system import FileSink
from holdfast.datastream.connectors.number_seq import NumberSequenceSource

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
counts = (
    env.from_source(NumberSequenceSource(1, 1000))
    .map(lambda number: (number % 7, 1))
    .key_by(lambda pair: pair[0])
    .reduce(lambda a, b: (a[0], a[1] + b[1]))
)
sink = FileSink.for_row_format(sys.argv[1], Encoder.simple_string_encoder())
counts.sink_to(sink.build()).name("files")
counts.print()
env.execute("good")
"""


def tortured(folder: Path, *arguments: str) -> tuple[int, Mapping[str, Any], str]:
    """Return the exit code, the report, and what was printed."""
    command = [sys.executable, "-m", "holdfast", "torture", "--report", str(folder / "report")]
    done = subprocess.run(
        [*command, "--calm", "1", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LONGEST,
    )
    written = folder / "report" / "report.json"
    report = json.loads(written.read_bytes()) if written.exists() else {}
    return done.returncode, report, done.stdout + done.stderr


def test_nothing_is_found_in_a_good_job(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(GOOD)
    production = tmp_path / "production"
    kinds = "kill-worker,stop-worker,cut,fail-task,fail-store,rescale,kill-driver"
    options = ("--faults", "7", "--seed", "1124", "--only", kinds)
    code, report, output = tortured(tmp_path, *options, "job.py", str(production))
    assert code == 0, output
    assert sum(report["by_kind"].values()) == 7
    assert len(report["by_kind"]) >= 4
    files, printed = report["sinks"]
    assert (files["name"], files["guarantee"]) == ("files", "exactly once")
    assert (files["expected"], files["found"]) == (1000, 1000)
    assert (printed["guarantee"], printed["missing"]) == ("at least once", 0)
    assert not production.exists(), "the sink was redirected"


@pytest.mark.parametrize("name", ["source_loses_position", "state_in_field"])
def test_a_planted_mistake_is_found(tmp_path: Path, name: str) -> None:
    program = str(ROOT / "examples" / "broken" / f"{name}.py")
    options = ("--faults", "2", "--seed", "1", "--only", "kill-worker,fail-task")
    code, report, output = tortured(tmp_path, *options, program)
    assert code == 1, output
    found = [finding for finding in report["findings"] if finding["kind"] == "surplus"]
    assert any(finding["fault"] is not None for finding in found), output
    assert "seen after fault" in output
