"""How long a job is away when a slot is killed, and what it does meanwhile.

The task's number is that of the keys in the state. When some checkpoints have them all, the process
of a slot is killed (SIGKILL). The restart delay is 0. The time ends with the first result at a sink
of the next attempt. Its parts:

    ended           from the kill to the beginning of the next attempt: the driver has noticed, and
                    stopped what was left of the old one
    slots           from there to the first epoch: the slots of the next attempt are there
    load            the longest time that a subtask needed to load its state
    first_result    from there to the first result at a sink

The history of the job does not divide the first part, since a failure is reported when the
attempt has ended.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.engines.jobs import Stoppable, await_condition, checkpointed, stop, within
from benchmarks.engines.percentiles import check, new_file
from benchmarks.measure import Measurement, emit
from benchmarks.own.jobs import CountAndTotal
from benchmarks.program import Task, parse_task
from benchmarks.records import bootstrapped
from holdfast.common import RestartStrategies
from holdfast.common.job_client import JobClient
from holdfast.datastream import RuntimeContext
from holdfast.datastream.functions import ListCheckpointed, SinkFunction

CHECKPOINTS_MS = 500
#: Checkpoints with all keys before the kill: state is then loaded from several files.
_CHECKPOINTS = 3
#: Pause between two records when every key has had one, in seconds.
_PAUSE = 0.001
#: How long the job goes on after its first result, in seconds.
_AFTERWARDS = 1.0
_SUFFIX = "results"
_EMITTED = "emitted"


class Resumable(Stoppable, ListCheckpointed):
    """A record of each key at once, and then a thousand a second; goes on where it was."""

    def __init__(self, keys: int, directory: str) -> None:
        super().__init__(directory)
        self._keys = keys
        self._said = f"{directory}/{_EMITTED}"
        self._index = 0

    def run(self, ctx: Any) -> None:
        """Hand out records until told to stop."""
        make = bootstrapped(self._keys)
        while self._index < self._keys or not self.stopped():
            with ctx.get_checkpoint_lock():
                ctx.collect(make(self._index))
                self._index += 1
            if self._index > self._keys:
                time.sleep(_PAUSE)
        Path(self._said).write_text(str(self._index), "ascii")

    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[Any]:
        """Where it is."""
        return [self._index]

    def restore_state(self, state: list[Any]) -> None:
        """Go on there."""
        self._index = state[0]


class Results(SinkFunction):
    """Writes each result to a file at once, with the time: nothing is lost with its process."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def open(self, context: RuntimeContext) -> None:
        """Begin a file; its name has the process in it, its first line the time."""
        self._file = new_file(self._directory, _SUFFIX).open("w", buffering=1, encoding="ascii")
        self._file.write(f"{time.time()}\n")

    def invoke(self, value: tuple[str, int, float], context: Any) -> None:
        """Write one."""
        self._file.write(f"{time.time()} {value[0]} {value[1]}\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Attempt(NamedTuple):
    """What one sink saw in one attempt."""

    process: int
    opened: float
    results: list[tuple[float, str, int]]


def read_results(directory: str) -> Iterator[Attempt]:
    """Return the notes of all sinks."""
    for path in Path(directory).glob(f"*.{_SUFFIX}"):
        # NB: a process that was killed may have left half a line
        first, *lines = path.read_text("ascii").rpartition("\n")[0].split("\n")
        if first:
            split = (line.split() for line in lines)
            results = [(float(at), user, int(count)) for at, user, count in split]
            yield Attempt(int(path.name.split("-")[0]), float(first), results)


def first_after(directory: str, killed: float) -> float | None:
    """Return when a sink of a later attempt got its first result; None if none has."""
    later = [each for each in read_results(directory) if each.opened > killed and each.results]
    return min((each.results[0][0] for each in later), default=None)


def counts(directory: str) -> int:
    """Return the sum of the largest counts of all keys: what the state has counted."""
    largest: dict[str, int] = {}
    for attempt in read_results(directory):
        for _, user, count in attempt.results:
            largest[user] = max(count, largest.get(user, 0))
    return sum(largest.values())


def has_all(client: JobClient, task: Task) -> bool:
    """Whether some checkpoints are complete that began after every key had its result."""
    results = [each.results for each in read_results(task.directory)]
    if sum(map(len, results)) < task.records:
        return False
    bootstrapped_by = sorted(at for each in results for at, _, _ in each)[task.records - 1]
    complete = [
        each
        for each in client.get_checkpoints()
        if each.end_timestamp is not None and not each.failure
    ]
    return sum(each.trigger_timestamp / 1000 > bootstrapped_by for each in complete) >= _CHECKPOINTS


def parts(client: JobClient, killed: float, first: float) -> dict[str, float]:
    """Return how long the restart took, and its parts, in seconds."""
    _, after = client.get_attempts()
    epoch = next(each for each in client.get_epochs() if each.started >= after.started)
    load = epoch.steps.get("load", 0.0)
    return {
        "restart_seconds": first - killed,
        "ended": after.started - killed,
        "slots": epoch.started - after.started,
        "load": load,
        "first_result": first - epoch.started - load,
    }


def run(task: Task) -> dict[str, float]:
    """Run the job, kill a slot, and return the figures."""
    directory = task.directory
    env = checkpointed(task, CHECKPOINTS_MS)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 0))
    source = env.add_source(Resumable(task.records, directory), "records")
    source.key_by(lambda r: r[0]).process(CountAndTotal()).add_sink(Results(directory))
    client = env.execute_async("restart")
    await_condition(client, lambda: has_all(client, task), "a checkpoint had all keys")
    victim = next(read_results(directory)).process
    killed = time.time()
    os.kill(victim, signal.SIGKILL)
    await_condition(client, lambda: first_after(directory, killed), "a result came", 60)
    first = first_after(directory, killed)
    assert first is not None
    time.sleep(_AFTERWARDS)
    stop(directory)
    client.get_job_execution_result().result()
    emitted = int((Path(directory) / _EMITTED).read_text("ascii"))
    check("the sum of all counts", counts(directory), emitted)
    # NB: at the end, since the first result comes before the end of the first epoch
    return parts(client, killed, first)


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    emit(Measurement(records=task.records, figures=run(within(task, "run"))))


if __name__ == "__main__":
    main()
