"""The keyed count, watched over HTTP by twenty clients every other five seconds.

As variant ``half-open``, by a stranger that tries to hold 2,000 connections open, half a request
sent on each. The user of the job asks for it in every phase, and has to be answered.

Each of these phases is compared with those before and after it, in which nobody watched, so that
what the machine does in minutes, or between two starts, is not in the figure. How far the phases
differ among themselves says how much the figure is worth: its standard error is told with it. The
clients are one other process, which does nothing between its turns; on a small machine, what they
themselves take of it counts too.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from dataclasses import replace
from statistics import fmean, stdev
from typing import Final

from benchmarks.measure import Mark, emit, measured
from benchmarks.own.epochs import epoch_marks, holdfast_epochs
from benchmarks.own.jobs import environment
from benchmarks.own.throughput_job import keyed_count
from benchmarks.program import parse_task
from holdfast.common.job_client import JobClient
from holdfast.rest.client import JobHandle, find_job, jobs_of, servers

CLIENTS: Final = 20
#: connections of the stranger; tools for such attacks try again after 10 to 15 seconds
HALF_OPEN: Final = 2000
AGAIN: Final = 5
PHASE: Final = 5.0
#: of each source subtask: several epochs end within a phase
LARGEST_EPOCH: Final = 200_000

#: when it began and ended; the clients are there in every second one
Phase = tuple[float, float]


def clients_of(variant: str, job: JobHandle) -> list[str]:
    """Return the module of the clients and its arguments."""
    if variant == "half-open":
        return ["benchmarks.own.half_open", job.client.url, str(HALF_OPEN), str(AGAIN)]
    return ["benchmarks.own.rest_clients", job.client.url, str(CLIENTS), job.id]


def alternate(client: JobClient, job: JobHandle, clients: subprocess.Popen[str]) -> list[Phase]:
    """Let clients come and go until the job has ended."""
    assert clients.stdin is not None
    result = client.get_job_execution_result()
    phases: list[Phase] = []
    while not result.done():
        began = time.time()
        while time.time() < began + PHASE and not result.done():
            time.sleep(0.05)
        if not result.done():
            job.ask()
        phases.append((began, time.time()))
        clients.stdin.write("on\n" if len(phases) % 2 else "off\n")
        clients.stdin.flush()
    return phases


def rate(marks: list[Mark], phase: Phase) -> float | None:
    """Records per second, from the first to the last epoch that ended in a phase."""
    inside = [mark for mark in marks if phase[0] <= mark[0] <= phase[1]]
    if len(inside) < 2:
        return None
    return (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])


def compared(marks: list[Mark], phases: list[Phase]) -> dict[str, float]:
    """The figures: both rates, the mean of the ratios, and its standard error.

    The first phase of each kind warms up. A ratio is that of a watched phase to the mean of the
    one before and the one after it; where one of the three has too few epochs, there is none.
    """
    rates = [rate(marks, phase) for phase in phases[2:]]
    pairs = [
        (watched, (before + after) / 2)
        for before, watched, after in zip(rates[::2], rates[1::2], rates[2::2], strict=False)
        if before and watched and after
    ]
    if not pairs:
        return {}
    ratios = [watched / alone for watched, alone in pairs]
    figures = {
        "alone": fmean(alone for _, alone in pairs),
        "watched": fmean(watched for watched, _ in pairs),
        "watched_to_alone": fmean(ratios),
    }
    if len(ratios) > 1:
        figures["error"] = stdev(ratios) / math.sqrt(len(ratios))
    return figures


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    env = environment(task, {"holdfast.epoch.max-records": str(LARGEST_EPOCH)})
    keyed_count(env, task.records)
    client = env.execute_async(task.workload)
    job = find_job(jobs_of(servers()), str(client.get_job_id()))
    command = [sys.executable, "-m", *clients_of(task.variant, job)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as clients:
        phases = alternate(client, job, clients)
        clients.kill()
    marks = epoch_marks(holdfast_epochs(client))
    overall = measured(marks)
    emit(replace(overall, figures=compared(marks, phases)))


if __name__ == "__main__":
    main()
