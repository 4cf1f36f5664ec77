"""A job from Kafka to HBase that can be checked, whatever happened to it on its way.

    numbers (Kafka) ── sums by key (keyed state) ── table, one row for each key

Every fifth sum of a key deletes its row. ``verify`` knows nothing of the job: it recomputes the
table from the numbers. As a program it runs the job on Spark; started again with the same folder,
it goes on.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.common import (
    Configuration,
    RestartStrategies,
    SimpleStringSchema,
    WatermarkStrategy,
)
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.hbase import (
    HBaseOptions,
    HBaseTableSchema,
    HBaseUpsertSinkFunction,
    HBaseWriteOptions,
)
from holdfast.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from tests.recovery.verifying import KEYS, Progress, Sums, holder

if TYPE_CHECKING:
    from tests.hbase import Tables
    from tests.kafka import Kafka

PARTITIONS = 3
SCHEMA = (
    HBaseTableSchema()
    .set_row_key("key", int)
    .add_column("f", "number", int)
    .add_column("f", "count", int)
    .add_column("f", "total", int)
)


@dataclass(frozen=True)
class Settings:
    """Where everything is."""

    folder: Path
    broker: str
    topic: str
    host: str
    port: int
    table: str


def make_job(settings: Settings, spark: dict[str, str]) -> StreamExecutionEnvironment:
    """The job; it does not end while it is held."""
    configuration = {
        "holdfast.epoch.max-records": "20",
        "execution.checkpointing.dir": str(settings.folder / "checkpoints"),
        **spark,
    }
    env = StreamExecutionEnvironment(Configuration(configuration))
    env.set_parallelism(2).set_buffer_timeout(0).enable_checkpointing(300)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1_000, 0))
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(settings.broker)
        .set_topics(settings.topic)
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    options = HBaseOptions(settings.table, settings.host, settings.port, timeout=8_000)
    # some are sent when there are so many, some when they have waited, some for the checkpoint
    writing = HBaseWriteOptions(buffer_flush_max_rows=5, buffer_flush_interval_millis=50)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    sums = (
        numbers.map(int)
        .union(holder(env, settings.folder))
        .map(Progress(settings.folder / "progress"))
        .key_by(lambda number: number % KEYS)
        .process(Sums())
        .map(as_row)
    )
    sums.add_sink(HBaseUpsertSinkFunction(options, SCHEMA, writing))
    return env


def as_row(record: tuple[int, int, int]) -> tuple[bool, Any]:
    """The put or delete of a sum."""
    number, count, total = record
    return count % 5 != 0, (number % KEYS, (number, count, total))


def prepare(folder: Path, kafka: Kafka, hbase: Tables, numbers: int) -> Settings:
    """Make the topic, with all numbers, and the table."""
    topic, table = kafka.topic(PARTITIONS, prefix="numbers"), hbase.create("f")
    for partition in range(PARTITIONS):
        mine = [str(n) for n in range(numbers) if n % KEYS % PARTITIONS == partition]
        kafka.produce(topic, mine, partition)
    server = hbase.server
    return Settings(folder, kafka.address, topic, server.host, server.port, table)


def verify(settings: Settings, hbase: Tables, numbers: int) -> None:
    """Compare the table that a finished job left behind with what must be there."""
    expected = {}
    for key in range(KEYS):
        mine = range(key, numbers, KEYS)
        if len(mine) % 5 != 0:
            cells = {"number": mine[-1], "count": len(mine), "total": sum(mine)}
            expected[key.to_bytes(8, "big")] = {
                f"f:{name}".encode(): value.to_bytes(8, "big") for name, value in cells.items()
            }
    assert hbase.rows(settings.table) == expected


def main() -> None:
    """Run the job on Spark, to its end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    for name in ("broker", "topic", "host", "table"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--port", type=int)
    parser.add_argument("--spark", action="append", default=[], type=lambda s: s.split("=", 1))
    given = vars(parser.parse_args())
    spark = dict(given.pop("spark"))
    make_job(Settings(**given), spark).execute("kafka-to-hbase")


if __name__ == "__main__":
    main()
