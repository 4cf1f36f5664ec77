"""The queries on PyFlink's DataStream API, one after another; the variant names them.

The programs are those that Holdfast runs: `queries` imports PyFlink where Holdfast is not
installed. The events come as lines of text from Flink's own file source and are parsed in Python,
which costs less than rows of fourteen columns on their way from the JVM. Thread mode with
parallelism 1 and large bundles, which is the fastest that PyFlink has (see
`benchmarks.peers.pyflink_job`).

A record counts when it has been parsed. What waits between that and the end is little, since
threads hand records on one by one.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from pyflink.common import (
    Configuration,  # type: ignore[import-not-found]
    WatermarkStrategy,
)
from pyflink.datastream import (  # type: ignore[import-not-found]
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.connectors.file_system import (  # type: ignore[import-not-found]
    FileSource,
    StreamFormat,
)

from benchmarks.measure import Measurement, Meter, emit, measured, read_marks
from benchmarks.nexmark.data import COLUMNS, FIELDS, NUMBERS, DataSet, event_files, make, side_input
from benchmarks.nexmark.places import ROOT
from benchmarks.nexmark.queries import QUERIES, watermarks
from benchmarks.peers.pyflink_job import discard
from benchmarks.program import Task, parse_task

#: There is no window join in PyFlink.
NOT_FEASIBLE = frozenset({"q8"})

_PLACES = {
    str(kind): [(place, place < NUMBERS) for place in map(COLUMNS.index, fields)]
    for kind, fields in FIELDS.items()
}


class Parse(MapFunction):  # type: ignore[misc]
    """Makes events of lines, and counts them."""

    def __init__(self, marks: str) -> None:
        self._marks = marks

    def open(self, runtime_context: RuntimeContext) -> None:
        """Open the meter."""
        self.meter = Meter(self._marks)

    def map(self, value: str) -> tuple[Any, ...]:
        """Parse one."""
        self.meter.tick()
        cells = value.split(",")
        return tuple(
            int(cells[place]) if is_number else cells[place]
            for place, is_number in _PLACES[cells[0]]
        )

    def close(self) -> None:
        """Count the last ones."""
        self.meter.close()


def environment(task: Task) -> StreamExecutionEnvironment:
    """Return a tuned environment."""
    config = Configuration()
    for key, value in {
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "python.execution-mode": "thread",
        "python.fn-execution.bundle.size": "10000",
        "python.fn-execution.bundle.time": "1000",
        "python.state.cache-size": "200000",
        "python.operator-chaining.enabled": "true",
        "pipeline.object-reuse": "true",
        "rest.port": "0",
        "state.backend.type": "hashmap",
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": f"file://{task.directory}/checkpoints",
        # PyFlink cannot save the sessions of query 11 in thread mode; it is measured anyway.
        "execution.checkpointing.tolerable-failed-checkpoints": "1000",
        "restart-strategy.type": "none",
    }.items():
        config.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(1)
    env.enable_checkpointing(task.checkpoint * 1000)
    return env


def run(task: Task, query: str, data: Path) -> Measurement:
    """Run one query to its end."""
    started = time.time()
    marks = Path(task.directory) / query
    marks.mkdir()
    env = environment(task)
    lines = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), *(str(file) for file in event_files(data))
    )
    source = env.from_source(lines.build(), WatermarkStrategy.no_watermarks(), "lines")
    events = source.map(Parse(str(marks))).assign_timestamps_and_watermarks(watermarks())
    discard(QUERIES[query](events, str(side_input(data))))
    env.execute(query)
    return measured(read_marks(str(marks)), started)


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    # The embedded interpreter starts from the base installation and knows no virtual environment.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    data = make(ROOT, DataSet(task.records, files=1))
    figures: dict[str, float] = {}
    for query in task.variant.split(",") if task.variant else QUERIES:
        if query in NOT_FEASIBLE:
            continue
        try:
            figures[query] = run(task, query, data).warm_rate
            print(f"{query}: {figures[query]:,.0f}/s", file=sys.stderr, flush=True)
        except Exception:
            traceback.print_exc()
    emit(Measurement(records=task.records, figures=figures))


if __name__ == "__main__":
    main()
