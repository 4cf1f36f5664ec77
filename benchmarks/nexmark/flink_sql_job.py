"""The queries in Flink SQL, one after another in one JVM; the variant names them.

Each runs twice, first on a quarter of the events, so that its code is compiled when it is
measured. Its rate is that of the whole second run: all its events, divided by the time that Flink
says the job ran, which leaves out planning. Parallelism 2, object reuse, state on the heap, a
checkpoint every second.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

from pyflink.common import Configuration  # type: ignore[import-not-found]
from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

from benchmarks.measure import Measurement, emit
from benchmarks.nexmark.data import DataSet, make
from benchmarks.nexmark.flink_sql import INSERTS, tables
from benchmarks.nexmark.places import ROOT
from benchmarks.program import PARALLELISM, Task, parse_task


def environment(task: Task, data: Path) -> TableEnvironment:
    """Return an environment that knows the tables."""
    config = Configuration()
    for key, value in {
        "rest.port": "0",
        "parallelism.default": str(PARALLELISM),
        "pipeline.object-reuse": "true",
        "table.local-time-zone": "UTC",
        "state.backend.type": "hashmap",
        "execution.checkpointing.interval": f"{task.checkpoint} s",
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": f"file://{task.directory}/checkpoints",
        "taskmanager.memory.network.max": "512 mb",
        "restart-strategy.type": "none",
    }.items():
        config.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode()
    env = TableEnvironment.create(settings.with_configuration(config).build())
    for statement in tables(data):
        env.execute_sql(statement)
    return env


def run(env: Any, query: str) -> float:
    """Run one query to its end and return the seconds that Flink says it ran."""
    sink, insert = INSERTS[query]
    env.execute_sql(sink)
    if query == "q12":
        env.execute_sql("CREATE VIEW timed_bid AS SELECT *, PROCTIME() AS p_time FROM bid")
    job = env.execute_sql(insert).get_job_client().get_job_execution_result().result()
    return float(job.get_net_runtime()) / 1000


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    whole = make(ROOT, DataSet(task.records, files=PARALLELISM))
    quarter = make(ROOT, DataSet(task.records // 4, files=PARALLELISM))
    figures: dict[str, float] = {}
    for query in task.variant.split(",") if task.variant else INSERTS:
        try:
            run(environment(task, quarter), query)
            figures[query] = task.records / run(environment(task, whole), query)
            print(f"{query}: {figures[query]:,.0f}/s", file=sys.stderr, flush=True)
        except Exception:
            traceback.print_exc()
    emit(Measurement(records=task.records, figures=figures))


if __name__ == "__main__":
    main()
