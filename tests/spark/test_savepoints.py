"""Savepoints of jobs that run on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint.errors import CheckpointError
from holdfast.common import Configuration, JobStatus
from holdfast.datastream import (
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.state import ValueStateDescriptor
from tests.gates import Exists, Numbers
from tests.spark.witness import until

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("engine")]

KEYS, PER_KEY = 10, 2000
#: numbers that the job has come to when it is saved
SOME, MORE = 555, 7777
#: much longer than a savepoint
WAIT = 600.0


class Totals(KeyedProcessFunction):
    """A running count per key; says in a file that it has seen some."""

    def __init__(self, told: Path) -> None:
        self._told = told

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        if value in (SOME, MORE):
            self._told.with_name(f"seen-{value}").touch()
        yield value % KEYS, count


def totals(
    directory: Path,
    parallelism: int,
    savepoint: str | None = None,
    epoch: int = 1000,
    **settings: str,
) -> DataStream:
    settings["holdfast.epoch.max-records"] = str(epoch)
    if savepoint is not None:
        settings["execution.state-recovery.path"] = savepoint
    env = StreamExecutionEnvironment(Configuration(settings))
    env.set_parallelism(parallelism).set_buffer_timeout(0)
    env.enable_checkpointing(3_600_000)
    env.get_checkpoint_config().set_checkpoint_storage_dir(directory.as_uri())
    folder = directory.parent
    gates = {SOME + 1: Exists(folder / "saved"), MORE + 1: Exists(folder / "stopped")}
    numbers = env.from_source(Numbers(KEYS * PER_KEY, gates)).uid("numbers").set_parallelism(1)
    return numbers.key_by(lambda n: n % KEYS).process(Totals(directory)).uid("totals")


def check_rest(records: list[tuple[int, int]]) -> int:
    """All counts up to the last one, each once, from some number on; returns how many those are."""
    assert len(records) == len(set(records))
    for key in range(KEYS):
        counts = sorted(count for k, count in records if k == key)
        assert counts == list(range(counts[0], PER_KEY + 1))
    return len(records)


def test_savepoints_of_a_running_job(spark: Any, tmp_path: Path) -> None:
    job = totals(tmp_path / "job", 2)
    client = job.get_execution_environment().execute_async("totals")
    with pytest.raises(CheckpointError, match="a savepoint needs a directory"):
        client.trigger_savepoint().result(WAIT)
    until((tmp_path / f"seen-{SOME}").exists)
    first = client.trigger_savepoint(str(tmp_path / "first")).result(WAIT)
    assert client.get_job_status().result(WAIT) is JobStatus.RUNNING
    (tmp_path / "saved").touch()
    until((tmp_path / f"seen-{MORE}").exists)
    second = client.stop_with_savepoint(False, str(tmp_path / "second")).result(WAIT)
    client.get_job_execution_result().result(WAIT)
    assert client.get_job_status().result(WAIT) is JobStatus.FINISHED
    with pytest.raises(CheckpointError, match="there is no savepoint: the job has ended"):
        client.trigger_savepoint(str(tmp_path / "third")).result(WAIT)
    (tmp_path / "stopped").touch()

    restarted = totals(tmp_path / "restarted", 3, first, epoch=10_000)
    after_first = check_rest(list(restarted.execute_and_collect("totals")))
    restarted = totals(tmp_path / "restarted", 1, second, epoch=10_000)
    after_second = check_rest(list(restarted.execute_and_collect("totals")))
    # without a savepoint, in its own directory
    goes_on = totals(tmp_path / "job", 2, epoch=10_000)
    after_stop = check_rest(list(goes_on.execute_and_collect("totals")))
    assert after_first == KEYS * PER_KEY - SOME - 1
    assert after_second == after_stop == KEYS * PER_KEY - MORE - 1


def test_a_drained_job_has_nothing_left(spark: Any, tmp_path: Path) -> None:
    job = totals(tmp_path / "job", 2)
    client = job.get_execution_environment().execute_async("totals")
    savepoint = client.stop_with_savepoint(True, str(tmp_path)).result(WAIT)
    (tmp_path / "saved").touch()
    (tmp_path / "stopped").touch()
    restarted = totals(tmp_path / "restarted", 3, savepoint)
    assert list(restarted.execute_and_collect("totals")) == []


@pytest.mark.engine("resident")
def test_a_job_goes_from_the_local_engine_to_spark_and_back(spark: Any, tmp_path: Path) -> None:
    local = {"holdfast.engine": "local"}
    client = totals(tmp_path / "one", 1, **local).get_execution_environment().execute_async("one")
    until((tmp_path / f"seen-{SOME}").exists)
    first = client.stop_with_savepoint(False, str(tmp_path)).result(WAIT)
    (tmp_path / "saved").touch()

    client = totals(tmp_path / "two", 2, first).get_execution_environment().execute_async("two")
    until((tmp_path / f"seen-{MORE}").exists)
    second = client.stop_with_savepoint(False, str(tmp_path)).result(WAIT)
    (tmp_path / "stopped").touch()

    rest = list(totals(tmp_path / "three", 3, second, **local).execute_and_collect("three"))
    assert check_rest(rest) == KEYS * PER_KEY - MORE - 1
