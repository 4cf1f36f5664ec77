"""The local engine: runs all subtasks of a job in the program's process, one after another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from holdfast.checkpoint.saved_image import SavedImage
from holdfast.common import Configuration, ExecutionConfig
from holdfast.common.options.engine import DIRECTORY
from holdfast.common.time import wall_clock
from holdfast.datastream.checkpoint_config import CheckpointConfig
from holdfast.datastream.checkpointing_mode import CheckpointingMode
from holdfast.datastream.engines import check_local
from holdfast.datastream.shipment import Shipment
from holdfast.datastream.state_backend import state_settings
from holdfast.driver.directory import JobDirectory
from holdfast.driver.engine import Engine, PlannedJob
from holdfast.driver.job_events import Abilities
from holdfast.driver.outcome import EpochOutcome, sort_out
from holdfast.driver.quota import Quota
from holdfast.filesystem import configure, hadoop_options
from holdfast.local.function_thread import FunctionThread
from holdfast.local.modules import make_importable
from holdfast.runtime.epochs.task import FailedRun, Subtask
from holdfast.runtime.operators.sources.free_loop import LoopsInProcess, thread_sources
from holdfast.runtime.operators.sources.loop import SourceLoop
from holdfast.runtime.wire.blocks import Block
from holdfast.runtime.wire.protocol import EpochTask
from holdfast.runtime.worker.job_code import JobCode, make_job_code, new_key, pack, unpack

_T = TypeVar("_T")

_MS: Final = 1000
#: the shortest wait for records, in milliseconds: a job without data must not use a whole core
_SHORTEST_WAIT: Final = 10
#: how long sources are read in an epoch, in seconds: results are delivered after it
_LONGEST_READ: Final = 0.1


class LocalEngine(Engine):
    """Runs epochs without Spark, for small jobs and for debugging.

    As with epochs on Spark, state is written to files after each epoch.
    """

    abilities = Abilities(reruns=False, resizes=True)
    #: an epoch costs little here, and results are not seen before it ends
    quota = Quota(first=256, least=1, short=_LONGEST_READ, long=5 * _LONGEST_READ)

    def __init__(
        self,
        configuration: Configuration,
        interval_ms: int,
        shipment: Shipment,
        functions: FunctionThread | None = None,
    ) -> None:
        """Create the job's directory.

        Args:
            configuration: the environment's.
            interval_ms: the interval of epochs while there is nothing to read.
            shipment: the files that the program sends to its workers.
            functions: the thread that runs the functions; None for the job's thread.

        Raises:
            JobDefinitionError: when files are missing, or can only be sent with Spark.
        """
        make_importable(shipment)
        self._configuration = configuration
        self._interval_ms = max(interval_ms, _SHORTEST_WAIT)
        self._functions = functions
        self._state = state_settings(configuration)
        self._key = new_key()
        self._file_systems = hadoop_options(configuration.to_dict())
        configure(self._file_systems)
        self._code: JobCode | None = None
        self._job: PlannedJob | None = None
        self._subtasks: dict[tuple[int, int], Subtask] = {}
        self._sources: LoopsInProcess[SourceLoop] | None = None
        #: set when there is a request, or records of a source function
        self._woken = threading.Event()
        #: the last epoch has read records, or there was none: the next one need not wait
        self._busy = True
        self._ends = False
        self._directory = JobDirectory(DIRECTORY.find(configuration), local=True)

    @property
    def scratch(self) -> Path:
        """Return the directory of the job."""
        return self._directory.path

    def prepare(self, job: PlannedJob) -> None:
        """Copy the job's functions, as if they were sent to another process."""
        check_local(job.plan)
        execution = ExecutionConfig(self._configuration)
        mode = CheckpointConfig(self._configuration).get_checkpointing_mode()
        code = make_job_code(
            job.name,
            job.plan,
            self._directory.shared,
            execution.get_global_job_parameters(),
            state_directory=job.state_directory,
            faults=job.faults,
            file_systems=self._file_systems,
            state=self._state,
            staging_directory=job.staging_directory,
            key=self._key,
            watermark_interval_ms=execution.get_auto_watermark_interval(),
            aligns=mode is CheckpointingMode.EXACTLY_ONCE,
        )
        self._job, self._code = job, unpack(pack(code))

    def start(self, attempt: int, start: SavedImage | None) -> None:
        """Start without subtasks; the first epoch creates them."""
        self._sources = thread_sources(attempt, self._woken.set)
        self._busy = True

    def await_turn(self, due_ms: int | None = None) -> None:
        """Wait while there is nothing to read."""
        assert self._job is not None
        self._job.check()
        wait = self._interval_ms if due_ms is None else min(self._interval_ms, due_ms)
        if not self._busy:
            self._woken.wait(wait / _MS)
        self._woken.clear()

    def wake(self) -> None:
        """End the wait for the next turn; can be called from any thread."""
        self._woken.set()

    def execute(self, tasks: Sequence[EpochTask]) -> EpochOutcome:
        """Run the levels of an epoch."""
        outcome = self._in_thread(partial(self._run, tasks))
        self._busy = any(ack.records_read for ack in outcome.acks)
        return outcome

    def expect_end(self) -> None:
        """Let `stop` delete local state."""
        self._ends = True

    def stop(self) -> None:
        """Close all subtasks, and stop source functions."""
        self._in_thread(self._close_subtasks)

    def close(self) -> None:
        """Remove the job's files."""
        self._directory.remove()
        self._state.forget(self._key)

    def _in_thread(self, do: Callable[[], _T]) -> _T:
        """Call something in the thread that runs the functions, since objects may depend on it."""
        return do() if self._functions is None else self._functions.call(do)

    def _run(self, tasks: Sequence[EpochTask]) -> EpochOutcome:
        """Run every subtask of every level; the first failure ends the epoch."""
        assert self._code is not None
        plan = self._code.plan
        blocks: list[Block] = []
        for task in tasks:
            arrived, blocks = blocks, []
            width = plan.levels[task.level].parallelism
            for number in range(width):
                # a block for a later level is passed on by any subtask of this one
                mine = [block for block in arrived if block.header.subtask % width == number]
                subtask = self._subtask(task, number)
                try:
                    blocks.extend(subtask.run(task, mine))
                except FailedRun:
                    return sort_out(b for b in blocks if b.header.level == plan.driver_level)
        return sort_out(blocks)

    def _subtask(self, task: EpochTask, number: int) -> Subtask:
        place = task.level, number
        if place not in self._subtasks:
            assert self._job is not None
            assert self._code is not None
            assert self._sources is not None
            subtask = Subtask(
                self._code,
                task.level,
                number,
                task.attempt,
                self._job.storage,
                wall_clock,
                self._sources,
            )
            subtask.longest_read = _LONGEST_READ
            self._subtasks[place] = subtask
        return self._subtasks[place]

    def _close_subtasks(self) -> None:
        while self._subtasks:
            self._subtasks.popitem()[1].close(self._ends)
        if self._sources is not None:
            self._sources.stop()
