"""Every setting of checkpoints has an effect that can be seen in a job on Spark.

What needs a clock in the test's hand (fixed rate, missed triggers, checkpoints that are written
while others begin) is in tests/checkpoint/test_coordinator.py.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint.events import CheckpointRecord, CheckpointStatus
from holdfast.common import RestartStrategies
from holdfast.datastream import CheckpointingMode, ExternalizedCheckpointRetention
from holdfast.errors import JobExecutionError
from tests.spark.witness import ENDLESS, EPOCH, Job, until

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("engine")]

COMPLETED, FAILED = CheckpointStatus.COMPLETED, CheckpointStatus.FAILED


@pytest.fixture
def job(spark: Any, tmp_path: Path) -> Job:
    return Job(tmp_path)


def statuses(records: list[CheckpointRecord]) -> list[CheckpointStatus]:
    return [record.status for record in records]


def test_interval(job: Job) -> None:
    records = job.run(6 * EPOCH, {6 * EPOCH: job.completed(5)})
    assert set(statuses(records)) == {COMPLETED}
    assert job.noted("completed") == [record.id for record in records]
    assert [record.id for record in records][:6] == [1, 2, 3, 4, 5, 6]
    job.env.enable_checkpointing(3_600_000)
    assert statuses(job.run(6 * EPOCH)) == [COMPLETED], "the last one, after the last record"


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
    assert list((job.directory / "state").iterdir()) == []
    job.run(EPOCH)
    assert job.noted("fresh") == [0, 0]
    assert len(job.noted("restored")) == 1


def test_a_checkpoint_that_expires_is_aborted_and_the_job_goes_on(job: Job) -> None:
    # no snapshot is done in 10 ms, so all expire
    job.config.set_checkpoint_timeout(10).set_tolerable_checkpoint_failure_number(100)
    client = job.start(slowness=0.02)
    until(lambda: len(client.get_checkpoints()) > 5)
    client.cancel().result()
    records = client.get_checkpoints()
    assert {record.status for record in records} == {FAILED}
    assert "it expired" in str(records[0].failure)
    assert "subtasks acknowledged in time" in str(records[0].failure)
    assert job.noted("aborted")[:4] == [1, 2, 3, 4]
    assert job.noted("completed") == []
    assert len(job.noted("closed")) == 1


def test_failures_in_a_row_are_tolerated_up_to_a_number(job: Job) -> None:
    job.config.set_tolerable_checkpoint_failure_number(2)
    records = job.run(8 * EPOCH, {8 * EPOCH: job.snapshot(7)}, failing=[1, 2, 4, 5])
    first = [FAILED, FAILED, COMPLETED, FAILED, FAILED, COMPLETED, COMPLETED]
    assert statuses(records)[:7] == first
    assert job.noted("aborted") == [1, 2, 4, 5]
    assert job.noted("completed")[:3] == [3, 6, 7]
    assert job.noted("closed") == [8 * EPOCH]


def test_one_failure_too_many_fails_the_attempt(job: Job) -> None:
    job.config.set_tolerable_checkpoint_failure_number(2)
    job.env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 1))
    # the first attempt ends with checkpoint 5, the second with checkpoint 8
    client = job.start(failing=[3, 4, 5, 6, 7, 8])
    with pytest.raises(
        JobExecutionError,
        match=r"checkpoint 8 failed, and at most 2 consecutive failures are tolerated: "
        r"snapshot_state of 'witness': RuntimeError\('no snapshot for checkpoint 8'\)",
    ):
        client.get_job_execution_result().result()
    assert job.noted("snapshot") == [1, 2, 3, 4, 5, 6, 7, 8]
    assert job.noted("restored") == [job.held(2)]
    assert job.retained() == [2], "what a failed job completed stays"


def test_checkpointing_errors_need_not_fail_the_job(job: Job) -> None:
    job.config.set_fail_on_checkpointing_errors(False)
    gates = {8 * EPOCH: job.snapshot(10)}
    assert statuses(job.run(8 * EPOCH, gates, failing=range(10)))[:10] == [FAILED] * 9 + [COMPLETED]
    assert job.noted("closed") == [8 * EPOCH]
    job.config.set_fail_on_checkpointing_errors(True)
    with pytest.raises(JobExecutionError, match="at most 0 consecutive failures are tolerated"):
        job.run(ENDLESS, failing=range(100))


def test_a_mode_that_promises_less_is_kept_too(job: Job) -> None:
    """At least once is what exactly once is where barriers come on one channel."""
    job.config.set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE)
    job.config.set_tolerable_checkpoint_failure_number(0)
    job.env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 1))
    job.run(6 * EPOCH, {6 * EPOCH: job.snapshot(4)}, failing=[3])
    # the witness would have noticed a number that came twice, or not at all
    assert job.noted("restored") == [job.held(2)]
    assert job.noted("closed") == [6 * EPOCH]
