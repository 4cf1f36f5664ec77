"""A job in a process that runs out of file descriptors, in a manner that the command line names.

    cancel    while the job runs, and for good; it is cancelled then
    start     when an attempt starts, and for good; another job runs afterwards
    again     in an epoch, until Py4J has stopped accepting calls; the next attempt needs it again,
              on the engine of epochs

What came of the job is printed, as a line of JSON.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.common import Configuration, RestartStrategies
from holdfast.datastream import MapFunction, StreamExecutionEnvironment
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.errors import JobExecutionError
from holdfast.spark.epochs.attempt import Attempt
from holdfast.spark.resident.engine import ResidentEngine
from holdfast.spark.session import get_session

#: in seconds; whoever waits longer hangs
LONGEST = 400
RECORDS = 400


class Exhausted:
    """All descriptors of this process, until they are let go of."""

    def __init__(self) -> None:
        self._limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(map(int, os.listdir("/dev/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 20, self._limits[1]))
        self._taken: list[int] = []
        try:
            while True:
                self._taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass

    def end(self) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, self._limits)
        for descriptor in self._taken:
            os.close(descriptor)


class Gate(MapFunction):
    """Waits at a record until it may go on, and then fails, once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def map(self, value: int) -> int:
        if value == RECORDS // 2 and not (self._folder / "failed").exists():
            (self._folder / "waits").touch()
            wait_until((self._folder / "go on").exists)
            (self._folder / "failed").touch()
            msg = "a failure, for another attempt"
            raise RuntimeError(msg)
        return value


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def make_job(folder: Path, records: int) -> StreamExecutionEnvironment:
    settings = {
        "holdfast.epoch.max-records": "20",
        "holdfast.directory": str(folder / "run"),
        "execution.checkpointing.dir": str(folder / "checkpoints"),
    }
    env = StreamExecutionEnvironment(Configuration(settings))
    env.set_parallelism(1).set_buffer_timeout(0).enable_checkpointing(50)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
    env.from_source(NumberSequenceSource(0, records - 1)).map(Gate(folder)).print()
    return env


def told(client: Any) -> dict[str, Any]:
    error = None
    try:
        client.get_job_execution_result().result(LONGEST)
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
    return {"status": client.get_job_status().result().name, "error": error}


def cancel(folder: Path) -> dict[str, Any]:
    (folder / "failed").touch()
    client = make_job(folder, 10**9).execute_async()
    wait_until(lambda: len(client.get_epochs()) > 2)
    exhausted = Exhausted()
    try:
        client.cancel().result(LONGEST)
    finally:
        exhausted.end()
    return told(client)


def start(folder: Path) -> dict[str, Any]:
    make_job(folder / "first", 1).execute()  # all modules are loaded then
    taken: list[Exhausted] = []
    for starting in (Attempt, ResidentEngine):
        exhaust(starting, taken)
    try:
        came = told(make_job(folder, 10).execute_async())
    except JobExecutionError as error:  # a job that never ran
        came = {"status": "FAILED", "error": str(error)}
    taken[0].end()
    make_job(folder, 10).execute()
    return came


def exhaust(starting: Any, taken: list[Exhausted]) -> None:
    """Let there be no descriptors when an attempt starts."""
    original = starting.start

    def exhausting(self: Any, *given: Any) -> None:
        if not taken:
            taken.append(Exhausted())
        original(self, *given)

    starting.start = exhausting


def again(folder: Path) -> dict[str, Any]:
    gateway: Any = get_session("descriptors").sparkContext._gateway
    client = make_job(folder, RECORDS).execute_async()
    wait_until((folder / "waits").exists)
    server = gateway._callback_server
    accepting = server.thread
    caller = subprocess.Popen(
        [sys.executable, "-c", _CALL, str(server.get_listening_port())],
        stdin=subprocess.PIPE,
    )
    assert caller.stdin is not None
    exhausted = Exhausted()
    caller.stdin.write(b"\n")
    caller.stdin.flush()
    wait_until(lambda: not accepting.is_alive())
    exhausted.end()
    caller.communicate()
    (folder / "go on").touch()
    return told(client) | {"attempts": len(client.get_attempts())}


#: connects when it is told to, and hangs up when it is told to
_CALL = """
import socket, sys
sys.stdin.readline()
line = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
sys.stdin.readline()
"""


def main() -> None:
    """Run out of descriptors, and tell what came of it."""
    folder = Path(sys.argv[2])
    get_session("descriptors", {"spark.master": "local[2,4]"})
    came = {"cancel": cancel, "start": start, "again": again}[sys.argv[1]](folder)
    print(json.dumps(came))


if __name__ == "__main__":
    main()
