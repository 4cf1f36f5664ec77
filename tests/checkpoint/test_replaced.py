"""A checkpoint of a running job is deleted while it is read: what is said names the newer one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast.checkpoint.errors import CheckpointReplacedError, CheckpointStorageError
from holdfast.savepoint import Savepoint
from tests.serving import Client, LocalJob, checkpoints_in, counting, served


@pytest.fixture
def job(tmp_path: Path) -> LocalJob:
    settings = checkpoints_in(tmp_path) | {"execution.checkpointing.num-retained": "1"}
    return LocalJob(counting(settings))


def home(job: LocalJob) -> Path:
    return Path(str(job.job.checkpoints.store.directory))


def test_before_it_is_read(job: LocalJob) -> None:
    with job.run:
        job.run.epoch(checkpoint=True)
        job.run.epoch(checkpoint=True)
        with pytest.raises(CheckpointReplacedError, match="1 was replaced by checkpoint 2") as told:
            Savepoint.read(home(job) / "chk-1")
        assert str(home(job) / "chk-2") in str(told.value)
        assert Savepoint.read(home(job) / "chk-2").id == 2


def test_between_its_metadata_and_its_state(job: LocalJob) -> None:
    with job.run:
        job.run.epoch(checkpoint=True)
        saved = Savepoint.read(home(job) / "chk-1")
        job.run.epoch(checkpoint=True)
        # the job deletes files that no checkpoint needs at its own pace
        shutil.rmtree(home(job) / "state")
        for read in (saved.sizes, saved.keyed_state("counts", "count").to_pylist):
            with pytest.raises(CheckpointReplacedError, match="1 was replaced by checkpoint 2"):
                read()


def test_what_no_other_replaces_is_missing(job: LocalJob) -> None:
    with job.run:
        job.run.epoch(checkpoint=True)
        with pytest.raises(CheckpointStorageError, match="there is no savepoint or checkpoint"):
            Savepoint.read(home(job) / "chk-7")
        saved = Savepoint.read(home(job) / "chk-1")
        shutil.rmtree(home(job) / "state")
        with pytest.raises(Exception, match="cannot read state file") as told:
            saved.sizes()
        assert not isinstance(told.value, CheckpointReplacedError)


def test_the_api_says_so(job: LocalJob, runtime_directory: Path) -> None:
    with job.run, served(job) as server:
        ask = Client(server)
        job.run.epoch(checkpoint=True)
        job.run.epoch(checkpoint=True)
        reply = ask.job("/state?checkpoint=1")
        assert (reply.status, reply.error) == (404, "checkpoint 1 was replaced by checkpoint 2")
        assert ask.job("/checkpoints/compare/1/2").error == reply.error
