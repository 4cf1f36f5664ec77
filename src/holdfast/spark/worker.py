"""What runs in Spark's Python workers: a level's task, and the subtasks a process keeps.

The functions given to Spark are small objects: the epoch's message, and a reference to the
broadcast job. A process unpacks a job once, and its subtasks live in it, with their state, from
epoch to epoch.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import Broadcast, TaskContext

from holdfast.common.time import wall_clock
from holdfast.errors import JobExecutionError
from holdfast.filesystem import file_system_of
from holdfast.plan.model import ROWS_LEVEL
from holdfast.runtime.garbage import Garbage
from holdfast.runtime.homes import Homes, Place
from holdfast.runtime.job import JobCode, unpack
from holdfast.runtime.logs import capture, set_levels
from holdfast.runtime.protocol import EpochTask
from holdfast.runtime.source_host import HostedSources
from holdfast.runtime.task import Subtask
from holdfast.spark.directory import DIRECTORY
from holdfast.spark.exchange import from_batches, to_batches
from holdfast.state.staging import state_storage

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(EpochTask).decode

#: Seconds until a thread that computes lets another one have its turn. One that carries blocks
#: waits for each: with Python's own five milliseconds it carries 40 MB in a second, with these 360.
_SWITCH = 0.0005


class LevelTask:
    """The function of one level for one epoch: Arrow batches in, Arrow batches out."""

    def __init__(self, job: Broadcast[bytes], task: EpochTask) -> None:
        """Carry only what changes from epoch to epoch."""
        self._job = job
        self._job_id = task.job
        self._task = _encode(task)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the subtask that this Spark partition stands for."""
        task = _decode(self._task)
        job = known_jobs.get(self._job_id, self._job)
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        if task.level == 0 and ROWS_LEVEL not in job.plan.levels[0].producers:
            batches = _nothing(batches)
        sys.setswitchinterval(_SWITCH)
        garbage.expect_state()
        place = Place(job.id, task.attempt, task.level, partition)
        make = partial(_make, job, task, partition)
        blocks = _homes.run(job.directory, place, task, from_batches(batches), make)
        yield from to_batches(job.plan, task.level, blocks)
        garbage.spare()


def _nothing(batches: Iterable[Any]) -> Iterator[Any]:
    """The rows that only start a level's tasks carry no blocks."""
    for _ in batches:
        pass
    return iter(())


class _Jobs:
    """The jobs that this process has unpacked."""

    def __init__(self) -> None:
        self._known: dict[str, JobCode] = {}

    def get(self, job_id: str, data: Broadcast[bytes]) -> JobCode:
        # NB: before the program's modules are loaded, which may set up ``logging`` as if alone
        capture()
        job = self._known.get(job_id)
        if job is None:
            job = unpack(data.value)
            if not job.functions_stay:  # otherwise no epoch writes to it
                check_directory(job.directory, "directory of the running job", DIRECTORY)
            set_levels(job.log_levels)
            self._forget_ended(job.directory)
            self._known[job_id] = job
        return job

    def _forget_ended(self, directory: str) -> None:
        """A job's directory goes when it ends; what this process kept of it goes too.

        So does what it kept of the job that begins, under an earlier plan.
        """
        ended = [
            job_id
            for job_id, job in self._known.items()
            if job.directory == directory or not os.path.isdir(job.directory)
        ]
        for job_id in ended:
            del self._known[job_id]
            _homes.forget(job_id)
        if ended:
            garbage.collect()


def check_directory(directory: str, what: str, setting: str) -> None:
    """Check that this host has a directory of the job's, and name its setting if not.

    To make it here would be no help: other hosts would not see what is in it. And another user of
    this host may have made the directories above it.
    """
    if not os.path.isdir(directory):
        raise JobExecutionError(
            f"there is no directory '{directory}' on host '{socket.gethostname()}'; it is the "
            f"{what}: set '{setting}' to a place that the driver and all executors share"
        )


def _make(job: JobCode, task: EpochTask, subtask: int) -> Subtask:
    sources = HostedSources(task.attempt)
    files, path = file_system_of(job.state_directory)
    storage = state_storage(path, files, job.directory)
    return Subtask(job, task.level, subtask, task.attempt, storage, wall_clock, sources)


known_jobs = _Jobs()
_homes = Homes()
garbage = Garbage()
