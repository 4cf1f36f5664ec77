"""Checkpoint directories that are damaged, full, in use or not to be had, under jobs on Spark.

One fault at a time is in tests/checkpoint/test_store.py; here it is the whole job that must go on,
or say what is wrong.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint.errors import (
    CheckpointCorruptionError,
    CheckpointStorageError,
    DirectoryInUseError,
)
from holdfast.checkpoint.events import CheckpointStatus
from holdfast.checkpoint.lock import DirectoryLock
from holdfast.checkpoint.store import CheckpointStore
from holdfast.common import RestartStrategies
from holdfast.datastream import ExternalizedCheckpointRetention
from holdfast.errors import HoldfastError, JobExecutionError
from tests.gates import Completed
from tests.spark.full_disk import KEPT, NUMBERS
from tests.spark.witness import ENDLESS, EPOCH, PATIENCE, Job, until

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("engine")]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def original(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A job that was cancelled and has left two checkpoints."""
    job = Job(tmp_path_factory.mktemp("original"))
    job.config.set_max_retained_checkpoints(2)
    job.config.set_externalized_checkpoint_retention(
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    )
    job.cancel_after(completed=4)
    assert len(job.retained()) == 2
    return job


@pytest.fixture
def job(original: Job, tmp_path: Path) -> Job:
    """The same, to be started again."""
    shutil.copytree(original.directory, tmp_path / "checkpoints" / "job")
    shutil.copy(original.diary, tmp_path)
    return Job(tmp_path)


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def damage_metadata(directory: Path, checkpoint: int) -> Path:
    path = directory / f"chk-{checkpoint}" / "_metadata"
    flip_a_byte(path)
    return path


def damage_state(directory: Path, checkpoint: int) -> Path:
    """Damage a state file that no other checkpoint needs."""
    store = CheckpointStore(directory)
    others = [store.read(other).files() for other in store.completed() if other != checkpoint]
    own = store.read(checkpoint).files().difference(*others)
    path = Path(store.state.directory / min(own))
    flip_a_byte(path)
    return path


def contents(directory: Path) -> dict[str, bytes]:
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != "lock"]
    return {str(path): path.read_bytes() for path in files}


@pytest.mark.parametrize("damage", [damage_state, damage_metadata])
def test_the_checkpoint_before_a_damaged_one_is_used(
    job: Job, damage: Callable[[Path, int], Path], caplog: pytest.LogCaptureFixture
) -> None:
    older, newest = job.retained()
    damaged = damage(job.directory, newest)
    job.cancel_after(completed=2)
    (warning,) = [text for text in caplog.messages if "going back" in text]
    assert str(damaged) in warning
    assert warning.endswith(f"going back to checkpoint {older} instead")
    assert job.noted("restored") == [job.held(older)]
    assert job.noted("closed")[-1] > job.held(older), "and from there it goes on"


def test_if_all_are_damaged_nothing_runs_and_nothing_is_deleted(job: Job) -> None:
    older, newest = job.retained()
    damaged = [damage_state(job.directory, newest), damage_metadata(job.directory, older)]
    before = contents(job.directory)
    with pytest.raises(
        CheckpointCorruptionError, match=r"no checkpoint in .* can be used"
    ) as error:
        job.start()
    assert all(str(path) in str(error.value) for path in damaged)
    assert contents(job.directory) == before
    assert job.noted("fresh") == [0], "only that of the first start"
    assert job.noted("restored") == []


class DamageAndFail:
    """Damages the newest complete checkpoint and fails, once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.marker = directory.parent / "damaged"

    def __call__(self) -> None:
        if not self.marker.exists():
            newest = CheckpointStore(self.directory).completed()[-1]
            damage_metadata(self.directory, newest)
            self.marker.write_text(str(newest))
            msg = "simulated failure"
            raise RuntimeError(msg)


def test_a_restart_passes_over_a_damaged_checkpoint_too(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(tmp_path)
    job.config.set_max_retained_checkpoints(2)
    job.env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 1))
    deed = DamageAndFail(job.directory)
    at = 4 * EPOCH
    job.run(6 * EPOCH, {at: Completed(job.directory, 3)}, deeds={at + 3: deed})
    older = int(deed.marker.read_text()) - 1
    assert f"going back to checkpoint {older} instead" in caplog.text
    assert job.noted("restored") == [job.held(older)]
    assert job.noted("closed") == [6 * EPOCH]


class Obstruct:
    """Puts a file where a checkpoint that has begun should go."""

    def __init__(self, directory: Path, checkpoint: int) -> None:
        self.path = directory / f"chk-{checkpoint}"

    def __call__(self) -> None:
        self.path.rmdir()
        self.path.touch()


def test_a_checkpoint_that_cannot_be_written_is_tolerated_or_not(
    spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "tolerant").mkdir()
    job = Job(tmp_path / "tolerant")
    job.config.set_tolerable_checkpoint_failure_number(1)
    gates = {6 * EPOCH: job.completed(5)}
    records = job.run(6 * EPOCH, gates, snapshot_deeds={3: Obstruct(job.directory, 3)})
    failed = [record for record in records if record.status is CheckpointStatus.FAILED]
    assert [record.id for record in failed] == [3]
    assert f"cannot write checkpoint '{job.directory / 'chk-3' / '_metadata'}'" in str(failed[0])
    assert job.noted("aborted") == [3]
    assert job.noted("completed")[:4] == [1, 2, 4, 5]
    assert job.noted("closed") == [6 * EPOCH]
    (tmp_path / "strict").mkdir()
    strict = Job(tmp_path / "strict")
    with pytest.raises(
        JobExecutionError, match=r"checkpoint 3 failed.*chk-3/_metadata.* is a file"
    ):
        strict.run(ENDLESS, snapshot_deeds={3: Obstruct(strict.directory, 3)})
    assert strict.retained() == [2]


def test_a_directory_that_cannot_be_made(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").touch()
    job = Job(tmp_path)
    with pytest.raises(CheckpointStorageError, match="make checkpoint directory") as error:
        job.start()
    assert str(job.directory) in str(error.value)
    assert "is a file" in str(error.value)
    assert not job.diary.exists()


def test_a_directory_that_is_gone_in_the_middle_of_a_run(spark: Any, tmp_path: Path) -> None:
    job = Job(tmp_path)
    with pytest.raises(HoldfastError, match=r"cannot (write|sync) state file") as error:
        job.run(6 * EPOCH, deeds={3 * EPOCH: partial(shutil.rmtree, job.directory)})
    assert f"the directory '{job.directory / 'state'}' is missing" in str(error.value)


def test_a_directory_in_use_is_refused(job: Job) -> None:
    client = job.start()
    try:
        with pytest.raises(DirectoryInUseError) as error:
            job.start()
        assert f"'{job.directory}' is in use by another live job: 'job'" in str(error.value)
        assert f"process {os.getpid()} on host" in str(error.value)
        assert not client.get_job_execution_result().done()
    finally:
        client.cancel().result()
    assert len(job.noted("restored")) == 1


class Stuck:
    """Says that it has begun, and goes on when it may."""

    def __init__(self, folder: Path) -> None:
        self.begun, self.released = folder / "begun", folder / "released"

    def __call__(self) -> None:
        self.begun.touch()
        until(self.released.exists)


def test_a_driver_that_has_lost_its_lock_does_not_wait_for_its_epoch(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that was cut off, and another one has taken its place meanwhile."""
    job, stuck, lost = Job(tmp_path), Stuck(tmp_path), threading.Event()

    def check(lock: DirectoryLock, ask: bool = True) -> None:
        if lost.is_set():
            raise DirectoryInUseError("this job has lost its lock")

    monkeypatch.setattr(DirectoryLock, "check", check)
    client = job.start(ENDLESS, deeds={2 * EPOCH: stuck})
    try:
        until(stuck.begun.exists)
        lost.set()
        with pytest.raises(HoldfastError, match="lost its lock"):
            client.get_job_execution_result().result(PATIENCE)
    finally:
        stuck.released.touch()


def _in_a_namespace(*commands: str) -> list[str]:
    """A command of a system with namespaces, in which mounts are nobody else's business."""
    return ["unshare", "--map-root-user", "--mount", "sh", "-ec", " && ".join(commands)]


def _can_mount(folder: Path) -> bool:
    mount = f"mount -t tmpfs tmpfs {shlex.quote(str(folder))}"
    try:
        return (
            subprocess.run(_in_a_namespace(mount), capture_output=True, check=False).returncode == 0
        )
    except FileNotFoundError:
        return False


def test_a_full_disk_in_the_middle_of_a_run_and_one_that_is_read_only(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if not _can_mount(disk):
        pytest.skip("a disk that can be filled needs Linux, and the right to mount in a namespace")
    locked = tmp_path / "locked"
    locked.mkdir()
    program = [sys.executable, "-m", "tests.spark.full_disk", *map(str, (tmp_path, disk, locked))]
    run = subprocess.run(
        _in_a_namespace(
            f"mount -t tmpfs -o size=2m tmpfs {shlex.quote(str(disk))}",
            f"mount -t tmpfs -o ro tmpfs {shlex.quote(str(locked))}",
            shlex.join(program),
        ),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert f"cannot make checkpoint directory '{locked}/checkpoints/job'" in seen["read only"]
    assert "Read-only file system" in seen["read only"]
    restarted = {"restored": [KEPT], "closed": [NUMBERS]}
    assert seen["with restarts"] == restarted
    failed = seen["without restarts"]
    assert failed["cause"] == "No space left on device"
    # whichever of its files is the first that does not fit
    unwritten = rf"cannot write (state file|checkpoint) '{disk}/checkpoints/job/(state|chk-)"
    assert re.search(unwritten, failed["error"]), failed["error"]
    assert "No space left on device" in failed["error"]
    assert failed["whole"], "the checkpoint before is whole"
    assert {key: failed[key] for key in restarted} == restarted
