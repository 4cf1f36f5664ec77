"""A job on hosts of their own, to which things happen; ``tests.spark.host_faults`` has them all.

Ten of one seed stand for a series of any length:
``python -m tests.spark.host_faults --faults 200 --seed 1``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hosts import why_not
from tests.spark.fault_field import field
from tests.spark.host_faults import series

#: ten different faults, with a driver that is killed
SEED, NUMBER = 483, 10

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.engine("resident"),
    pytest.mark.timeout(3600),
]


def test_every_count_is_exact_after_ten_faults(tmp_path: Path) -> None:
    missing = why_not()
    if missing:
        pytest.skip(f"no hosts: {missing}")
    with field(tmp_path, SEED) as running:
        for outcome in series(running, NUMBER):
            print(f"{outcome.name}: {outcome}")
        assert running.finish() == []
        assert running.restarts > 0
