"""Runs a job in this process: the plan, runtime, blocks and state files of Spark, but no JVM."""

from __future__ import annotations

import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.checkpoint.events import CheckpointRecord
from holdfast.common.leftovers import OwnDirectory
from holdfast.common.private import user_directory
from holdfast.datastream.connectors.dataframe import DataFrameSink
from holdfast.datastream.data_stream import DataStream, KeyedStream
from holdfast.datastream.state import StateDescriptor
from holdfast.datastream.state_backend import state_settings
from holdfast.datastream.stream_execution_environment import StreamExecutionEnvironment
from holdfast.driver import job_events as events
from holdfast.driver.engine import EngineChoice
from holdfast.driver.epoch_book import EpochBook
from holdfast.driver.epochs.delivery import CollectedRecords
from holdfast.driver.job.restart_policy import Restart, RestartPolicy
from holdfast.driver.job.runner import JobRunner
from holdfast.driver.reports import EpochReport, checkpoints_of, report_of
from holdfast.errors import JobDefinitionError, JobExecutionError
from holdfast.filesystem import configure, hadoop_options
from holdfast.graph.operations import ResultKind, ResultOperation, WriterOperation
from holdfast.plan.model import Plan, PlannedOperator
from holdfast.state.backend import HeapKeyedStateBackend, KeyContext, StateStorage
from holdfast.state.key_groups import KeyGroupShare
from holdfast.testing.clock import ManualClock
from holdfast.testing.engine import ExecutorEngine, Subtasks
from holdfast.testing.script import ScriptClock
from holdfast.testing.storage import MemoryStateStorage

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
    everything else in the calling thread. A job that reads or writes Spark DataFrames cannot run
    here.

    Attributes:
        records: the records of the given stream in accepted epochs so far.
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
            job: an environment, or a stream whose records are collected.
            parallelism: the default parallelism, instead of the number of cores.
            quota: how many records a source subtask reads in an epoch.
            workers: the number of workers. A subtask runs in the next one with each epoch,
                so state, fields and metrics must move with it.
            seed: delivers blocks to a subtask in random order, as a shuffle may.
            clock: the processing time; by default a clock at 0.
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
        # NB: removed with this object, also if the job is rejected and not closed
        self._scratch = OwnDirectory(user_directory(), "local")
        self._engine = self._make_engine(workers, seed, count_calls)
        self._job = self._make_job(plan, results)
        self.storage: StateStorage = self._job.checkpoints.storage
        self._script_clock = ScriptClock(self.clock)
        #: the failed epoch, until it is repeated or another attempt starts
        self._failed: events.ActionFailed | None = None
        self._job.tell(events.JobStarting())
        self._go_on()

    def _make_engine(self, workers: int, seed: int | None, count_calls: bool) -> ExecutorEngine:
        configuration = self._environment._configuration
        file_systems = hadoop_options(configuration.to_dict())
        configure(file_systems)
        return ExecutorEngine(
            workers,
            seed,
            self.clock,
            self.calls if count_calls else None,
            state_settings(configuration, check_mutations=True),
            parameters=self._environment.get_config().get_global_job_parameters(),
            file_systems=file_systems,
        )

    def _make_job(self, plan: Plan, results: Mapping[int, CollectedRecords]) -> JobRunner:
        return JobRunner(
            self._engine,
            plan,
            uuid.uuid4().hex,
            self._environment._configuration,
            self._scratch.path,
            collected=results,
            clock=self.clock,
            storage=MemoryStateStorage(),
            simulated=True,
            policy=_AtOnce(),
            sleep=_no_pause,
            choice=EngineChoice("in-process", "holdfast.testing runs it"),
        )

    @property
    def plan(self) -> Plan:
        """Return the job's plan, fitted to what it goes on from."""
        return self._job.plan

    @property
    def _book(self) -> EpochBook:
        return self._job.book

    @property
    def finished(self) -> bool:
        """Return whether the last epoch was run: nothing is left to be read, told or committed."""
        return self._job.over.is_set()

    @property
    def metrics(self) -> dict[tuple[str, int], dict[str, Any]]:
        """Return the functions' metrics as of the last epoch, by operator uid and subtask."""
        return dict(self._book.metrics)

    @property
    def checkpoints(self) -> tuple[CheckpointRecord, ...]:
        """Return the checkpoints and savepoints so far, oldest first."""
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
            rerun: subtasks that run twice, as when Spark considers a task lost.
                The output of the first run is not used; its state file is left behind.
            kill: subtasks whose first run dies as soon as its first block has left it.

        Raises:
            UserFunctionError: when a function raises. The epoch is discarded, and all
                workers lose their subtasks; the next call repeats the epoch.
        """
        self._book.quota = self._quota if quota is None else quota
        return self._run(checkpoint, rerun, kill)

    def recover(self) -> int | None:
        """Start the next attempt, as a restart strategy does after a failure.

        Returns the checkpoint that it starts from; None: the beginning.
        """
        if isinstance(self._job.machine.action, events.AwaitTurn | events.RunEpoch):
            given_up = JobExecutionError(f"the attempt of job '{self.plan.name}' is given up")
            self._job.tell(self._failed or events.ActionFailed(given_up, self.clock()))
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

        The epoch reads records like any other, and its output is in ``records``. With
        ``quota=0`` it reads none: the savepoint then has the current state, except for timers
        that are due by the clock and fire.

        Args:
            directory: where to put it; by default where the job's configuration says.
            stop: end the job with it.
            drain: end the sources and fire all timers first.
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
            TimeoutError: when it has not finished after ``timeout`` seconds.
        """
        self.run_until(lambda: self.finished, timeout)

    def run_until(self, reached: Callable[[], bool], timeout: float = 30.0) -> None:
        """Run epochs until ``reached()`` is true; for jobs that do not end.

        Raises:
            TimeoutError: when it is not true after ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while not reached():
            if time.monotonic() > deadline:
                message = (
                    f"job '{self.plan.name}' is not done after {timeout} s and "
                    f"{len(self.reports)} epochs; a source without an end needs run_until(...)"
                )
                raise TimeoutError(message)
            report = self.epoch()
            if not report.read and self._engine.sources:
                time.sleep(0.001)  # a loop in another thread needs its turn

    def cancel(self) -> None:
        """Run the last epoch of a cancelled job: no records are read, functions are closed."""
        if not self.finished:
            if self._failed is not None:
                self.recover()
            self._job.tell(events.CancelRequested())
            self._run(False, (), ())

    def state(self, operator: str, descriptor: StateDescriptor) -> dict[Any, Any]:
        """Return a keyed state as it was saved with the last accepted epoch, by key.

        Args:
            operator: the operator's uid or name.
            descriptor: the state's descriptor. Lists and maps come as list and dict; reducing
                and aggregating states as their accumulators. Keys that are lists come as tuples.
        """
        op = self._operator(operator)
        entries: dict[Any, Any] = {}
        for head in self._book.heads[op.level]:
            backend = HeapKeyedStateBackend(range(0), 1)
            backend.use_clock(self.clock)
            for number in self.plan.levels[op.level].operators:
                other = self.plan.operators[number]
                share = KeyGroupShare(range(other.max_parallelism), other.max_parallelism)
                backend.shares.assign(other.uid, share)
            backend.restore(self.storage, head)
            backend.keyed_state(op.uid, descriptor, KeyContext())
            entries.update(
                (key, value) for key, _, value in backend.entries(op.uid, descriptor.get_name())
            )
        return entries

    def query_state(self, operator: str, state: str, key: Any, window: Any = None) -> Any:
        """Return the value of a key as of the last accepted epoch; see ``JobClient``."""
        return self._job.query_state(operator, state, key, window)

    def close(self) -> None:
        """Release everything, as a killed process does: functions are not closed."""
        self._engine.let_go()
        self._job.epochs.close()
        self._job.checkpoints.store.release()
        self._scratch.remove()

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, checkpoint: bool, rerun: Subtasks, kill: Subtasks) -> EpochReport:
        """Run an epoch; a failure is reported to the machine when the next attempt starts."""
        if self.finished:
            raise JobExecutionError(f"job '{self.plan.name}' has finished; it has no more epochs")
        self._engine.rerun, self._engine.kill = rerun, kill
        with self._script_clock.entered():
            if not isinstance(self._job.machine.action, events.RunEpoch):
                self._go_on()
                self._carry_out()
            while isinstance(self._job.machine.action, events.RunEpoch):
                event = self._carry_out(checkpoint)
        if isinstance(event, events.EpochDiscarded):
            raise event.failure
        assert self._job.epochs.ended is not None
        report = report_of(self._job.epochs.ended)
        self.reports.append(report)
        self._go_on()
        return report

    def _go_on(self) -> None:
        """Proceed to the next turn, or to the end of the job."""
        while not (self.finished or isinstance(self._job.machine.action, events.AwaitTurn)):
            self._carry_out()

    def _carry_out(self, checkpoint: bool = False) -> events.JobEvent | None:
        """Carry out the current action; a failure is reported to the machine in `recover`."""
        try:
            event = self._job.carry_out(checkpoint)
        except BaseException:
            self._engine.forget()
            raise
        self._failed = event if isinstance(event, events.ActionFailed) else None
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
            message = f"{len(found)} operators have the name or uid '{name}'; there are {known}"
            raise LookupError(message)
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
    """Run a job in this process, to its end, and return its executor for inspection.

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
    """Return the environment of a job; a stream gets a sink that collects its records."""
    if isinstance(job, StreamExecutionEnvironment):
        return job, {}
    if not isinstance(job, DataStream | KeyedStream):
        message = f"expected an environment or a stream; got {type(job).__name__}"
        raise TypeError(message)
    operation = ResultOperation(ResultKind.COLLECT)
    node = job._add("collect", "Collect", operation, parallelism=job._source().parallelism)
    return job.get_execution_environment(), {node: _Results(records)}


def _take_plan(environment: StreamExecutionEnvironment, parallelism: int) -> Plan:
    """Plan a job with a default parallelism that does not depend on the machine's cores."""
    given = environment._local_parallelism
    environment._local_parallelism = given or parallelism
    try:
        return environment._take_plan(None)
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
    """Restarts without delay: the test decides when."""

    def on_failure(self, now_ms: int) -> Restart:
        return Restart(0)


def _no_pause(seconds: float) -> None:
    """Do not wait: only the test moves time."""
