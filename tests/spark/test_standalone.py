"""A job on a standalone cluster: a master and a worker, each a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.standalone import PATIENCE, standalone

pytestmark = [
    pytest.mark.spark,
    pytest.mark.matrix,
    pytest.mark.slow,
    pytest.mark.timeout(PATIENCE + 60),
]

JOB = """
import logging

from holdfast.datastream import SourceFunction, StreamExecutionEnvironment
from pyspark.sql import SparkSession


class Numbers(SourceFunction):
    def run(self, ctx):
        for number in range(100):
            ctx.collect(number)
        logging.warning("all sent")

    def cancel(self):
        pass


env = StreamExecutionEnvironment.get_execution_environment()
sums = env.add_source(Numbers(), "numbers").key_by(lambda n: n % 3).sum()
print(sorted(sums.execute_and_collect())[-3:], SparkSession.getActiveSession().sparkContext.master)
"""


def test_a_job_on_a_master_and_a_worker(tmp_path: Path) -> None:
    with standalone(tmp_path) as cluster:
        done = cluster.run(JOB, f"holdfast.directory={tmp_path / 'shared'}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == f"[1617, 1650, 1683] {cluster.address}\n"
    # the executor's own output is in a file of the worker's
    assert done.stderr.count("[Source: numbers #0] all sent\n") == 1
    # the executors have got the package from the driver
    assert list((tmp_path / "work").rglob("holdfast.zip"))
    # and nothing is left, of that or of the job
    assert [*(tmp_path / "user").iterdir(), *(tmp_path / "shared").iterdir()] == []
