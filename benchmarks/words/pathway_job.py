"""Pathway's word count from the same files, on two workers: threads of one process.

Variant ``persistence``: with persistence to a directory, a snapshot as often as every other system
takes one. It is the kind that needs no license key: the input is kept, and read again.

Pathway takes all files that it finds at first as one batch, which is its fastest way: files that
come later cost it nearly twice the processor time per word. So all files are there at first, and
the time is that from ``pw.run`` to the counts of all words.
"""

from __future__ import annotations

import os
import time
from typing import Any

from benchmarks.measure import Mark, emit
from benchmarks.program import PARALLELISM, Task, parse_task
from benchmarks.words.data import Totals, checked, make

# NB: read when Pathway is imported
os.environ["PATHWAY_THREADS"] = str(PARALLELISM)

import pathway as pw  # type: ignore[import-not-found]


class Progress:
    """Waits for the totals of all words, and ends the program with them."""

    def __init__(self, expected: Totals) -> None:
        self._expected = expected
        self._marks: list[Mark] = []

    def begin(self) -> None:
        """Count the time from now on."""
        self._marks.append((time.time(), 0.0))

    def on_change(self, key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        """Take note of new totals."""
        if is_addition:
            self._note(Totals(row["words"], row["squares"]))

    def _note(self, found: Totals) -> None:
        self._marks.append((time.time(), float(found.words)))
        if found.words >= self._expected.words:
            emit(checked(found, self._expected, self._marks, warm_up=0.0))
            # a stream of files never ends by itself
            os._exit(0)


def build(directory: str, progress: Progress) -> None:
    """Count words; the counts themselves go nowhere, only what they come to."""
    lines = pw.io.plaintext.read(directory, mode="streaming", name="words")
    counts = lines.groupby(pw.this.data).reduce(word=pw.this.data, count=pw.reducers.count())
    pw.io.null.write(counts)
    totals = counts.select(count=pw.this.count, square=pw.this.count * pw.this.count).reduce(
        words=pw.reducers.sum(pw.this.count), squares=pw.reducers.sum(pw.this.square)
    )
    pw.io.subscribe(totals, progress.on_change)


def persistence(task: Task) -> Any:
    """Return where snapshots go, and how often; None for no persistence."""
    if task.variant != "persistence":
        return None
    return pw.persistence.Config(
        pw.persistence.Backend.filesystem(f"{task.directory}/snapshots"),
        snapshot_interval_ms=1000 * task.checkpoint,
    )


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    words = make(task.records)
    progress = Progress(words.expected)
    build(str(words.directory), progress)
    progress.begin()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE, persistence_config=persistence(task))
    raise SystemExit("Error: the stream ended before all words were counted")


if __name__ == "__main__":
    main()
