"""The order system on hosts that share nothing but a store: the program of ``make demo``.

What differs from a laptop is in the settings: the master, and an address instead of a directory. An
executor is killed in the middle, and at the end the program compares all of its outputs itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster, Store
from tests.hosts import hosts, why_not
from tests.spark.test_hosts import EXECUTOR, PATIENCE, WAITING, result_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.engine("resident"),
    pytest.mark.timeout(1800),
]

SHOP = (
    *("--events", "6000", "--rate", "500", "--disorder", "--duplicates", "0.05"),
    *("--lateness", "0.02", "--initial-stock", "150", "--checkpoint-interval", "0.5"),
    *("--restart-delay", "0.1", "--verify"),
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    missing = why_not()
    if missing:
        pytest.skip(f"no hosts: {missing}")
    with hosts(3) as made:
        yield Cluster(made, tmp_path, workers=(2, 3))


def kill_an_executor_of_orders(cluster: Cluster, directory: str, *settings: str) -> None:
    """Run the order system, kill an executor in the middle; every output must be exact."""
    program = ["-m", "examples.orders", "--directory", directory, *SHOP]
    driver = cluster.submit(1, (WAITING, *settings), program)
    assert driver.stdout is not None
    text = ""
    for line in driver.stdout:
        text += line
        if re.match(r"checkpoint \d+ completed", line):
            cluster.hosts.kill(3, EXECUTOR)
            break
    text += result_of(driver)
    assert driver.wait(PATIENCE) == 0, text
    assert "continues from checkpoint" in text, text
    assert len(re.findall(r" ok$", text, re.MULTILINE)) == 9, text
    assert "nothing lost, nothing twice" in text, text


def test_an_executor_is_killed_and_every_output_is_exact(cluster: Cluster, tmp_path: Path) -> None:
    store = Store(cluster.hosts, 1, tmp_path / "store.log")
    kill_an_executor_of_orders(cluster, "s3a://kept/orders", *store.settings)
