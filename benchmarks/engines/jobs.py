"""What the programs share: an environment with checkpoints, and sources that can be stopped."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.own.jobs import environment
from benchmarks.program import Task
from holdfast.common import Types
from holdfast.common.job_client import JobClient
from holdfast.common.options.engine import ENGINE_VARIABLE
from holdfast.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from holdfast.datastream.functions import SourceFunction
from holdfast.datastream.state import ValueStateDescriptor

__all__ = [
    "CountMade",
    "Stoppable",
    "await_condition",
    "checkpointed",
    "is_resident",
    "stop",
    "within",
]

_STOP = "stop"


def is_resident() -> bool:
    """Whether the program runs on the resident engine."""
    return os.environ.get(ENGINE_VARIABLE) == "resident"


def within(task: Task, name: str) -> Task:
    """Return the task with a directory of its own inside the task's."""
    directory = Path(task.directory) / name
    directory.mkdir(parents=True, exist_ok=True)
    return replace(task, directory=str(directory))


def checkpointed(task: Task, interval_ms: int) -> StreamExecutionEnvironment:
    """Return an environment whose jobs take checkpoints, into the task's directory."""
    env = environment(task)
    env.enable_checkpointing(interval_ms)
    env.get_checkpoint_config().set_checkpoint_storage_dir(f"{task.directory}/checkpoints")
    return env


class CountMade(KeyedProcessFunction):
    """Of records of a key and the time they were made: this time, and the count of the key."""

    def open(self, context: RuntimeContext) -> None:
        """Get hold of the state."""
        self._count = context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: tuple[int, float], ctx: Any) -> Iterator[tuple[float, int]]:
        """Count a record."""
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield value[1], count


class Stoppable(SourceFunction):
    """A source that ends, regularly, when the driver says so by a file.

    So all of its records go through the job, and can be counted.
    """

    def __init__(self, directory: str) -> None:
        self._stop = f"{directory}/{_STOP}"
        self._running = True

    def stopped(self) -> bool:
        """Whether to end."""
        return not self._running or os.path.exists(self._stop)

    def cancel(self) -> None:
        """End, since the job does."""
        self._running = False


def stop(directory: str) -> None:
    """Let the `Stoppable` sources of a job end."""
    (Path(directory) / _STOP).touch()


def await_condition(client: JobClient, reached: Any, what: str, patience: float = 300.0) -> None:
    """Wait for something that a running job brings about.

    Raises:
        SystemExit: when the job has ended, or it takes too long.
    """
    end = time.monotonic() + patience
    while not reached():
        status = client.get_job_status().result()
        if status.is_globally_terminal_state():
            client.get_job_execution_result().result()
            raise SystemExit(f"Error: the job ended ({status.name}) before {what}")
        if time.monotonic() > end:
            raise SystemExit(f"Error: after {patience:.0f} s still not: {what}")
        time.sleep(0.02)
