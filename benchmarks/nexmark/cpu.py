"""Processor time of a query's Python per event, in one process, by record and in columns.

``python -m benchmarks.nexmark.cpu [--events N] [--rounds N] [q5 ...]`` prints a table in Markdown.
There is no Spark and no second process in it, so a busy machine changes it little: what other
programs do is not in the figure. What is left are the source, the functions, routing and state.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import pyarrow as pa

from benchmarks.nexmark.columns import COLUMN_QUERIES
from benchmarks.nexmark.data import DataSet, make
from benchmarks.nexmark.places import ROOT
from benchmarks.nexmark.program import dropped, program
from benchmarks.nexmark.queries import QUERIES
from holdfast.common import Configuration
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.testing import LocalExecutor

_EPOCHS = 4
#: A test looks for values of the state that are changed in place; jobs do not.
_UNCHECKED = Configuration().set_boolean("holdfast.state.check-mutations", False)


def microseconds(query: str, data: Path, events: int, in_columns: bool) -> float:
    """Run a query and return the processor time per event after the first epoch."""
    env = StreamExecutionEnvironment.get_execution_environment(_UNCHECKED).set_parallelism(1)
    results = program(env, query, data, in_columns=in_columns)
    results = dropped(results, query) if in_columns else results
    with LocalExecutor(results.filter(lambda record: False), workers=1) as run:
        run.epoch(events // _EPOCHS)
        started = time.process_time()
        for _ in range(_EPOCHS - 1):
            run.epoch(events // _EPOCHS)
        spent = time.process_time() - started
    return 1e6 * spent / (events * (_EPOCHS - 1) / _EPOCHS)


def main() -> None:
    """Measure the queries on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("queries", nargs="*", default=list(QUERIES))
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    data = make(ROOT, DataSet(options.events, files=1))
    pa.set_cpu_count(1)
    print("| query | by record, µs | in columns, µs | ratio |\n| --- | ---: | ---: | ---: |")
    for query in options.queries:
        forms = [False, True] if query in COLUMN_QUERIES else [False]
        best = [
            min(microseconds(query, data, options.events, form) for _ in range(options.rounds))
            for form in forms
        ]
        cells = f"{best[1]:.2f} | {best[0] / best[1]:.1f}" if len(best) > 1 else "– | "
        print(f"| {query[1:]} | {best[0]:.2f} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
