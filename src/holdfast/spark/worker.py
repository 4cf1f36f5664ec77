"""The code that runs in Spark's Python workers: a level's task, and the subtasks of a process.

The functions passed to Spark are small objects: the epoch's message, and a reference to the
broadcast job. A process unpacks a job once, and keeps its subtasks, with their state, from epoch to
epoch.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import Broadcast, TaskContext

from holdfast.common.options.engine import DIRECTORY
from holdfast.common.time import wall_clock
from holdfast.datastream.checkpoint_storage import DIRECTORY as CHECKPOINTS
from holdfast.errors import JobExecutionError
from holdfast.filesystem import file_system_of
from holdfast.plan.model import ROWS_LEVEL
from holdfast.runtime.epochs.carrying import Network
from holdfast.runtime.epochs.homes import Homes, SubtaskPlace
from holdfast.runtime.epochs.task import Subtask, refuse
from holdfast.runtime.network.addresses import Location
from holdfast.runtime.operators.sources.loop_process import HostedSources
from holdfast.runtime.wire.protocol import EpochTask
from holdfast.runtime.worker.garbage import Garbage
from holdfast.runtime.worker.job_code import JobCode, unpack
from holdfast.runtime.worker.logs import capture, set_levels
from holdfast.spark.exchange import from_batches, to_batches
from holdfast.state.storage.directory import StateStorage
from holdfast.state.storage.staged import state_storage

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(EpochTask).decode

#: The interval of Python's thread switches, in seconds. A thread that transfers blocks
#: waits for each: with Python's default of 5 ms it transfers 40 MB per second, with this 360 MB.
_SWITCH = 0.0005


@dataclass(frozen=True)
class ShippedJob:
    """The reference to a job in Spark's tasks.

    Attributes:
        name: the name of its plan, for workers.
        data: its code.
        running: the names of all running jobs; workers discard the others.
    """

    name: str
    data: Broadcast[bytes]
    running: frozenset[str]


class LevelTask:
    """The function of one level for one epoch: Arrow batches in, Arrow batches out."""

    def __init__(self, job: ShippedJob, task: EpochTask) -> None:
        """Hold only data that changes from epoch to epoch."""
        self._job = job
        self._task = _encode(task)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the subtask of this Spark partition."""
        task = _decode(self._task)
        job = known_jobs.get(self._job)
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        if task.level == 0 and ROWS_LEVEL not in job.plan.levels[0].producers:
            batches = _nothing(batches)
        sys.setswitchinterval(_SWITCH)
        garbage.expect_state()
        place = SubtaskPlace(job.id, task.attempt, task.level, partition)
        try:
            known_jobs.check(job)
            network = _network_of(job)
            make = partial(_make, job, task, partition, _homes.location(network))
            blocks = _homes.run(network, place, task, from_batches(batches), make)
        except JobExecutionError as error:
            blocks = refuse(job, task, partition, error)
        yield from to_batches(job.plan, task.level, blocks)
        garbage.spare()


def _nothing(batches: Iterable[Any]) -> Iterator[Any]:
    """Consume rows that only start a level's tasks and contain no blocks."""
    for _ in batches:
        pass
    return iter(())


class _Jobs:
    """The jobs that this process has unpacked."""

    def __init__(self) -> None:
        self._known: dict[str, JobCode] = {}
        self._checked: set[str] = set()

    def get(self, shipped: ShippedJob) -> JobCode:
        # NB: before the program's modules are loaded, which may configure ``logging`` themselves
        capture()
        job = self._known.get(shipped.name)
        if job is None:
            job = unpack(shipped.data.value)
            set_levels(job.log_levels)
            self._forget_ended(shipped.running)
            self._known[shipped.name] = job
        return job

    def check(self, job: JobCode) -> None:
        """Check once that this host has the directories of a job, if they are mounted.

        Raises:
            JobExecutionError: if one is missing.
        """
        if job.id in self._checked:
            return
        if job.directory:
            _check_directory(job.directory, "directory of the running job", str(DIRECTORY))
        _check_directory(job.state_directory, "directory of its checkpoints", str(CHECKPOINTS))
        self._checked.add(job.id)

    def _forget_ended(self, running: frozenset[str]) -> None:
        """Discard data of jobs that have ended, or have another plan now."""
        ended = [job for job_id, job in self._known.items() if job_id not in running]
        for job in ended:
            del self._known[job.id]
            self._checked.discard(job.id)
            _homes.forget(job.id, job.key)
        if ended:
            garbage.collect()


def _check_directory(address: str, what: str, setting: str) -> None:
    """Check that this host has a directory of the job; the error names its setting.

    Creating it here would not help: other hosts would not see its files. And another user of this
    host may have created the directories above it.
    """
    files, path = file_system_of(address)
    if not files.is_remote and not os.path.isdir(path):
        raise JobExecutionError(
            f"there is no directory '{path}' on host '{socket.gethostname()}'; it is the {what}: "
            f"set '{setting}' to a place that the driver and all executors share"
        )


def _network_of(job: JobCode) -> Network:
    return Network(job.key, job.one_host, job.certificate, job.ports, job.heartbeat)


def _make(job: JobCode, task: EpochTask, subtask: int, home: Location) -> Subtask:
    sources = HostedSources(task.attempt)
    storage = state_storage_of(job)
    made = Subtask(job, task.level, subtask, task.attempt, storage, wall_clock, sources)
    made.home = home
    return made


def state_storage_of(job: JobCode) -> StateStorage:
    """Return the state storage of a job for its workers."""
    files, path = file_system_of(job.state_directory)
    return state_storage(path, files, job.directory)


known_jobs = _Jobs()
_homes = Homes()
garbage = Garbage()
