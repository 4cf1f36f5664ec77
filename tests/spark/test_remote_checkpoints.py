"""Checkpoints on S3 and on HDFS, of a job on Spark whose processes are really killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint.errors import CheckpointStorageError
from holdfast.checkpoint.store import CheckpointStore
from holdfast.filesystem import file_system_of, join
from holdfast.spark.hadoop import hadoop_settings
from holdfast.testing import Fault, FaultPlan
from services.hadoop import site_xml
from tests.conftest import S3, Store
from tests.recovery.verifying import Settings, verify
from tests.spark.witness import Job

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("store", "engine"),
    # on S3 with the resident engine: test_host_faults.py
    [("s3", "epochs"), ("hdfs", "resident")],
    indirect=True,
)
def test_the_driver_is_killed_and_the_next_one_goes_on_from_the_store(
    tmp_path: Path, store: Store, engine: str
) -> None:
    goes_on_from_the_store(tmp_path, store, engine)


def goes_on_from_the_store(tmp_path: Path, store: Store, engine: str) -> None:
    """Run a job whose driver is killed, and again; every count must be exact.

    The store is known from Spark's own settings; the directory of the dead job is not needed.
    """
    faults = [
        Fault(6, 1, kill=True, level=1),  # a worker
        # the driver: all of a checkpoint is in the store but the metadata; or, where it may be the
        # first one, the metadata too
        Fault(9 if engine == "epochs" else 10, 3, kill=True, with_checkpoint=True),
    ]
    plan = FaultPlan(tmp_path / "faults", faults)
    interval = 200 if engine == "epochs" else 10
    job = Settings(tmp_path, numbers=240, epoch=20, interval_ms=interval)
    command = [
        *(sys.executable, "-m", "tests.recovery.verifying", str(tmp_path)),
        *("--numbers", str(job.numbers), "--epoch", str(job.epoch)),
        *("--interval_ms", str(job.interval_ms), "--faults", str(plan.directory)),
        *("--checkpoints", f"{store.uri}/jobs", "--spark", "spark.master=local[2,4]"),
    ]
    for key, value in store.options.items():
        command += ["--spark", f"spark.hadoop.{key}={value}"]

    def start(number: int) -> subprocess.CompletedProcess[str]:
        scratch = f"holdfast.directory={tmp_path / f'run-{number}'}"
        return subprocess.run(
            [*command, "--spark", scratch], cwd=ROOT, capture_output=True, text=True, check=False
        )

    first = start(1)
    assert first.returncode == -signal.SIGKILL, first.stderr
    assert plan.happened == len(faults)
    files, path = file_system_of(f"{store.uri}/jobs/verifying", store.options)
    assert CheckpointStore(path, files).completed() != []
    last = start(2)
    assert last.returncode == 0, last.stderr
    assert f" of {store.uri}/jobs/verifying" in last.stderr
    verify(job)
    left = [status.name for status in files.list_directory(path)]
    assert "finished" in left
    assert "lock" not in left
    assert files.list_directory(join(path, "state")) == []


def test_settings_are_those_that_spark_runs_with(spark: Any) -> None:
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.s3a.endpoint", "from-the-program:9000")
    try:
        found = hadoop_settings(spark.sparkContext)
    finally:
        hadoop.unset("fs.s3a.endpoint")
    assert found["fs.s3a.endpoint"] == "from-the-program:9000"
    assert hadoop.get("fs.s3a.path.style.access") is not None
    assert "fs.s3a.path.style.access" not in found, "that nobody has chosen"


def test_the_settings_of_hdfs_come_from_its_own_file(spark: Any, tmp_path: Path) -> None:
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    site = tmp_path / "hdfs-site.xml"
    site.write_text(site_xml({"dfs.ha.namenodes.shop": "one,two"}))
    hadoop.addResource(spark._jvm.org.apache.hadoop.fs.Path(str(site)))
    found = hadoop_settings(spark.sparkContext)
    assert found["dfs.ha.namenodes.shop"] == "one,two"
    assert "dfs.replication" not in found, "nobody has chosen it"


@pytest.mark.parametrize(
    ("bucket", "settings", "problem"),
    [
        ("s3a://no-such-bucket", {}, "no-such-bucket"),
        ("", {"fs.s3a.endpoint": "http://127.0.0.1:1"}, "connect"),
    ],
    ids=["no such bucket", "no such server"],
)
def test_a_store_that_is_not_to_be_had_is_told_before_the_job_runs(
    spark: Any, tmp_path: Path, s3: S3, bucket: str, settings: dict[str, str], problem: str
) -> None:
    job = Job(tmp_path)
    for key, value in (s3.options | settings).items():
        job.env._configuration.set_string(key, value)
    job.config.set_checkpoint_storage_dir(f"{bucket or s3.uri}/jobs")
    with pytest.raises(CheckpointStorageError, match="cannot make checkpoint directory") as error:
        job.start()
    assert f"'{bucket or s3.uri}/jobs/job'" in str(error.value)
    assert problem in str(error.value).lower()
    assert not job.diary.exists()
