"""Every setting of checkpoints has an effect that can be seen in a job on Spark.

What needs a clock in the test's hand (fixed rate, missed triggers, checkpoints that are written
while others begin) is in tests/checkpoint/test_coordinator.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint.events import CheckpointRecord, CheckpointStatus
from holdfast.common import Configuration, RestartStrategies
from holdfast.datastream import (
    CheckpointingMode,
    ExternalizedCheckpointRetention,
    MapFunction,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.functions import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from holdfast.datastream.state import ListStateDescriptor
from holdfast.errors import JobCancelledError, JobExecutionError

pytestmark = pytest.mark.spark

EPOCH = 10
ENDLESS = 10**12
PATIENCE = 120
COMPLETED, FAILED = CheckpointStatus.COMPLETED, CheckpointStatus.FAILED


class Witness(MapFunction, CheckpointedFunction, CheckpointListener):
    """Counts the numbers from 0 that it gets, in operator state, and keeps a diary.

    Each number must be the count of those before it: state and source never stand at two places.
    """

    def __init__(self, diary: Path, failing: Collection[int] = ()) -> None:
        self._diary = diary
        self._failing = failing
        self.count = 0

    def map(self, value: int) -> int:
        assert value == self.count, f"the source is at {value}, the state at {self.count}"
        self.count += 1
        return value

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("count", int))
        self.count = sum(self.state.get())
        self._note("restored" if context.is_restored() else "fresh", self.count)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        checkpoint = context.get_checkpoint_id()
        self._note("snapshot", checkpoint)
        self.state.update([self.count])
        if checkpoint in self._failing:
            msg = f"no snapshot for checkpoint {checkpoint}"
            raise RuntimeError(msg)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._note("completed", checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._note("aborted", checkpoint_id)

    def close(self) -> None:
        self._note("closed", self.count)

    def _note(self, what: str, number: int) -> None:
        with self._diary.open("a") as file:
            file.write(f"{what} {number}\n")


class Job:
    """A job of one subtask and small epochs, with a checkpoint in each epoch after the first."""

    def __init__(self, folder: Path) -> None:
        self.diary = folder / "diary"
        self.directory = folder / "checkpoints"
        configuration = Configuration({"holdfast.epoch.max-records": str(EPOCH)})
        self.env = StreamExecutionEnvironment(configuration)
        self.env.set_parallelism(1).set_buffer_timeout(0).enable_checkpointing(10)
        self.env.set_restart_strategy(RestartStrategies.no_restart())
        self.config = self.env.get_checkpoint_config()
        self.config.set_checkpoint_storage_dir(self.directory.as_uri())

    def start(self, numbers: int, failing: Collection[int] = ()) -> Any:
        source = NumberSequenceSource(0, numbers - 1)
        self.env.from_source(source).map(Witness(self.diary, failing)).name("witness")
        return self.env.execute_async("settings")

    def run(self, numbers: int, failing: Collection[int] = ()) -> list[CheckpointStatus]:
        """Run to the end; what became of the checkpoints."""
        client = self.start(numbers, failing)
        client.get_job_execution_result().result()
        return [record.status for record in client.get_checkpoints()]

    def cancel_after(self, completed: int) -> list[CheckpointRecord]:
        """Run until so many checkpoints are complete; those that are."""
        client = self.start(ENDLESS)
        until(lambda: len(completed_of(client)) >= completed)
        client.cancel().result()
        with pytest.raises(JobCancelledError):
            client.get_job_execution_result().result()
        return completed_of(client)

    def noted(self, what: str) -> list[int]:
        lines = [line.split() for line in self.diary.read_text().splitlines()]
        return [int(number) for word, number in lines if word == what]

    def retained(self) -> list[int]:
        found = (self.directory / "settings").glob("chk-*/_metadata")
        return sorted(int(path.parent.name.removeprefix("chk-")) for path in found)


@pytest.fixture
def job(spark: Any, tmp_path: Path) -> Job:
    return Job(tmp_path)


def completed_of(client: Any) -> list[CheckpointRecord]:
    return [record for record in client.get_checkpoints() if record.status is COMPLETED]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


def test_interval(job: Job) -> None:
    # an epoch takes longer than 10 ms: each carries one, but for the first, which starts the clock
    assert job.run(6 * EPOCH) == [COMPLETED] * 5
    assert job.noted("completed") == [1, 2, 3, 4]
    job.env.enable_checkpointing(3_600_000)
    assert job.run(6 * EPOCH) == []


def test_minimum_pause_and_number_retained(job: Job) -> None:
    job.config.set_min_pause_between_checkpoints(400).set_max_retained_checkpoints(2)
    job.config.set_externalized_checkpoint_retention(
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    )
    records = job.cancel_after(completed=4)
    pauses = [
        later.trigger_timestamp - (earlier.end_timestamp or 0)
        for earlier, later in pairwise(records)
    ]
    assert min(pauses) >= 400
    assert job.retained() == [record.id for record in records][-2:]


def test_retention_after_cancellation(job: Job) -> None:
    job.config.set_externalized_checkpoint_retention(
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    )
    first = job.cancel_after(completed=3)
    assert job.retained() == [first[-1].id]
    job.config.set_externalized_checkpoint_retention(
        ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION
    )
    second = job.cancel_after(completed=2)
    assert min(record.id for record in second) > first[-1].id
    assert job.noted("fresh") == [0]
    (count,) = job.noted("restored")
    assert 0 < count <= job.noted("closed")[0]
    assert job.retained() == []
    assert list((job.directory / "settings" / "state").iterdir()) == []
    job.run(EPOCH)
    assert job.noted("fresh") == [0, 0]
    assert len(job.noted("restored")) == 1


def test_a_checkpoint_that_expires_is_aborted_and_the_job_goes_on(job: Job) -> None:
    # no epoch is done in 10 ms, so all expire
    job.config.set_checkpoint_timeout(10).set_tolerable_checkpoint_failure_number(100)
    client = job.start(6 * EPOCH)
    client.get_job_execution_result().result()
    records = client.get_checkpoints()
    assert [record.status for record in records] == [FAILED] * 5
    assert "it expired" in str(records[0].failure)
    assert job.noted("aborted") == [1, 2, 3, 4]
    assert job.noted("completed") == []
    assert job.noted("closed") == [6 * EPOCH]


def test_failures_in_a_row_are_tolerated_up_to_a_number(job: Job) -> None:
    job.config.set_tolerable_checkpoint_failure_number(2)
    statuses = job.run(8 * EPOCH, failing=[1, 2, 4, 5])
    assert statuses == [FAILED, FAILED, COMPLETED, FAILED, FAILED, COMPLETED, COMPLETED]
    assert job.noted("aborted") == [1, 2, 4, 5]
    assert job.noted("completed") == [3, 6]
    assert job.noted("closed") == [8 * EPOCH]


def test_one_failure_too_many_fails_the_attempt(job: Job) -> None:
    job.config.set_tolerable_checkpoint_failure_number(2)
    job.env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 1))
    # the first attempt ends with checkpoint 5, the second with checkpoint 8
    client = job.start(ENDLESS, failing=[3, 4, 5, 6, 7, 8])
    with pytest.raises(
        JobExecutionError,
        match=r"checkpoint 8 failed, and 2 failures in a row are tolerable: "
        r"snapshot_state of 'witness': RuntimeError\('no snapshot for checkpoint 8'\)",
    ):
        client.get_job_execution_result().result()
    assert job.noted("snapshot") == [1, 2, 3, 4, 5, 6, 7, 8]
    # from checkpoint 2, at the end of the third epoch
    assert job.noted("restored") == [3 * EPOCH]
    assert job.retained() == [2], "what a failed job completed stays"


def test_checkpointing_errors_need_not_fail_the_job(job: Job) -> None:
    job.config.set_fail_on_checkpointing_errors(False)
    assert job.run(8 * EPOCH, failing=range(100)) == [FAILED] * 7
    assert job.noted("closed") == [8 * EPOCH]
    job.config.set_fail_on_checkpointing_errors(True)
    with pytest.raises(JobExecutionError, match="0 failures in a row are tolerable"):
        job.run(8 * EPOCH, failing=range(100))


def test_a_mode_that_promises_less_is_kept_too(job: Job) -> None:
    """At least once is what exactly once is: a barrier is the end of an epoch in both modes."""
    job.config.set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE)
    job.config.set_tolerable_checkpoint_failure_number(0)
    job.env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 1))
    job.run(6 * EPOCH, failing=[3])
    # the witness would have noticed a number that came twice, or not at all
    assert job.noted("restored") == [3 * EPOCH]
    assert job.noted("closed") == [6 * EPOCH]
