"""The demonstration as a user starts it, only shorter: a failure, a kill -9, and the proof."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def flags() -> list[str]:
    """What ``make demo`` gives to the program."""
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    found = re.search(r"^DEMO := (.*)$", makefile, re.MULTILINE)
    assert found is not None
    return found.group(1).split()


@pytest.mark.spark
def test_the_demonstration(tmp_path: Path) -> None:
    shorter = ["--events", "6000", "--rate", "1000", "--checkpoint-interval", "0.5"]
    less = ["--restart-delay", "0.1", "--initial-stock", "150", "--directory", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "examples.orders", *flags(), *shorter, *less],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "TERM": "dumb"},
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    for text in (
        "failed: ",
        "a simulated failure at event",
        "kill -9 of the driver",
        "goes on from checkpoint",
        "nothing lost, nothing twice",
    ):
        assert text in told
    # the failure and the kill were real: somebody was there before
    assert (tmp_path / "failed").exists()
    assert "DIFFERS" not in told
    rows = {line.split("  ")[0]: line for line in told.splitlines() if line.endswith(" ok")}
    assert len(rows) == 8
