"""The keyed count, watched over HTTP by twenty clients every other ten seconds.

Both rates come from one run, phase by phase, so that what the machine does in minutes, or between
two starts, is in neither of them. The clients are one other process, which does nothing between
its turns; on a small machine, what they themselves take of it counts too.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Final

from benchmarks.measure import Mark, Measurement, emit, measured
from benchmarks.own.epochs import epoch_marks, holdfast_epochs
from benchmarks.own.jobs import environment
from benchmarks.own.throughput_job import keyed_count
from benchmarks.program import parse_task
from holdfast.common.job_client import JobClient
from holdfast.rest.client import find_job, jobs_of, servers

CLIENTS: Final = 20
PHASE: Final = 10.0


class Phases:
    """The times in which clients were there, and those in which they were not."""

    def __init__(self) -> None:
        self.watched: list[tuple[float, float]] = []
        self.alone: list[tuple[float, float]] = []

    def run(self, client: JobClient, clients: subprocess.Popen[str]) -> None:
        """Let clients come and go until the job has ended."""
        assert clients.stdin is not None
        result = client.get_job_execution_result()
        watching = False
        while not result.done():
            began = time.time()
            while time.time() < began + PHASE and not result.done():
                time.sleep(0.05)
            (self.watched if watching else self.alone).append((began, time.time()))
            watching = not watching
            clients.stdin.write("on\n" if watching else "off\n")
            clients.stdin.flush()


def rate(marks: list[Mark], phases: list[tuple[float, float]]) -> float:
    """Records per second in some phases: from the first to the last epoch that ended in each."""
    records = seconds = 0.0
    for begin, end in phases:
        inside = [mark for mark in marks if begin <= mark[0] <= end]
        if len(inside) > 1:
            records += inside[-1][1] - inside[0][1]
            seconds += inside[-1][0] - inside[0][0]
    return records / seconds if seconds else 0.0


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    env = environment(task)
    keyed_count(env, task.records)
    client = env.execute_async(task.workload)
    job = find_job(jobs_of(servers()), str(client.get_job_id()))
    command = [sys.executable, "-m", "benchmarks.own.rest_clients"]
    command += [job.client.url, job.id, str(CLIENTS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as clients:
        phases = Phases()
        phases.run(client, clients)
        clients.kill()
    marks = epoch_marks(holdfast_epochs(client))
    overall = measured(marks)
    # the first phase of each kind warms up
    alone, watched = rate(marks, phases.alone[1:]), rate(marks, phases.watched[1:])
    figures = {"alone": alone, "watched": watched}
    if alone:
        figures["watched_to_alone"] = watched / alone
    emit(
        Measurement(
            overall.records,
            overall.seconds,
            overall.first_output,
            overall.rate,
            overall.warm_rate,
            figures,
        )
    )


if __name__ == "__main__":
    main()
