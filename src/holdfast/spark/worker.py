"""What runs in Spark's Python workers: a level's task, and the subtasks a process keeps.

The functions given to Spark are small objects: the epoch's message, and a reference to the
broadcast job. A process unpacks a job once and keeps its subtasks, with their state, for the next
epoch.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import Broadcast, TaskContext

from holdfast.common.time import wall_clock
from holdfast.filesystem import file_system_of
from holdfast.plan.model import ROWS_LEVEL
from holdfast.runtime.job import JobCode, unpack
from holdfast.runtime.protocol import EpochTask
from holdfast.runtime.source_host import HostedSources
from holdfast.runtime.task import FailedRun, Subtask
from holdfast.spark.exchange import from_batches, to_batches
from holdfast.state.staging import state_storage

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(EpochTask).decode


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
        blocks = _subtasks.run(job, task, partition, batches)
        return to_batches(job.plan, task.level, blocks)


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
        job = self._known.get(job_id)
        if job is None:
            self._forget_ended()
            job = self._known[job_id] = unpack(data.value)
        return job

    def _forget_ended(self) -> None:
        """A job's directory goes when it ends; what this process kept of it goes too."""
        ended = [job_id for job_id, job in self._known.items() if not os.path.isdir(job.directory)]
        for job_id in ended:
            del self._known[job_id]
            _subtasks.forget(job_id)


class _Subtasks:
    """The subtasks that this process keeps from epoch to epoch."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int, int, int], Subtask] = {}

    def run(
        self, job: JobCode, task: EpochTask, partition: int, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[Any]:
        """Run a subtask; it is kept only if the run came to its end."""
        place = (job.id, task.attempt, task.level, partition)
        self._forget_earlier(place)
        subtask = self._kept.pop(place, None) or self._make(job, task, partition)
        _quieten_collector()
        try:
            yield from subtask.run(task, from_batches(batches))
        except FailedRun:
            subtask.close()
            return
        except BaseException:
            subtask.close()
            raise
        if task.closing:
            subtask.close(ended=True)
        else:
            self._kept[place] = subtask

    def forget(self, job_id: str) -> None:
        """Drop the subtasks of a job that has ended."""
        for place in [place for place in self._kept if place[0] == job_id]:
            self._kept.pop(place).close()

    def _forget_earlier(self, place: tuple[str, int, int, int]) -> None:
        """Drop what this process kept of the subtask in earlier attempts."""
        job_id, attempt, *where = place
        for kept in list(self._kept):
            if kept[0] == job_id and kept[1] < attempt and [*kept[2:]] == where:
                self._kept.pop(kept).close()

    def _make(self, job: JobCode, task: EpochTask, partition: int) -> Subtask:
        sources = HostedSources(task.attempt)
        files, path = file_system_of(job.state_directory)
        storage = state_storage(path, files, job.directory)
        return Subtask(job, task.level, partition, task.attempt, storage, wall_clock, sources)


def _quieten_collector() -> None:
    """State is many long-lived objects; to scan them again and again costs a third of the time."""
    if gc.get_threshold()[0] < 100_000:
        gc.set_threshold(100_000, 50, 100)


known_jobs = _Jobs()
_subtasks = _Subtasks()
