"""The resident engine without Spark: slots are threads of this process, with real connections."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.checkpoint.saved_image import SavedImage
from holdfast.common import Configuration, ExecutionConfig
from holdfast.common.time import wall_clock
from holdfast.datastream import DataStream, KeyedStream, StreamExecutionEnvironment
from holdfast.datastream.state_backend import state_settings
from holdfast.driver.engine import Engine, PlannedJob
from holdfast.driver.epochs.delivery import CollectedRecords
from holdfast.driver.job.runner import JobRunner
from holdfast.driver.job_events import Abilities
from holdfast.driver.outcome import EpochOutcome
from holdfast.driver.slots.attempt_slots import Slots
from holdfast.filesystem import file_system_of
from holdfast.graph.operations import ResultKind, ResultOperation
from holdfast.runtime.network.peers import listen
from holdfast.runtime.resident.outbox import Post
from holdfast.runtime.resident.slot import Slot, SlotLostError
from holdfast.runtime.resident.subtask import ResidentSubtask
from holdfast.runtime.wire.protocol import EpochTask, StoredState
from holdfast.runtime.worker.job_code import JobCode, make_job_code, new_key, pack, unpack
from holdfast.state.errors import StateStorageError
from holdfast.state.local_copies import copies_of
from holdfast.state.storage.directory import DirectoryStateStorage

HOST = "127.0.0.1"
PATIENCE = 60.0


def _nothing() -> None:
    pass


class ThreadEngine(Engine):
    """Starts a thread per slot."""

    abilities = Abilities(reruns=False, resizes=True, keeps_state=True)

    def __init__(
        self,
        configuration: Configuration,
        interval_ms: int = 10,
        heartbeat: float = 10.0,
        certificate: bytes = b"",
        copies: bool = False,
        before: Callable[[int], None] = lambda attempt: None,
    ) -> None:
        """Make nothing yet.

        ``copies``: hosts keep copies of state files. ``before``: is called before each attempt.
        """
        self.copies = copies
        self.ends = False
        self.before = before
        self.slots: Slots | None = None
        #: those of the attempt that runs
        self.threads: list[threading.Thread] = []
        #: subtasks of the attempt that runs, by level and number
        self.subtasks: dict[tuple[int, int], ResidentSubtask] = {}
        self._configuration = configuration
        self._interval = interval_ms / 1000
        self._heartbeat = heartbeat
        self._certificate = certificate
        self._key = new_key()

    def prepare(self, job: PlannedJob) -> None:
        self.job = job
        code = make_job_code(
            job.name,
            job.plan,
            "",
            state_directory=job.state_directory,
            faults=job.faults,
            parameters=ExecutionConfig(self._configuration).get_global_job_parameters(),
            state=state_settings(self._configuration),
            staging_directory=job.staging_directory,
            key=self._key,
            functions_stay=True,
            certificate=self._certificate,
        )
        self._code = pack(code)

    def start(self, attempt: int, start: SavedImage | None) -> None:
        self.before(attempt)
        subtasks = sum(level.parallelism for level in self.job.plan.levels)
        self.slots = Slots(
            self.job.name,
            attempt,
            subtasks,
            self._heartbeat,
            partial(listen, host=HOST, key=self._key.hex(), certificate=self._certificate),
            note_progress=self.job.note_progress,
        )
        width = self.job.plan.widest_level.parallelism
        self.threads = [
            threading.Thread(target=self._be_slot, args=(attempt, number), daemon=True)
            for number in range(width)
        ]
        for thread in self.threads:
            thread.start()
        self.slots.gather(width, PATIENCE, _nothing)

    def _be_slot(self, attempt: int, number: int) -> None:
        job = unpack(self._code)  # every slot has a copy of its own, as processes have
        make = partial(self._make, job, attempt)
        assert self.slots is not None
        with suppress(SlotLostError):
            Slot(job, attempt, number, make, self._heartbeat).serve(self.slots.address, HOST)

    def _make(
        self, job: JobCode, attempt: int, level: int, number: int, post: Post
    ) -> ResidentSubtask:
        files, path = file_system_of(job.state_directory)
        storage = DirectoryStateStorage(path, files)
        copies = copies_of(job.state, job.key, level, number) if self.copies else None
        subtask = ResidentSubtask(
            job, level, number, attempt, storage, wall_clock, post, copies=copies
        )
        self.subtasks[level, number] = subtask
        return subtask

    def await_turn(self, due_ms: int | None = None) -> None:
        assert self.slots is not None
        pause = self.slots.pause(self._interval)
        wait = pause if due_ms is None else min(due_ms / 1000, pause)
        self.slots.wait(wait, self.job.deliver, _nothing)

    def wake(self) -> None:
        if self.slots is not None:
            self.slots.wake()

    def execute(self, tasks: Sequence[EpochTask]) -> EpochOutcome:
        assert self.slots is not None
        return self.slots.round(tasks, self.job.deliver, _nothing)

    def stored(self, patience_ms: int = 0) -> list[StoredState]:
        if self.slots is None:
            return []
        return self.slots.stored(patience_ms / 1000, self.job.deliver, _nothing)

    def query(
        self, level: int, subtask: int, operator: str, state: str, key: Any, window: Any = None
    ) -> Any:
        if self.slots is None:
            raise StateStorageError("no attempt runs")
        return self.slots.query(level, subtask, operator, state, (key, window)).result(PATIENCE)

    def expect_end(self) -> None:
        self.ends = True

    def stop(self) -> None:
        slots, self.slots = self.slots, None
        if slots is not None:
            assert slots.stop(self.ends, self._gone), "a slot did not leave"

    def _gone(self, seconds: float) -> bool:
        for thread in self.threads:
            thread.join(seconds)
        return not any(thread.is_alive() for thread in self.threads)

    def close(self) -> None:
        pass


class Started(NamedTuple):
    """A job that runs, and what it gives."""

    runner: JobRunner
    engine: ThreadEngine
    records: CollectedRecords

    def wait(self) -> None:
        """Wait for the job's end; raises what ended it."""
        assert self.runner.over.wait(PATIENCE), "the job does not come to its end"
        if self.runner.error is not None:
            raise self.runner.error


def start(
    job: StreamExecutionEnvironment | DataStream | KeyedStream, scratch: Path, **engine: Any
) -> Started:
    """Start a job; if it is a stream, with its records."""
    records = CollectedRecords(1 << 20)
    collected: dict[int, CollectedRecords] = {}
    if isinstance(job, DataStream | KeyedStream):
        env = job.get_execution_environment()
        parallelism = env._graph[job._edges[0].source].parallelism
        operation = ResultOperation(ResultKind.COLLECT)
        collected[job._add("collect", "Collect", operation, parallelism=parallelism)] = records
    else:
        env = job
    plan = env._take_plan("resident")
    made = ThreadEngine(env._configuration, **engine)
    name = f"resident-{uuid.uuid4().hex}"
    runner = JobRunner(made, plan, name, env._configuration, scratch, collected=collected)
    runner.start()
    return Started(runner, made, records)
