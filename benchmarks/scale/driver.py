"""The driver of a job whose slots are elsewhere, and what its steps cost it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.processes import WORKERS, usage_of
from benchmarks.scale.crowd import PATIENCE, Crowd
from holdfast.checkpoint.saved_image import SavedImage
from holdfast.common import Configuration
from holdfast.datastream import RuntimeContext, StreamExecutionEnvironment
from holdfast.datastream.functions import (
    KeyedProcessFunction,
    ParallelSourceFunction,
    SourceContext,
)
from holdfast.datastream.state import ValueStateDescriptor
from holdfast.datastream.state_backend import state_settings
from holdfast.driver.engine import Engine, PlannedJob
from holdfast.driver.job.runner import JobRunner
from holdfast.driver.job_events import Abilities, AwaitTurn, JobStarting, RunEpoch, StartAttempt
from holdfast.driver.outcome import EpochOutcome
from holdfast.driver.slots.attempt_slots import Slots
from holdfast.errors import JobExecutionError
from holdfast.plan.model import Plan
from holdfast.runtime.network.peers import Line, Listener, Message, listen
from holdfast.runtime.wire.protocol import EpochTask, StoredState
from holdfast.runtime.worker.job_code import make_job_code, new_key, pack
from holdfast.runtime.worker.memory import resident_bytes

__all__ = ["Cost", "Figures", "measure", "plan_of"]

HOST: Final = "127.0.0.1"
HEARTBEAT: Final = 30.0
#: processes of slots
_PROCESSES: Final = 2
_MOST_PARALLELISM: Final = 4096
_MEGABYTE: Final = 1 << 20


@dataclass(frozen=True)
class Cost:
    """What something took.

    Attributes:
        ms: from its beginning to its end, with what the slots do meanwhile.
        cpu_ms: processor time of the driver.
        slots_cpu_ms: processor time of all slots.
        sent, received: bytes that the driver sent and received.
    """

    ms: float
    cpu_ms: float
    slots_cpu_ms: float
    sent: float
    received: float


@dataclass(frozen=True)
class Figures:
    """What the driver takes for some slots.

    Attributes:
        gather: until all slots have called and are ready.
        round: an epoch without a checkpoint; the median of some.
        checkpoint: an epoch with one, until its metadata is written; the median of some.
        stop: to let all slots leave.
        restart: to find the checkpoint, let slots come, and tell them where their state is.
        memory_mb: resident memory of the driver after the checkpoints.
        slot_memory_mb, slot_threads, slot_files: of the processes of the slots, by slot.
    """

    slots: int
    gather: Cost
    round: Cost
    checkpoint: Cost
    stop: Cost
    restart: Cost
    memory_mb: float
    slot_memory_mb: float
    slot_threads: float
    slot_files: float


class Silence(ParallelSourceFunction):
    """A source that has nothing to give."""

    def __init__(self) -> None:
        self._over = False

    def run(self, ctx: SourceContext) -> None:
        """Wait for the end."""
        while not self._over:
            time.sleep(0.2)

    def cancel(self) -> None:
        """End it."""
        self._over = True


class _Count(KeyedProcessFunction):
    """What a job counts; nobody calls it here."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value


class _Counted:
    """A line whose bytes are counted."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.sent = self.received = 0

    def send(self, head: bytes = b"", data: bytes | memoryview = b"") -> None:
        self.sent += len(head) + len(data) + _SIZES
        self._line.send(head, data)

    def receive(self) -> Message:
        message = self._line.receive()
        self.received += len(message.head) + len(message.data) + _SIZES
        return message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._line, name)


#: bytes before the head of a message
_SIZES: Final = 12


class CrowdEngine(Engine):
    """Runs a plan on slots in other processes, which it starts."""

    abilities = Abilities(reruns=False, resizes=True, keeps_state=True)

    def __init__(
        self, stateful: dict[int, tuple[str, ...]], configuration: Configuration, whole: bool
    ) -> None:
        """Nothing runs yet; ``stateful``: the operators with state, by level."""
        self._configuration = configuration
        self._whole = whole
        self._code = b""
        self._lines: list[_Counted] = []
        self.slots: Slots | None = None
        self._stateful = stateful
        self._key = new_key()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._spare: list[subprocess.Popen[bytes]] = []

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes that the driver has sent and received so far."""
        lines = list(self._lines)
        return sum(line.sent for line in lines), sum(line.received for line in lines)

    def usage(self, folder: str) -> int:
        """Count what the processes of the slots have: ``task`` for threads, ``fd`` for files."""
        return sum(
            len(list(Path("/proc", str(process.pid), folder).iterdir()))
            for process in self._processes
        )

    def make_ready(self) -> None:
        """Start the processes of the next attempt's slots, for their start is not measured."""
        command = [sys.executable, "-m", "benchmarks.scale.crowd"]
        self._spare = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(_PROCESSES)
        ]
        for process in self._spare:
            assert process.stdout is not None
            with process.stdout as said:
                said.readline()

    def prepare(self, job: PlannedJob) -> None:
        """Take note of the job."""
        self.job = job
        if self._whole:
            code = make_job_code(
                job.name,
                job.plan,
                "",
                state_directory=job.state_directory,
                faults=job.faults,
                parameters={},
                state=state_settings(self._configuration),
                staging_directory=job.staging_directory,
                key=self._key,
                functions_stay=True,
            )
            self._code = pack(code)

    def start(self, attempt: int, start: SavedImage | None) -> None:
        """Tell the processes which slots they are, and wait for these."""
        plan = self.job.plan
        width = plan.widest_level.parallelism
        subtasks = sum(level.parallelism for level in plan.levels)
        self.slots = Slots(self.job.name, attempt, subtasks, HEARTBEAT, self._listen)
        levels = tuple(self._stateful[level.index] for level in plan.levels)
        self._processes, self._spare = self._spare, []
        name, states = self.job.name, self.job.state_directory
        for first, process in enumerate(self._processes):
            numbers = range(first, width, _PROCESSES)
            crowd = Crowd(
                self.slots.address, name, attempt, numbers, levels, states, HEARTBEAT, self._code
            )
            assert process.stdin is not None
            with process.stdin as out:
                pickle.dump(crowd, out)
        self.slots.gather(width, PATIENCE, self._check_processes)

    def _listen(self, serve: Callable[[Line], None]) -> Listener:
        def counted(line: Line) -> None:
            own = _Counted(line)
            self._lines.append(own)
            serve(own)  # type: ignore[arg-type]

        return listen(counted, HOST, self._key.hex())

    def _check_processes(self) -> None:
        for process in self._processes:
            if process.poll():
                raise JobExecutionError(f"slots have ended with code {process.returncode}")

    @property
    def _running(self) -> Slots:
        assert self.slots is not None
        return self.slots

    def await_turn(self, due_ms: int | None = None) -> None:
        """Begin the next round at once."""
        self._running.wait(0.0, self.job.deliver, self._check_processes)

    def execute(self, tasks: Sequence[EpochTask]) -> EpochOutcome:
        """Run a round."""
        return self._running.round(tasks, self.job.deliver, self._check_processes)

    def stored(self, patience_ms: int = 0) -> list[StoredState]:
        """Return the states that were stored."""
        if self.slots is None:
            return []
        return self.slots.stored(patience_ms / 1000, self.job.deliver, self._check_processes)

    def stop(self) -> None:
        """Let the slots leave."""
        slots, self.slots = self.slots, None
        if slots is not None:
            slots.stop(False, self._gone)
        self._processes.clear()

    def _gone(self, seconds: float) -> bool:
        deadline = time.monotonic() + PATIENCE
        for process in self._processes:
            process.wait(max(0.0, deadline - time.monotonic()))
        return True

    def close(self) -> None:
        """End what is left of the slots."""
        for process in (*self._processes, *self._spare):
            process.kill()
            process.wait()


def plan_of(slots: int, directory: Path) -> tuple[Plan, Configuration]:
    """Return a job of three levels: a source, and two keyed operators."""
    settings = {
        "execution.checkpointing.interval": "1 h",
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "0 ms",
        "restart-strategy.fixed-delay.attempts": "1",
    }
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(slots).set_max_parallelism(_MOST_PARALLELISM)
    stream: Any = env.add_source(Silence())
    for uid in ("first", "second"):
        stream = stream.key_by(lambda value: value).process(_Count()).uid(uid)
    stream.print()
    return env._take_plan("resident"), env._configuration


class Measuring:
    """A job, step by step."""

    def __init__(self, slots: int, directory: Path, whole: bool = False) -> None:
        """Start nothing yet."""
        plan, configuration = plan_of(slots, directory)
        stateful: dict[int, tuple[str, ...]] = {level.index: () for level in plan.levels}
        for operator in plan.operators.values():
            if operator.uid in ("first", "second") or operator.node.is_source:
                stateful[operator.level] += (operator.uid,)
        self.engine = CrowdEngine(stateful, configuration, whole)
        name = f"scale-{uuid.uuid4().hex}"
        self.runner = JobRunner(self.engine, plan, name, configuration, directory / "scratch")
        self.runner.tell(JobStarting())

    @contextmanager
    def cost(self, into: list[Cost]) -> Iterator[None]:
        """Measure what is done meanwhile."""
        slots = usage_of(os.getpid())[WORKERS].cpu
        before = (time.perf_counter(), time.process_time(), *self.engine.traffic)
        yield
        after = (time.perf_counter(), time.process_time(), *self.engine.traffic)
        slots = usage_of(os.getpid())[WORKERS].cpu - slots
        wall, cpu, sent, received = (new - old for new, old in zip(after, before, strict=True))
        into.append(Cost(1000 * wall, 1000 * cpu, 1000 * slots, sent, received))

    def step_to(self, kind: type) -> None:
        """Go on until an action of that kind is next."""
        while not isinstance(self.runner.machine.action, kind):
            self.step()

    def step(self) -> None:
        """Carry out an action."""
        self.runner.step()
        if self.runner.error is not None:
            raise self.runner.error

    def checkpoint(self) -> None:
        """Take a checkpoint, and wait for it."""
        asked = self.runner.checkpoint()
        while not asked.done():
            self.step()
        asked.result()

    def fail(self) -> None:
        """Let the attempt fail; returns when it has stopped."""
        assert self.engine.slots is not None
        self.engine.slots.fail(JobExecutionError("a slot is lost, on purpose"))
        self.step_to(StartAttempt)


def measure(slots: int, rounds: int, directory: Path, whole: bool = False) -> Figures:
    """Run a job on so many slots; returns the cost of its steps."""
    costs: dict[str, list[Cost]] = {field.name: [] for field in fields(Figures)}
    (directory / "scratch").mkdir(parents=True)
    job = Measuring(slots, directory, whole)
    try:
        job.engine.make_ready()
        with job.cost(costs["gather"]):
            job.step_to(AwaitTurn)
        for _ in range(rounds):
            job.step_to(RunEpoch)
            with job.cost(costs["round"]):
                job.step()
        for _ in range(rounds):
            with job.cost(costs["checkpoint"]):
                job.checkpoint()
        memory = resident_bytes() / _MEGABYTE
        crowd = usage_of(os.getpid())[WORKERS].mb
        threads, files = job.engine.usage("task"), job.engine.usage("fd")
        with job.cost(costs["stop"]):
            job.fail()
        job.engine.make_ready()
        with job.cost(costs["restart"]):
            job.step_to(RunEpoch)
            job.step()
    finally:
        job.runner.cancel()
        job.runner.give_up(JobExecutionError("enough was measured"))
    # the first of its kind warms up
    medians = [_median(found[1:] or found) for found in costs.values() if found]
    return Figures(slots, *medians, memory, crowd / slots, threads / slots, files / slots)


def _median(costs: Sequence[Cost]) -> Cost:
    return Cost(*(median(getattr(cost, f.name) for cost in costs) for f in fields(Cost)))
