"""A standalone cluster on three hosts that share nothing but an HDFS, with HDFS's own protocol."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from services.artifacts import UnavailableError
from tests.cluster import HadoopParts
from tests.hosts import hosts, why_not
from tests.spark.test_hosts import DISTURBED, PAUSE, Jobs, kill_an_executor, write_job
from tests.spark.test_hosts_orders import kill_an_executor_of_orders

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.engine("resident"),
    pytest.mark.timeout(1800),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    missing = why_not()
    if missing:
        pytest.skip(f"no hosts: {missing}")
    logs = tmp_path_factory.mktemp("logs")
    with hosts(3) as made:
        try:
            hadoop = HadoopParts(made, logs)
        except UnavailableError as error:
            pytest.skip(f"no Hadoop: {error}")
        hadoop.start_hdfs()
        yield Jobs(made, logs)


def test_an_executor_is_killed_and_the_job_goes_on_from_hdfs(cluster: Jobs) -> None:
    directory = f"execution.checkpointing.dir={HadoopParts.address}/jobs"
    write_job(cluster.hosts, PAUSE)
    kill_an_executor(cluster.hosts, cluster.start(*DISTURBED, directory))


def test_the_outputs_of_the_order_system_are_exact_on_hdfs(cluster: Jobs) -> None:
    kill_an_executor_of_orders(cluster.cluster, f"{HadoopParts.address}/orders")
