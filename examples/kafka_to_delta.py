"""Kafka to Delta: statuses of orders come from a topic, and a table always has one row per order.

A status replaces the row of its order, and a cancelled order is removed. All statuses of a
checkpoint appear in one version of the table, when the checkpoint is complete. The offsets in the
topic are part of the same checkpoint. So if the job fails, it reads some statuses again, and yet
each is applied once: no version of the table ever has two rows of an order.

It needs a Kafka broker (``make services`` starts one and prints its address) and
``pip install 'holdfast[kafka,delta]'``.

    python examples/kafka_to_delta.py --broker 127.0.0.1:9092

writes 5000 statuses to a new topic, runs the job until it has read them all, with a failure in
between, and compares the table with what plain Python makes of the same statuses. Prints

    5000 statuses of 500 orders were read, with one failure in between
    the table has the right row for each of 400 orders, and none for 100 cancelled ones
    one row per order in each of its 3 versions

The number of versions is that of checkpoints. ``--table PATH`` writes to a new table of yours, also
one that begins with ``s3a://``.
"""

import argparse
import json
import tempfile
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable, QueryBuilder

from holdfast.common import RestartStrategies, Types, WatermarkStrategy
from holdfast.common.types import Row
from holdfast.datastream import MapFunction, StreamExecutionEnvironment
from holdfast.datastream.connectors.delta import DeltaSink
from holdfast.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from holdfast.datastream.formats.json import JsonRowDeserializationSchema

ORDERS = 500
PARTITIONS = 3
STATUSES = ["created", "paid", "packed", "shipped", "delivered"]
CANCELLED = "cancelled"
#: the columns of the table, and the fields of a message
STATUS = Types.ROW_NAMED(
    ["order_id", "status", "changes"], [Types.STRING(), Types.STRING(), Types.LONG()]
)


def some_statuses(count: int) -> list[dict[str, Any]]:
    """Statuses of all orders in turn; the last one of every fifth order cancels it."""
    statuses = []
    for number in range(count):
        order, changes = number % ORDERS, number // ORDERS + 1
        is_last = number + ORDERS >= count
        status = CANCELLED if is_last and order % 5 == 0 else STATUSES[changes % len(STATUSES)]
        statuses.append({"order_id": f"o-{order}", "status": status, "changes": changes})
    return statuses


def make_topic(broker: str, statuses: list[dict[str, Any]]) -> str:
    """Write statuses to a new topic; those of an order go to one partition, which keeps order."""
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for status in statuses:
        producer.produce(topic, json.dumps(status), key=status["order_id"])
        producer.poll(0)
    if producer.flush(60):
        raise RuntimeError(f"{broker} does not take the statuses")
    return topic


class FailOnce(MapFunction):
    """Passes statuses on; raises at one of them, once."""

    def __init__(self, marker: Path, changes: int) -> None:
        self.marker = marker
        self.changes = changes

    def map(self, value: Row) -> Row:
        if value["changes"] == self.changes and not self.marker.exists():
            self.marker.touch()
            msg = f"simulated failure at {value}"
            raise RuntimeError(msg)
        return value


def is_cancelled(status: Row) -> bool:
    """Return whether the row of the order is to be removed."""
    return bool(status["status"] == CANCELLED)


def run(broker: str, topic: str, table: str, folder: Path, fail_at: int) -> None:
    """Read the topic to its present end, and write the statuses to the table."""
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(broker)
        .set_topics(topic)
        .set_group_id("kafka-to-delta")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(
            JsonRowDeserializationSchema.builder().type_info(STATUS).build()
        )
        .build()
    )
    sink = DeltaSink.for_table(table, STATUS).upsert_by("order_id", is_deletion=is_cancelled)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).enable_checkpointing(200)
    env.get_checkpoint_config().set_checkpoint_storage_dir(f"{folder}/checkpoints")
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 100))
    statuses = env.from_source(source, WatermarkStrategy.no_watermarks(), "statuses")
    once = FailOnce(folder / "failed", fail_at)
    statuses.map(once, STATUS).sink_to(sink.build()).uid("orders")
    env.execute("Kafka to Delta")


def rows_of(table: str, version: int | None = None) -> list[dict[str, Any]]:
    query = QueryBuilder().register("orders", DeltaTable(table, version=version))
    rows: list[dict[str, Any]] = pa.table(query.execute("SELECT * FROM orders")).to_pylist()
    return rows


def verify(table: str, statuses: list[dict[str, Any]]) -> tuple[int, int]:
    """Compare the table with the statuses; return how many orders and versions it has."""
    expected = {status["order_id"]: status for status in statuses}
    expected = {order: last for order, last in expected.items() if last["status"] != CANCELLED}
    assert {row["order_id"]: row for row in rows_of(table)} == expected
    versions = DeltaTable(table).version() + 1
    for version in range(versions):
        orders = [row["order_id"] for row in rows_of(table, version)]
        assert len(orders) == len(set(orders)), f"version {version} has an order twice"
    return len(expected), versions


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Kafka to Delta, one row per order.")
    parser.add_argument("--broker", default="127.0.0.1:9092", help="of Kafka")
    parser.add_argument("--table", help="the path or address of a new table; a temporary if not")
    parser.add_argument("--statuses", type=int, default=5000)
    options = parser.parse_args(arguments)
    statuses = some_statuses(options.statuses)
    topic = make_topic(options.broker, statuses)
    with tempfile.TemporaryDirectory() as folder:
        table = options.table or f"{folder}/orders"
        run(options.broker, topic, table, Path(folder), statuses[-1]["changes"] // 2)
        assert (Path(folder) / "failed").exists()
        there, versions = verify(table, statuses)
    print(f"{len(statuses)} statuses of {ORDERS} orders were read, with one failure in between")
    print(
        f"the table has the right row for each of {there} orders, and none for {ORDERS - there} "
        "cancelled ones"
    )
    print(f"one row per order in each of its {versions} versions")


if __name__ == "__main__":
    main()
