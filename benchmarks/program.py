"""What every program is told on its command line."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

__all__ = ["PARALLELISM", "Task", "parse_task"]

#: Two subtasks, two tasks, two processes: whatever the system calls it.
PARALLELISM = 2


@dataclass(frozen=True)
class Task:
    """One workload on one system."""

    workload: str
    #: How many records to run.
    records: int
    #: Seconds between two snapshots of the state. Every system keeps its state recoverable; PySpark
    #: commits it with each micro-batch and has no such interval.
    checkpoint: int
    #: A directory of its own, empty, removed afterwards: for state, checkpoints and marks.
    directory: str
    #: What kind of the system to run, where it has several; what it means is up to the program.
    variant: str


def parse_task(arguments: list[str] | None = None) -> Task:
    """Read a task from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workload")
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--checkpoint", type=int, default=1)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--variant", default="")
    return Task(**vars(parser.parse_args(arguments)))
