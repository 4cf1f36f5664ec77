"""What a Holdfast job says about its epochs.

This is the one place where the benchmarks look behind the public API; everything else in this
package is what a user would write.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypedDict

from benchmarks.measure import Mark
from holdfast.common.job_client import JobClient

__all__ = ["Epoch", "epoch_marks", "holdfast_epochs", "periods", "run_epochs"]


class Epoch(TypedDict):
    """One epoch that has ended."""

    #: Spark's batch id.
    epoch: int
    #: How many records the sources read in it.
    records: int
    #: How long it took, without Spark's logs of the micro-batch before and after it.
    seconds: float
    #: When it began, as `time.time` counts.
    started: float


def holdfast_epochs(job_client: JobClient) -> list[Epoch]:
    """Return all epochs of a job that have ended so far, in order."""
    client: Any = job_client
    return [
        Epoch(epoch=each.epoch, records=each.read, seconds=each.seconds, started=each.started)
        for each in client.get_epochs()
    ]


def periods(epochs: list[Epoch]) -> list[float]:
    """Return the times from the beginning of an epoch to that of the next: all that it costs."""
    return [after["started"] - each["started"] for each, after in pairwise(epochs)]


def epoch_marks(epochs: list[Epoch], per_record: int = 1) -> list[Mark]:
    """Return a mark for the end of each epoch that read something.

    Args:
        epochs: The epochs of a job.
        per_record: How many records of the workload stand in one that the source reads.
    """
    total = 0
    marks = []
    for epoch in epochs:
        if epoch["records"]:
            total += epoch["records"] * per_record
            marks.append((epoch["started"] + epoch["seconds"], float(total)))
    return marks


def run_epochs(client: JobClient, count: int, seen: Callable[[int], None]) -> list[Epoch]:
    """Let an endless job run for some epochs, cancel it, and return them.

    Args:
        client: The job, started.
        count: How many epochs to wait for.
        seen: Is told, several times a second, how many have ended.
    """
    while len(epochs := holdfast_epochs(client)) < count:
        status = client.get_job_status().result()
        if status.is_globally_terminal_state():
            client.get_job_execution_result().result()
            raise SystemExit(f"the job ended by itself ({status}) after {len(epochs)} epochs")
        seen(len(epochs))
        time.sleep(0.1)
    seen(len(epochs))
    client.cancel().result()
    return epochs[:count]
