"""Kafka to Iceberg: statuses of orders come from a topic, a table always has one row per order.

A status replaces the row of its order, and a cancelled order is removed. All statuses of a
checkpoint appear in one snapshot of the table, when the checkpoint is complete. The offsets in the
topic are part of the same checkpoint. So if the job fails, it reads some statuses again, and yet
each is applied once: no snapshot of the table ever has two rows of an order.

It needs a Kafka broker (``make services`` starts one and prints its address) and
``pip install 'holdfast[kafka,iceberg]'``.

    python examples/kafka_to_iceberg.py --broker 127.0.0.1:9092

writes 5000 statuses to a new topic, runs the job until it has read them all, with a failure in
between, and compares the table with what plain Python makes of the same statuses. Prints

    5000 statuses of 500 orders were read, with one failure in between
    the table has the right row for each of 400 orders, and none for 100 cancelled ones
    one row per order in each of its 3 snapshots

The number of snapshots is that of checkpoints. ``--catalog KEY=VALUE ...`` uses a catalog of yours,
with properties of pyiceberg: for example ``--catalog type=rest uri=http://localhost:8181``. The
namespace ``shop`` is created if it does not exist; the table gets a new name.
"""

import argparse
import json
import tempfile
import uuid
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from holdfast.common import RestartStrategies, Types, WatermarkStrategy
from holdfast.common.types import Row
from holdfast.datastream import MapFunction, StreamExecutionEnvironment
from holdfast.datastream.connectors.iceberg import IcebergSink
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


def run(
    broker: str, topic: str, catalog: dict[str, str], table: str, folder: Path, fail_at: int
) -> None:
    """Read the topic to its present end, and write the statuses to the table."""
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(broker)
        .set_topics(topic)
        .set_group_id("kafka-to-iceberg")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(
            JsonRowDeserializationSchema.builder().type_info(STATUS).build()
        )
        .build()
    )
    sink = (
        IcebergSink.builder()
        .set_catalog("shop", catalog)
        .set_table(table)
        .set_schema(STATUS)
        .create_if_absent()
        .upsert_by("order_id", is_deletion=is_cancelled)
    )
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).enable_checkpointing(200)
    env.get_checkpoint_config().set_checkpoint_storage_dir(f"{folder}/checkpoints")
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 100))
    statuses = env.from_source(source, WatermarkStrategy.no_watermarks(), "statuses")
    once = FailOnce(folder / "failed", fail_at)
    statuses.map(once, STATUS).sink_to(sink.build()).uid("orders")
    env.execute("Kafka to Iceberg")


def verify(table: Table, statuses: list[dict[str, Any]]) -> tuple[int, int]:
    """Compare the table with the statuses; return how many orders and snapshots it has."""
    expected = {status["order_id"]: status for status in statuses}
    expected = {order: last for order, last in expected.items() if last["status"] != CANCELLED}
    assert {row["order_id"]: row for row in table.scan().to_arrow().to_pylist()} == expected
    for snapshot in table.snapshots():
        found = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        orders = found["order_id"].to_pylist()
        assert len(orders) == len(set(orders)), f"{snapshot} has an order twice"
    return len(expected), len(table.snapshots())


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Kafka to Iceberg, one row per order.")
    parser.add_argument("--broker", default="127.0.0.1:9092", help="of Kafka")
    parser.add_argument("--catalog", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--statuses", type=int, default=5000)
    options = parser.parse_args(arguments)
    statuses = some_statuses(options.statuses)
    topic = make_topic(options.broker, statuses)
    with tempfile.TemporaryDirectory() as folder:
        local = [
            "type=sql",
            f"uri=sqlite:///{folder}/catalog.db",
            f"warehouse=file://{folder}/warehouse",
        ]
        pairs = (entry.partition("=") for entry in options.catalog or local)
        properties = {key: value for key, _, value in pairs}
        catalog = load_catalog("shop", **properties)
        catalog.create_namespace_if_not_exists("shop")
        table = f"shop.{topic.replace('-', '_')}"
        fail_at = statuses[-1]["changes"] // 2
        run(options.broker, topic, properties, table, Path(folder), fail_at)
        assert (Path(folder) / "failed").exists()
        there, snapshots = verify(catalog.load_table(table), statuses)
    print(f"{len(statuses)} statuses of {ORDERS} orders were read, with one failure in between")
    print(
        f"the table has the right row for each of {there} orders, and none for {ORDERS - there} "
        "cancelled ones"
    )
    print(f"one row per order in each of its {snapshots} snapshots")


if __name__ == "__main__":
    main()
