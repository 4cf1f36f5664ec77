"""A killed driver: streaming DataFrames are read on exactly where the last checkpoint ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark.streaming_frames import FILES, KEYS, main, write_files

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("streaming_frames.py")


def records(folder: Path) -> list[list[str]]:
    """The lines that the program wrote."""
    return [line.split() for line in (folder / "out").read_text().splitlines()]


def test_files_and_rates_go_on_exactly_after_the_checkpoint(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver dies in a process of its own; the one that goes on is that of the tests."""
    write_files(tmp_path / "files")
    command = [sys.executable, str(PROGRAM), str(tmp_path)]
    first = subprocess.run(command, capture_output=True, text=True, check=False, timeout=800)
    assert first.returncode == -signal.SIGKILL, first.stderr
    before = records(tmp_path)
    # NB: the driver that died may have read all files; the other frames never end
    write_files(tmp_path / "files", first=FILES)
    main(tmp_path, kill=False)
    after = records(tmp_path)[len(before) :]
    assert "continues from checkpoint" in caplog.text
    for name in ("files", "rate", "micro"):
        old = [int(value) for source, value, _ in before if source == name]
        new = [int(value) for source, value, _ in after if source == name]
        assert old == list(range(len(old))), f"{name} begins at the beginning"
        assert new == list(range(new[0], new[0] + len(new))), f"no row of {name} is left out"
        assert new[0] > 0, f"{name} goes on"
    # The state agrees with the sources: each row was counted once. Rows between the two lives may
    # not have been written: the driver can die when they are in a checkpoint, but not handed over.
    for _, value, count in [*before, *after]:
        assert int(count) == int(value) // KEYS + 1
