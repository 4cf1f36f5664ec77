"""The verifying job, whose driver's JVM is killed at a moment that the command line names.

``python -m tests.spark.jvm_death FOLDER NUMBERS MOMENT INTERVAL``, where the interval is that
of checkpoints, in milliseconds, and a moment is one of

    record:N     the N-th record is processed, in a worker
    step:S:N     step S of an epoch begins in the driver, for the N-th time in this process
    begin        the first attempt begins
    delay:N      the job has failed at the N-th record and waits for an hour to start again
    strange:N    as record:N, of a JVM that this process has not started, as under spark-submit
    never

Started again in the same folder, it goes on. What is left of a job that has failed is printed, as
a line of JSON; then the failure is raised.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.common import JobStatus, RestartStrategies
from holdfast.driver.epochs.running import EpochRunner
from holdfast.driver.recording import Recorder
from holdfast.errors import SparkLostError
from holdfast.runtime.worker.injected_faults import Faults
from holdfast.spark.session import get_session
from tests.recovery import verifying


class DeadlyProgress(verifying.Progress):
    """Kills a process when so many records were processed, or fails once."""

    def __init__(self, path: Path, victim: int, at: int, fails: bool = False) -> None:
        super().__init__(path)
        self._victim, self._at, self._fails = victim, at, fails

    def map(self, value: int) -> int:
        # NB: not equal: two subtasks count, and one may pass the number while the other looks
        if verifying.progress(self._path.parent) >= self._at:
            if self._fails:
                msg = "a failure before the delay"
                raise RuntimeError(msg)
            os.kill(self._victim, signal.SIGKILL)
        return super().map(value)


def arrange(moment: str, victim: int) -> None:
    """Kill a process when the moment comes."""
    kind, *numbers = moment.split(":")
    at = [int(number) for number in numbers]

    def kill() -> None:
        os.kill(victim, signal.SIGKILL)

    match kind:
        case "record" | "strange":
            verifying.Progress = partial(DeadlyProgress, victim=victim, at=at[0])
        case "step":
            times = itertools.count(1)
            _before(Faults, "reach", lambda step, *_: step == at[0] and next(times) == at[1], kill)
        case "begin":
            _before(EpochRunner, "begin_attempt", lambda *_: True, kill)
        case "delay":
            verifying.Progress = partial(DeadlyProgress, victim=victim, at=at[0], fails=True)
            _before(Recorder, "status", lambda status: status is JobStatus.RESTARTING, kill)


def _before(cls: type, name: str, when: Any, do: Any) -> None:
    original = getattr(cls, name)

    def method(self: Any, *given: Any) -> Any:
        if when(*given):
            do()
        return original(self, *given)

    setattr(cls, name, method)


def left_over(folder: Path, client: Any) -> dict[str, Any]:
    """What a failed job says, and what it leaves behind."""
    with (folder / "checkpoints" / "verifying" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    savepoint = client.trigger_savepoint(str(folder / "savepoints"))
    return {
        "status": client.get_job_status().result().name,
        "attempts": [attempt.failure for attempt in client.get_attempts()],
        "savepoint": str(savepoint.exception()),
        "cancelled": client.cancel().result(10),
        "threads": _threads(),
    }


def _threads() -> list[str]:
    """The threads of jobs that do not end; the one that released us may need a moment."""
    found = [t for t in threading.enumerate() if t.name.startswith("holdfast")]
    for thread in found:
        thread.join(30)
    return [thread.name for thread in found if thread.is_alive()]


def main() -> None:
    """Run the job to its end, or to the death of the JVM."""
    folder, numbers, moment = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    session = get_session("jvm-death", {"spark.master": "local[2,4]"})
    gateway = session.sparkContext._gateway
    assert gateway is not None
    process = gateway.proc
    arrange(moment, process.pid)
    if moment.startswith("strange"):
        gateway.proc = None
    job = verifying.Settings(
        folder,
        numbers=numbers,
        epoch=40,
        interval_ms=int(sys.argv[4]),
        spark=(("holdfast.directory", str(folder / "run")),),
    )
    env = verifying.make_job(job)
    if moment.startswith("delay"):
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(10, 3_600_000))
    client = env.execute_async("verifying")
    try:
        client.get_job_execution_result().result()
    except SparkLostError:
        print(json.dumps(left_over(folder, client)))
        raise


if __name__ == "__main__":
    main()
