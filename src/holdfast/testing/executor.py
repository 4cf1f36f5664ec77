"""Runs a job in this process: the plan, runtime, blocks and state files of Spark, but no JVM."""

from __future__ import annotations

import os
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import msgspec

from holdfast.checkpoint.events import CheckpointRecord, Outcome
from holdfast.common.leftovers import OwnDirectory
from holdfast.common.private import user_directory
from holdfast.datastream.connectors.dataframe import DataFrameSink
from holdfast.datastream.data_stream import DataStream, KeyedStream
from holdfast.datastream.state import StateDescriptor
from holdfast.datastream.state_backend import state_settings
from holdfast.datastream.stream_execution_environment import StreamExecutionEnvironment
from holdfast.driver.book import EpochReport
from holdfast.driver.delivery import CollectedRecords
from holdfast.driver.driver import JobDriver
from holdfast.driver.outcome import EpochOutcome, sort_out
from holdfast.driver.queries import query_state
from holdfast.errors import InternalError, JobDefinitionError, JobExecutionError
from holdfast.filesystem import configure, hadoop_options
from holdfast.graph.nodes import ResultKind, ResultOperation, WriterOperation
from holdfast.plan.model import Plan, PlannedOperator
from holdfast.runtime.blocks import Block, decode_header
from holdfast.runtime.faults import SimulatedKill
from holdfast.runtime.job import make_job_code, new_key, pack
from holdfast.runtime.protocol import EpochTask
from holdfast.state.backend import HeapKeyedStateBackend, KeyContext, StateStorage
from holdfast.state.key_groups import KeyGroupShare
from holdfast.testing.clock import ManualClock
from holdfast.testing.script import Stage
from holdfast.testing.storage import MemoryStateStorage
from holdfast.testing.worker import EncodedBlock, LocalSources, Worker

__all__ = ["LocalExecutor", "collect", "run_locally"]

#: Subtasks as (level, number); True for all of them.
Subtasks = Collection[tuple[int, int]] | bool

_QUOTA = 20_000
_encode_task = msgspec.msgpack.Encoder().encode


class LocalExecutor:
    """A job under a test's control, epoch by epoch.

    >>> env = StreamExecutionEnvironment.get_execution_environment()
    >>> doubled = env.from_collection([1, 2, 3]).map(lambda x: 2 * x).set_parallelism(1)
    >>> with LocalExecutor(doubled, quota=2) as run:
    ...     report = run.epoch()
    ...     print(report.read, run.records)
    ...     run.run_to_end()
    ...     print(run.records)
    2 [2, 4]
    [2, 4, 6]

    The driver's part is ``holdfast.driver``, as on Spark; blocks are encoded and decoded between
    levels; the job's code is pickled and unpickled for each worker; state goes to files after each
    epoch, in memory unless the job takes checkpoints. The loops of source functions run in threads;
    everything else in the thread that calls. A job that reads or writes Spark DataFrames cannot run
    here.

    Attributes:
        records: what the given stream gave in accepted epochs so far.
        clock: the processing time of all functions.
        storage: the state files.
        calls: how often each operator's function was called, if that is counted, by name.
        reports: what the accepted epochs did.
    """

    def __init__(
        self,
        job: StreamExecutionEnvironment | DataStream | KeyedStream,
        *,
        parallelism: int = 2,
        quota: int = _QUOTA,
        workers: int = 1,
        seed: int | None = None,
        clock: ManualClock | None = None,
        count_calls: bool = False,
    ) -> None:
        """Plan the job; nothing runs yet.

        Args:
            job: an environment; or a stream of one, whose records are then collected.
            parallelism: the default where the environment has none, instead of the cores there are.
            quota: how many records a source subtask reads in an epoch.
            workers: how many workers there are. A subtask runs in the next one with each epoch,
                so that state, fields and metrics have to follow it.
            seed: deals the blocks to a subtask in a random order, as a shuffle may.
            clock: the processing time; by default one that stands at 0.
            count_calls: count the calls of each operator's function in ``calls``.
        """
        self.records: list[Any] = []
        self.clock = clock or ManualClock()
        self.calls: Counter[str] = Counter()
        self.reports: list[EpochReport] = []
        self._environment, results = _prepare(job, self.records)
        self.plan = _take_plan(self._environment, parallelism)
        _check(self.plan)
        self._quota = quota
        # NB: removed with this object, also if the job is refused and nobody closes it
        self._scratch = OwnDirectory(user_directory(), "local")
        self._file_systems = hadoop_options(self._environment._configuration.to_dict())
        configure(self._file_systems)
        self._driver = JobDriver(
            self.plan,
            uuid.uuid4().hex,
            self._environment._configuration,
            self._scratch.path,
            collected=results,
            clock=self.clock,
            storage=MemoryStateStorage(),
            simulated=True,
        )
        self.plan = self._driver.plan
        self.storage: StateStorage = self._driver.checkpoints.storage
        self._book = self._driver.book
        self._state = state_settings(self._environment._configuration, check_mutations=True)
        self._state_files = str(getattr(self.storage, "directory", self._book.job))
        self._sources = LocalSources()
        self._stage = Stage(self.clock)
        self._random = None if seed is None else random.Random(seed)
        self._key = new_key()
        packed = self._pack()
        calls = self.calls if count_calls else None
        self._workers = [
            Worker(packed, self.storage, self.clock, self._sources, calls) for _ in range(workers)
        ]
        self._epoch = self._attempt = 0
        self._begin_attempt(0)

    def _pack(self) -> bytes:
        code = make_job_code(
            self._book.job,
            self.plan,
            "",
            self._environment.get_config().get_global_job_parameters(),
            faults=self._driver.faults,
            state_directory=self._state_files,
            file_systems=self._file_systems,
            state=self._state,
            staging_directory=self._driver.checkpoints.store.staging,
            key=self._key,
        )
        return pack(code)

    def _begin_attempt(self, number: int) -> int | None:
        start = self._driver.begin_attempt(number)
        if start is not None:
            self._epoch = max(self._epoch, start.metadata.epoch + 1)
        return None if start is None else start.metadata.id

    @property
    def finished(self) -> bool:
        """Whether the last epoch was run: nothing is left to be read, told or committed."""
        return self._driver.over

    @property
    def metrics(self) -> dict[tuple[str, int], dict[str, Any]]:
        """The functions' metrics as of the last epoch, by operator uid and subtask."""
        return dict(self._book.metrics)

    @property
    def checkpoints(self) -> tuple[CheckpointRecord, ...]:
        """The checkpoints and savepoints so far, oldest first."""
        return self._driver.checkpoints.history()

    def epoch(
        self,
        quota: int | None = None,
        *,
        checkpoint: bool = False,
        rerun: Subtasks = (),
        kill: Subtasks = (),
    ) -> EpochReport:
        """Run one epoch.

        Args:
            quota: how many records a source subtask reads, for this epoch only.
            checkpoint: take a checkpoint with it, whatever the interval and the clock say; the
                job must have checkpoints enabled.
            rerun: subtasks that are run twice, as Spark does with a task that it takes for lost.
                What the first run gave is never used; its state file is left lying about.
            kill: subtasks whose first run dies as soon as its first block has left it.

        Raises:
            UserFunctionError: when a function raises. Nothing of the epoch is kept, and all
                workers forget what they had; the next call runs the epoch again.
        """
        self._book.quota = self._quota if quota is None else quota
        return self._run(checkpoint, rerun, kill)

    def recover(self) -> int | None:
        """Begin the next attempt, as a restart strategy does after a failure.

        Returns the checkpoint that it begins with; None: the beginning.
        """
        self._forget()
        self._sources.stop()
        self._attempt += 1
        return self._begin_attempt(self._attempt)

    def savepoint(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        stop: bool = False,
        drain: bool = False,
        quota: int | None = None,
    ) -> str:
        """Run an epoch, take a savepoint at its end, and return the path of the savepoint.

        The epoch reads records like any other, and what they give is in ``records``. With
        ``quota=0`` it reads none: the savepoint then is of the job as it is now, but for timers
        that are due by the clock, which fire.

        Args:
            directory: where to put it; by default where the job's configuration says.
            stop: end the job with it.
            drain: before it, sources end and time goes to its end.
            quota: how many records a source subtask reads, for this epoch only.

        Raises:
            CheckpointError: when there is no savepoint.
        """
        place = None if directory is None else os.fspath(directory)
        answer = self._driver.checkpoints.ask_savepoint(place, stop, drain)
        self.epoch(quota)
        path = answer.result(0)
        if stop:
            self.run_to_end()
        return path

    def run_to_end(self, timeout: float = 30.0) -> None:
        """Run epochs until the job has finished.

        Raises:
            TimeoutError: when it has not after so many seconds.
        """
        self.run_until(lambda: self.finished, timeout)

    def run_until(self, reached: Callable[[], bool], timeout: float = 30.0) -> None:
        """Run epochs until ``reached()`` is true; for jobs that do not end.

        Raises:
            TimeoutError: when it is not after so many seconds.
        """
        deadline = time.monotonic() + timeout
        while not reached():
            if time.monotonic() > deadline:
                msg = (
                    f"job '{self.plan.name}' is not done after {timeout} s and "
                    f"{len(self.reports)} epochs; a source without an end needs run_until(...)"
                )
                raise TimeoutError(msg)
            report = self.epoch()
            if not report.read and self._sources:
                time.sleep(0.001)  # a loop in another thread needs its turn

    def cancel(self) -> None:
        """Run the last epoch of a cancelled job: no records are read, functions are closed."""
        if not self.finished:
            self._driver.cancel_asked.set()
            self._run(False, (), ())

    def state(self, operator: str, descriptor: StateDescriptor) -> dict[Any, Any]:
        """A keyed state as it was saved with the last accepted epoch, by key.

        Args:
            operator: the operator's uid or name.
            descriptor: the state's descriptor. Lists and maps come as list and dict; reducing
                and aggregating states as their accumulators. Keys that are lists come as tuples.
        """
        op = self._operator(operator)
        entries: dict[Any, Any] = {}
        for chain in self._book.chains[op.level]:
            backend = HeapKeyedStateBackend(range(0), 1)
            backend.use_clock(self.clock)
            for number in self.plan.levels[op.level].operators:
                other = self.plan.operators[number]
                share = KeyGroupShare(range(other.max_parallelism), other.max_parallelism)
                backend.assign(other.uid, share)
            backend.restore(self.storage, chain)
            backend.keyed_state(op.uid, descriptor, KeyContext())
            entries.update(
                (key, value) for key, _, value in backend.entries(op.uid, descriptor.get_name())
            )
        return entries

    def query_state(self, operator: str, state: str, key: Any, window: Any = None) -> Any:
        """What a key has in a keyed state as of the last accepted epoch; see ``JobClient``."""
        return query_state(self._driver, operator, state, key, window)

    def close(self) -> None:
        """Let go of everything, as a killed process does: functions are not closed."""
        self._forget()
        self._sources.stop()
        self._driver.close()
        self._driver.checkpoints.store.release()
        self._scratch.remove()
        self._state.forget(self._key)

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, checkpoint: bool, rerun: Subtasks, kill: Subtasks) -> EpochReport:
        if self.finished:
            raise JobExecutionError(f"job '{self.plan.name}' has finished; it has no more epochs")

        def execute(tasks: Sequence[EpochTask]) -> EpochOutcome:
            return self._run_levels(tasks, rerun, kill)

        try:
            with self._stage.entered():
                report = self._driver.epoch(
                    self._epoch, execute, _no_writers, checkpoint=checkpoint
                )
        except BaseException:
            self._forget()
            raise
        self._epoch += 1
        self.reports.append(report)
        if self.finished:
            self._driver.checkpoints.end(self._outcome())
        return report

    def _outcome(self) -> Outcome:
        if self._driver.stopped:
            return Outcome.STOPPED
        return Outcome.FINISHED if self._book.finished else Outcome.CANCELLED

    def _run_levels(
        self, tasks: Iterable[EpochTask], rerun: Subtasks, kill: Subtasks
    ) -> EpochOutcome:
        """Run every subtask of every level; returns what is left for the driver."""
        blocks: list[EncodedBlock] = []
        for task in tasks:
            width = self.plan.levels[task.level].parallelism
            order = _encode_task(task)
            inboxes = self._deal(blocks, task.level, width)
            blocks = []
            for subtask, inbox in enumerate(inboxes):
                place = (task.level, subtask)
                turn = task.epoch + subtask
                if _includes(kill, place):
                    self._worker(turn).die(order, subtask, inbox)
                if _includes(rerun, place):
                    self._worker(turn + 1).run(order, subtask, inbox)
                blocks += self._run_subtask(turn, order, subtask, inbox)
        return sort_out(Block(decode_header(head), data) for head, data in blocks)

    def _run_subtask(
        self, turn: int, order: bytes, subtask: int, inbox: list[EncodedBlock]
    ) -> list[EncodedBlock]:
        """Run a subtask; if its worker is killed, again in the next one, as Spark does."""
        while True:
            try:
                return self._worker(turn).run(order, subtask, inbox)
            except SimulatedKill:
                self._worker(turn).forget()
                turn += 1

    def _forget(self) -> None:
        for worker in self._workers:
            worker.forget()

    def _deal(
        self, blocks: Iterable[EncodedBlock], level: int, width: int
    ) -> list[list[EncodedBlock]]:
        """The blocks for each subtask; one for a later level is passed on by one of them."""
        inboxes: list[list[EncodedBlock]] = [[] for _ in range(width)]
        for block in blocks:
            header = decode_header(block.head)
            target = header.subtask if header.level == level else header.subtask % width
            inboxes[target].append(block)
        if self._random is not None:
            for inbox in inboxes:
                self._random.shuffle(inbox)
        return inboxes

    def _worker(self, turn: int) -> Worker:
        return self._workers[turn % len(self._workers)]

    def _operator(self, name: str) -> PlannedOperator:
        found = [op for op in self.plan.operators.values() if name in (op.uid, op.name)]
        if len(found) != 1:
            known = ", ".join(f"'{op.name}' ({op.uid})" for op in self.plan.operators.values())
            msg = f"{len(found)} operators have the name or uid '{name}'; there are {known}"
            raise LookupError(msg)
        return found[0]


def collect(
    stream: DataStream | KeyedStream, *, timeout: float = 30.0, **settings: Any
) -> list[Any]:
    """Run a stream's job in this process, to its end, and return the stream's records.

    ``settings`` are those of ``LocalExecutor``.

    >>> env = StreamExecutionEnvironment.get_execution_environment()
    >>> sorted(collect(env.from_collection(["to be", "or not"]).flat_map(str.split)))
    ['be', 'not', 'or', 'to']
    """
    with LocalExecutor(stream, **settings) as run:
        run.run_to_end(timeout)
    return run.records


def run_locally(
    job: StreamExecutionEnvironment | DataStream | KeyedStream,
    *,
    timeout: float = 30.0,
    **settings: Any,
) -> LocalExecutor:
    """Run a job in this process, to its end; returns its executor to look at.

    ``settings`` are those of ``LocalExecutor``.
    """
    with LocalExecutor(job, **settings) as run:
        run.run_to_end(timeout)
    return run


class _Results(CollectedRecords):
    """Takes collected records into a list; there is no other thread to wait for."""

    def __init__(self, records: list[Any]) -> None:
        super().__init__()
        self._records = records

    def put(self, records: list[Any]) -> None:
        self._records.extend(records)


def _prepare(
    job: StreamExecutionEnvironment | DataStream | KeyedStream, records: list[Any]
) -> tuple[StreamExecutionEnvironment, dict[int, CollectedRecords]]:
    """The environment of a job; a stream gets a sink that collects its records."""
    if isinstance(job, StreamExecutionEnvironment):
        return job, {}
    if not isinstance(job, DataStream | KeyedStream):
        msg = f"expected an environment or a stream; got {type(job).__name__}"
        raise TypeError(msg)
    operation = ResultOperation(ResultKind.COLLECT)
    node = job._add("collect", "Collect", operation, parallelism=job._source().parallelism)
    return job.get_execution_environment(), {node: _Results(records)}


def _take_plan(environment: StreamExecutionEnvironment, parallelism: int) -> Plan:
    with _default_parallelism(environment, parallelism):
        return environment._take_plan(None)


@contextmanager
def _default_parallelism(
    environment: StreamExecutionEnvironment, parallelism: int
) -> Iterator[None]:
    """Without it the plan, and so the test, would depend on the machine's cores."""
    given = environment._local_parallelism
    environment._local_parallelism = given or parallelism
    try:
        yield
    finally:
        environment._local_parallelism = given


def _check(plan: Plan) -> None:
    for op in (*plan.rows_sources, *filter(_writes_a_dataframe, plan.operators.values())):
        raise JobDefinitionError(
            f"operator '{op.name}' reads or writes a Spark DataFrame, and a LocalExecutor has no "
            "Spark; test the job with from_collection and a CollectingSink in its place"
        )


def _writes_a_dataframe(op: PlannedOperator) -> bool:
    operation = op.node.operation
    return isinstance(operation, WriterOperation) and isinstance(operation.writer, DataFrameSink)


def _no_writers(blocks: list[Block]) -> None:
    if blocks:
        raise InternalError("there are results that only Spark can write")


def _includes(subtasks: Subtasks, place: tuple[int, int]) -> bool:
    return subtasks if isinstance(subtasks, bool) else place in subtasks
