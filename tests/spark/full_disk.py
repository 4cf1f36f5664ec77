"""A program for test_storage_faults: a disk is full while a job runs, and then it is not.

Usage: python -m tests.spark.full_disk FOLDER DISK LOCKED, where DISK is an empty disk of a few
megabytes and LOCKED one that is read-only. What was seen is written to ``FOLDER/seen.json``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from holdfast.checkpoint.store import CheckpointStore
from holdfast.common import RestartStrategies
from holdfast.errors import HoldfastError
from tests.spark.witness import EPOCH, Job

#: so many are in a checkpoint when the disk is full
KEPT = 4 * EPOCH + 2
FATAL = KEPT + 1
NUMBERS = 8 * EPOCH


class FillOnce:
    """Leaves no space on the disk; the second time, it cleans up."""

    def __init__(self, folder: Path, disk: Path) -> None:
        self.marker = folder / "filled"
        self.filler = disk / "filler"

    def __call__(self) -> None:
        if self.marker.exists():
            self.filler.unlink(missing_ok=True)
            return
        self.marker.touch()
        file = os.open(self.filler, os.O_WRONLY | os.O_CREAT)
        try:
            while True:
                os.write(file, bytes(4096))
        except OSError as error:
            self.marker.write_text(str(error.strerror))
        finally:
            os.close(file)


def seen_by(job: Job) -> dict[str, Any]:
    """Where the job went on, and where it ended."""
    return {"restored": job.noted("restored"), "closed": job.noted("closed")}


def without_restarts(folder: Path, disk: Path) -> dict[str, Any]:
    """The job fails; started again, with space, it goes on."""
    folder.mkdir()
    job = Job(folder, disk / "checkpoints")
    fill = FillOnce(folder, disk)
    failure: HoldfastError | None = None
    try:
        job.run(NUMBERS, {KEPT: job.kept(KEPT)}, deeds={FATAL: fill})
    except HoldfastError as error:
        failure = error
    whole = CheckpointStore(job.directory).latest(deep=True)
    fill.filler.unlink()
    job.run(NUMBERS)
    return {
        "cause": fill.marker.read_text(),
        "error": str(failure),
        "type": type(failure).__name__,
        "whole": whole is not None,
        **seen_by(job),
    }


def with_restarts(folder: Path, disk: Path) -> dict[str, Any]:
    """The job restarts by itself until there is space."""
    folder.mkdir()
    job = Job(folder, disk / "checkpoints", "restarting")
    # NB: a checkpoint may fail once more, if its barrier comes before the number that makes space
    job.env.set_restart_strategy(RestartStrategies.fixed_delay_restart(100, 10))
    job.run(NUMBERS, {KEPT: job.kept(KEPT)}, deeds={FATAL: FillOnce(folder, disk)})
    seen = seen_by(job)
    return seen | {"restored": sorted({*seen["restored"]})}


def read_only(folder: Path, disk: Path) -> str:
    """The job does not start."""
    try:
        Job(folder, disk / "checkpoints").start()
    except HoldfastError as error:
        return str(error)
    return "nothing"


def main(folder: Path, disk: Path, locked: Path) -> None:
    """Run all of it."""
    seen = {
        "read only": read_only(folder, locked),
        "without restarts": without_restarts(folder / "without", disk),
        "with restarts": with_restarts(folder / "with", disk),
    }
    (folder / "seen.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
