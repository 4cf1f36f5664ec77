"""Runs a job in this process: the plan, runtime, blocks and state files of Spark, but no JVM."""

from __future__ import annotations

import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from holdfast.checkpoint.events import CheckpointRecord
from holdfast.common.leftovers import OwnDirectory
from holdfast.common.private import user_directory
from holdfast.datastream.connectors.dataframe import DataFrameSink
from holdfast.datastream.data_stream import DataStream, KeyedStream
from holdfast.datastream.state import StateDescriptor
from holdfast.datastream.state_backend import state_settings
from holdfast.datastream.stream_execution_environment import StreamExecutionEnvironment
from holdfast.driver.book import EpochBook, EpochReport
from holdfast.driver.delivery import CollectedRecords
from holdfast.driver.engine import EngineChoice
from holdfast.driver.job_events import (
    ActionFailed,
    AwaitTurn,
    CancelRequested,
    EpochDiscarded,
    JobEvent,
    JobStarting,
    RunEpoch,
)
from holdfast.driver.reports import checkpoints_of
from holdfast.driver.restart import Restart, RestartPolicy
from holdfast.driver.runner import JobRunner
from holdfast.errors import JobDefinitionError, JobExecutionError
from holdfast.filesystem import configure, hadoop_options
from holdfast.graph.nodes import ResultKind, ResultOperation, WriterOperation
from holdfast.plan.model import Plan, PlannedOperator
from holdfast.state.backend import HeapKeyedStateBackend, KeyContext, StateStorage
from holdfast.state.key_groups import KeyGroupShare
from holdfast.testing.clock import ManualClock
from holdfast.testing.engine import LocalEngine, Subtasks
from holdfast.testing.script import Stage
from holdfast.testing.storage import MemoryStateStorage

__all__ = ["LocalExecutor", "collect", "run_locally"]

_QUOTA = 20_000


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
        plan = _take_plan(self._environment, parallelism)
        _check(plan)
        self._quota = quota
        # NB: removed with this object, also if the job is refused and nobody closes it
        self._scratch = OwnDirectory(user_directory(), "local")
        configuration = self._environment._configuration
        file_systems = hadoop_options(configuration.to_dict())
        configure(file_systems)
        self._engine = LocalEngine(
            workers,
            seed,
            self.clock,
            self.calls if count_calls else None,
            state_settings(configuration, check_mutations=True),
            parameters=self._environment.get_config().get_global_job_parameters(),
            file_systems=file_systems,
        )
        self._job = JobRunner(
            self._engine,
            plan,
            uuid.uuid4().hex,
            configuration,
            self._scratch.path,
            collected=results,
            clock=self.clock,
            storage=MemoryStateStorage(),
            simulated=True,
            policy=_AtOnce(),
            sleep=_no_pause,
            choice=EngineChoice("in-process", "holdfast.testing runs it"),
        )
        self.storage: StateStorage = self._job.checkpoints.storage
        self._stage = Stage(self.clock)
        #: the epoch that failed, until it is run again or an attempt begins
        self._failed: ActionFailed | None = None
        self._job.tell(JobStarting())
        self._go_on()

    @property
    def plan(self) -> Plan:
        """The job's plan, fitted to what it goes on from."""
        return self._job.plan

    @property
    def _book(self) -> EpochBook:
        return self._job.book

    @property
    def finished(self) -> bool:
        """Whether the last epoch was run: nothing is left to be read, told or committed."""
        return self._job.over.is_set()

    @property
    def metrics(self) -> dict[tuple[str, int], dict[str, Any]]:
        """The functions' metrics as of the last epoch, by operator uid and subtask."""
        return dict(self._book.metrics)

    @property
    def checkpoints(self) -> tuple[CheckpointRecord, ...]:
        """The checkpoints and savepoints so far, oldest first."""
        return checkpoints_of(self._job.history)

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
        if isinstance(self._job.machine.action, AwaitTurn | RunEpoch):
            given_up = JobExecutionError(f"the attempt of job '{self.plan.name}' is given up")
            self._job.tell(self._failed or ActionFailed(given_up, self.clock()))
        self._go_on()
        if self._job.error is not None:
            raise self._job.error
        return self._job.history.attempts[-1].checkpoint

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
        answer = self._job.savepoint(place, stop, drain)
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
            if not report.read and self._engine.sources:
                time.sleep(0.001)  # a loop in another thread needs its turn

    def cancel(self) -> None:
        """Run the last epoch of a cancelled job: no records are read, functions are closed."""
        if not self.finished:
            if self._failed is not None:
                self.recover()
            self._job.tell(CancelRequested())
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
        return self._job.query_state(operator, state, key, window)

    def close(self) -> None:
        """Let go of everything, as a killed process does: functions are not closed."""
        self._engine.let_go()
        self._job.epochs.close()
        self._job.checkpoints.store.release()
        self._scratch.remove()

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
        """Run an epoch; if it fails, the machine hears of it when the next attempt begins."""
        if self.finished:
            raise JobExecutionError(f"job '{self.plan.name}' has finished; it has no more epochs")
        self._engine.rerun, self._engine.kill = rerun, kill
        with self._stage.entered():
            if not isinstance(self._job.machine.action, RunEpoch):
                self._go_on()
                self._carry_out()
            while isinstance(self._job.machine.action, RunEpoch):
                event = self._carry_out(checkpoint)
        if isinstance(event, EpochDiscarded):
            raise event.failure
        report = self._job.epochs.report
        assert report is not None
        self.reports.append(report)
        self._go_on()
        return report

    def _go_on(self) -> None:
        """Come to the next turn, or to the end of the job."""
        while not (self.finished or isinstance(self._job.machine.action, AwaitTurn)):
            self._carry_out()

    def _carry_out(self, checkpoint: bool = False) -> JobEvent | None:
        """Carry out what is to be done; the machine hears of a failure in `recover`."""
        try:
            event = self._job.carry_out(checkpoint)
        except BaseException:
            self._engine.forget()
            raise
        self._failed = event if isinstance(event, ActionFailed) else None
        if self._failed is not None:
            self._engine.forget()
            raise self._failed.failure
        if event is not None:
            self._job.tell(event)
        return event

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

    def put(self, records: list[Any], check: Callable[[], None] | None = None) -> None:
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


class _AtOnce(RestartPolicy):
    """A test decides when a job starts again."""

    def on_failure(self, now_ms: int) -> Restart:
        return Restart(0)


def _no_pause(seconds: float) -> None:
    """Time goes by only where a test says so."""
