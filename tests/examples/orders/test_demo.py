"""The demonstration as a user starts it, only shorter: failure, rescale, kill -9, and the proof."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from examples.orders.reference import expect
from examples.orders.shop import Shop, all_deliveries

ROOT = Path(__file__).parents[3]


@pytest.mark.spark
def test_the_demonstration(tmp_path: Path) -> None:
    shorter = ["--events", "8000", "--rate", "1000", "--checkpoint-interval", "0.5"]
    less = ["--restart-delay", "0.1", "--initial-stock", "150", "--directory", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "demo", *shorter, *less],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=800,
        env={**os.environ, "TERM": "dumb"},
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    for text in (
        "failed: ",
        "a simulated failure at event",
        "rescaled from ",
        "kill -9 of the driver",
        "continues from checkpoint",
        "counts on from",
        "page: http://127.0.0.1:",
        f"what happened, as a picture: {tmp_path}/timeline.html",
        "nothing lost, nothing twice",
    ):
        assert text in told
    # the failure and the kill were real: somebody was there before
    assert (tmp_path / "failed").exists()
    assert "DIFFERS" not in told
    assert ": 0 events/s" not in told
    rows = {line.split("  ")[0]: line for line in told.splitlines() if line.endswith(" ok")}
    assert len(rows) == 9
    assert "statuses in Parquet" in rows


@pytest.mark.spark
def test_tables_that_spark_writes_and_a_fault_that_is_never_reached(tmp_path: Path) -> None:
    arguments = ["--events", "1500", "--disorder", "--sink", "parquet", "--parallelism", "2"]
    arguments += ["--fail-at", "1000000"]
    done = subprocess.run(
        [sys.executable, "-m", "examples.orders", *arguments, "--directory", str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=800,
        env={**os.environ, "TERM": "dumb"},
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "--fail-at 1000000 was never reached" in done.stderr
    shop = Shop(disorder=True)
    expected = expect(all_deliveries(replace(shop, slices=shop.slices_for(1500))))
    found = pq.read_table(tmp_path / "output" / "statuses").to_pylist()
    key = itemgetter("order_id", "status")
    assert sorted(found, key=key) == sorted(expected.statuses, key=key)
    stock = pq.read_table(tmp_path / "output" / "stock")
    assert stock.num_rows == sum(map(len, expected.changes.values()))
