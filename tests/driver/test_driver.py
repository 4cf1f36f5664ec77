"""What the driver is left with when a step of an epoch fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint.errors import CheckpointStorageError
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.testing import Fault, FaultPlan, InjectedFault, LocalExecutor


@pytest.fixture
def totals(env: StreamExecutionEnvironment, tmp_path: Path) -> Any:
    env.enable_checkpointing(1000)
    env.get_checkpoint_config().set_checkpoint_storage_dir(str(tmp_path / "checkpoints"))
    return env.from_collection([1, 2, 3, 4]).key_by(lambda n: 0).sum()


def test_a_checkpoint_that_cannot_be_begun_fails_and_nothing_else(
    totals: Any, env: StreamExecutionEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.get_checkpoint_config().set_tolerable_checkpoint_failure_number(1)

    def full(checkpoint: int) -> None:
        raise CheckpointStorageError("no space")

    with LocalExecutor(totals, quota=1) as run:
        run.epoch()
        with monkeypatch.context() as patch:
            patch.setattr(run._job.checkpoints.store, "begin", full)
            run.epoch(checkpoint=True)
        run.epoch(checkpoint=True)
        run.run_to_end()
    assert run.records == [1, 3, 6, 10]
    assert [record.failure for record in run.checkpoints[:2]] == ["no space", None]


def test_a_fault_before_the_epoch_runs_fails_that_epoch_only(
    totals: Any, env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    FaultPlan(tmp_path / "faults", [Fault(step=1, epoch=1)]).put_into(env._configuration)
    with LocalExecutor(totals, quota=1) as run:
        run.epoch()
        with pytest.raises(InjectedFault):
            run.epoch()
        run.run_to_end()
    assert run.records == [1, 3, 6, 10]


def test_a_job_that_goes_on_after_it_was_to_stop_ends_like_any_other(
    totals: Any, env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    """The savepoint is there, but the closing epoch fails; the next attempt goes on from it."""
    FaultPlan(tmp_path / "faults", [Fault(step=3, epoch=2)]).put_into(env._configuration)
    with LocalExecutor(totals, quota=1) as run:
        run.epoch()
        with pytest.raises(InjectedFault):
            run.savepoint(tmp_path / "savepoints", stop=True)
        assert run.recover() == 1
        run.run_to_end()
        assert run._job.checkpoints.store.notes.is_finished()
    assert run.records == [1, 3, 6, 10]
