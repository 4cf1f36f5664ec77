"""A killed driver: streaming DataFrames are read on exactly where the last checkpoint ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.streaming_frames import KEYS, write_files

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("streaming_frames.py")


def run(folder: Path, how: str) -> tuple[subprocess.CompletedProcess[str], list[list[str]]]:
    """Run the program; what it was, and the lines that it wrote."""
    out = folder / "out"
    before = len(out.read_text().splitlines()) if out.exists() else 0
    command = [sys.executable, str(PROGRAM), str(folder), how]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=140)
    return done, [line.split() for line in out.read_text().splitlines()[before:]]


def test_files_and_rates_go_on_exactly_after_the_checkpoint(tmp_path: Path) -> None:
    write_files(tmp_path / "files")
    first, before = run(tmp_path, "kill")
    assert first.returncode == -signal.SIGKILL, first.stderr
    second, after = run(tmp_path, "end")
    assert second.returncode == 0, second.stderr
    assert "goes on from checkpoint" in second.stderr
    for name in ("files", "rate", "micro"):
        old = [int(value) for source, value, _ in before if source == name]
        new = [int(value) for source, value, _ in after if source == name]
        assert old == list(range(len(old))), f"{name} begins at the beginning"
        assert new == list(range(new[0], new[0] + len(new))), f"no row of {name} is left out"
        assert 0 < new[0] <= len(old), f"{name} goes on where the checkpoint was"
    # the state agrees with the sources: each row was counted once
    for _, value, count in [*before, *after]:
        assert int(count) == int(value) // KEYS + 1
