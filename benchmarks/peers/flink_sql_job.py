"""The keyed count in Flink SQL, state in RocksDB, all of it on the JVM.

It runs twice, first on a quarter of the records, so that its code is compiled when it is measured.
Its rate is that of the whole second run, from its submission to its end.
"""

from __future__ import annotations

import time
from typing import Any

from pyflink.common import Configuration  # type: ignore[import-not-found]
from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

from benchmarks.measure import Measurement, emit
from benchmarks.program import PARALLELISM, Task, parse_task
from benchmarks.records import KEYS, MULTIPLIER, PRIME

_SOURCE = """
CREATE TABLE numbers (i BIGINT) WITH (
    'connector' = 'datagen', 'number-of-rows' = '{count}', 'rows-per-second' = '1000000000',
    'fields.i.kind' = 'sequence', 'fields.i.start' = '0', 'fields.i.end' = '{last}'
)
"""
_SINK = """
CREATE TABLE totals (who STRING, many BIGINT, total DOUBLE) WITH ('connector' = 'blackhole')
"""
_INSERT = f"""
INSERT INTO totals
SELECT who, COUNT(*), SUM(amount) FROM (
    SELECT CONCAT('user-', CAST(MOD(MOD(x * x, {PRIME}), {KEYS}) AS STRING)) AS who,
        CAST(MOD(i, 1000) AS DOUBLE) AS amount
    FROM (SELECT i, MOD(i * {MULTIPLIER}, {PRIME}) AS x FROM numbers)
) GROUP BY who
"""


def environment(task: Task) -> Any:
    """Return an environment whose state is in RocksDB."""
    config = Configuration()
    for key, value in {
        "rest.port": "0",
        "parallelism.default": str(PARALLELISM),
        "pipeline.object-reuse": "true",
        "state.backend.type": "rocksdb",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.interval": f"{task.checkpoint} s",
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": f"file://{task.directory}/checkpoints",
        "restart-strategy.type": "none",
    }.items():
        config.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode()
    return TableEnvironment.create(settings.with_configuration(config).build())


def run(task: Task, count: int) -> float:
    """Run the query over so many records and return the seconds that it took."""
    env = environment(task)
    env.execute_sql(_SOURCE.format(count=count, last=count - 1))
    env.execute_sql(_SINK)
    started = time.time()
    env.execute_sql(_INSERT).wait()
    return time.time() - started


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    run(task, task.records // 4)
    seconds = run(task, task.records)
    emit(Measurement(records=task.records, figures={"warm_rate": task.records / seconds}))


if __name__ == "__main__":
    main()
