"""How long it takes from the making of a record until readers of a table see it.

A thousand records a second, a checkpoint every second. A thread looks at the table all the time,
and reads every data file that was not there before. The task's number is that of the records.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.engines.jobs import checkpointed, within
from benchmarks.engines.latency_job import Paced
from benchmarks.engines.percentiles import Seen, check, latency_figures
from benchmarks.measure import Measurement, emit
from benchmarks.program import Task, parse_task
from benchmarks.tables.places import PLACES, Place

#: Records per second.
RATE = 1000.0
#: Seconds between two looks at the table.
_LOOK = 0.02
SCHEMA = pa.schema([("key", pa.int64()), ("made", pa.float64())])


class Watcher(threading.Thread):
    """Reads the files of a table as they appear."""

    def __init__(self, place: Place) -> None:
        super().__init__(daemon=True)
        self._place = place
        self._known: set[str] = set()
        self._pairs: list[tuple[float, float]] = []
        self.over = threading.Event()

    def run(self) -> None:
        """Look until it is over, and once more."""
        while not self.over.wait(_LOOK):
            self._look()
        self._look()

    def _look(self) -> None:
        found = self._place.files()
        now = time.time()
        for path in found - self._known:
            made: list[Any] = pq.read_table(path, columns=["made"]).column("made").to_pylist()
            self._pairs += [(each, now) for each in made]
        self._known |= found

    def seen(self) -> Seen:
        """Return all records, in the order in which they were made."""
        self._pairs.sort()
        made, arrived = [pair[0] for pair in self._pairs], [pair[1] for pair in self._pairs]
        return Seen(made, arrived, 0)


def run(task: Task) -> Measurement:
    """Run the job, and look at the table meanwhile."""
    place = PLACES[task.variant](task.directory, SCHEMA)
    env = checkpointed(replace(task, variant=""), 1000 * task.checkpoint)
    env.add_source(Paced(task.records, RATE)).sink_to(place.sink())
    watcher = Watcher(place)
    watcher.start()
    env.execute(f"freshness of {task.variant}")
    watcher.over.set()
    watcher.join()
    seen = watcher.seen()
    check("the number of rows", len(seen.made), task.records)
    figures = latency_figures(seen) | {"files": float(len(place.files()))}
    return Measurement(records=task.records, figures=figures)


if __name__ == "__main__":
    emit(run(within(parse_task(), "run")))
