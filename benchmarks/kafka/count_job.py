"""From Kafka to a keyed count, with a checkpoint every second; results are counted and dropped.

The variant ``rocksdb`` keeps the state there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.engines.jobs import checkpointed, within
from benchmarks.engines.percentiles import check, new_file
from benchmarks.kafka.pipeline_job import parsed
from benchmarks.kafka.topics import RECORDS, broker
from benchmarks.measure import Measurement, Meter, emit, measured, read_marks
from benchmarks.own.jobs import CountAndTotal
from benchmarks.program import Task, parse_task
from benchmarks.records import KEYS, expected_total
from holdfast.common import SimpleStringSchema, WatermarkStrategy
from holdfast.datastream import RuntimeContext
from holdfast.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from holdfast.datastream.functions import SinkFunction

_SUM = "sum"


class Summed(SinkFunction):
    """Counts the results, and adds up the counts that they carry."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def open(self, context: RuntimeContext) -> None:
        """Begin with nothing."""
        self._meter = Meter(self._directory)
        self._sum = 0

    def invoke(self, value: tuple[str, int, float], context: Any) -> None:
        """Add a result."""
        self._sum += value[1]
        self._meter.tick()

    def close(self) -> None:
        """Write the sum."""
        self._meter.close()
        new_file(self._directory, _SUM).write_text(str(self._sum), "ascii")


def run(task: Task, address: str) -> Measurement:
    """Run the job to the end of the topic."""
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(address)
        .set_topics(RECORDS)
        .set_group_id("count")
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    env = checkpointed(task, 1000 * task.checkpoint)
    lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "Kafka")
    totals = lines.map(parsed).key_by(lambda r: r[0]).process(CountAndTotal())
    totals.add_sink(Summed(task.directory))
    env.execute("kafka count")
    found = sum(int(path.read_text("ascii")) for path in Path(task.directory).glob(f"*.{_SUM}"))
    check("the sum of all counts", found, expected_total(task.records, KEYS))
    return measured(read_marks(task.directory))


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    with broker(task.directory, task.records, keyed=True) as running:
        emit(run(within(task, "run"), running.address))


if __name__ == "__main__":
    main()
