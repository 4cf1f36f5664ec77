"""A crash in the middle for tests that know nothing of it.

A test that runs jobs with a ``LocalExecutor`` says what they give, epoch by epoch. Within
`every_epoch_is_lost_once` it must say the same, though each epoch takes place twice: the first time
everybody has processed everything, when the job fails and goes back to the checkpoint that came
with the epoch before; the second time every task is killed once on its way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from holdfast.datastream import DataStream, KeyedStream, StreamExecutionEnvironment
from holdfast.driver.reports import EpochReport
from holdfast.testing import LocalExecutor
from holdfast.testing.engine import ExecutorEngine
from holdfast.testing.script import SimulatedCrash

#: for tests in which a job fails by itself, or counts what a failure puts back
undisturbed = pytest.mark.parametrize("disturbance", ["undisturbed"], indirect=True)

_HOUR = 3_600_000

_init, _epoch, _execute = (
    LocalExecutor.__init__,
    LocalExecutor.epoch,
    ExecutorEngine.execute,
)


@contextmanager
def every_epoch_is_lost_once() -> Iterator[None]:
    """Let each epoch of every ``LocalExecutor`` fail once, after its last level."""
    with patch.multiple(LocalExecutor, __init__=_with_checkpoints, epoch=_lost_once):
        yield


def _with_checkpoints(
    run: LocalExecutor,
    job: StreamExecutionEnvironment | DataStream | KeyedStream,
    **settings: Any,
) -> None:
    env = job if isinstance(job, StreamExecutionEnvironment) else job.get_execution_environment()
    if not env.get_checkpoint_config().is_checkpointing_enabled():
        env.enable_checkpointing(_HOUR)
    _init(run, job, **settings)


def _lost_once(run: LocalExecutor, quota: int | None = None, **settings: Any) -> EpochReport:
    if run._book.finished:
        # Nothing is processed in it. What is saved stays, for the test to look at.
        with patch.object(run._job.checkpoints, "end"):
            return _epoch(run, quota, **settings)
    with patch.object(ExecutorEngine, "execute", _fail_at_the_end), pytest.raises(_Lost):
        _epoch(run, quota, **settings)
    run.recover()
    return _epoch(run, quota, **{"kill": True, **settings, "checkpoint": True})


class _Lost(SimulatedCrash):
    """The epoch that is lost."""


def _fail_at_the_end(engine: ExecutorEngine, *arguments: Any) -> None:
    _execute(engine, *arguments)
    raise _Lost
