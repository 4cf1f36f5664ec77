"""Kafka to HBase: changes of orders come from a topic, and a table shows how each order is now.

The sink buffers its mutations, for speed; the source remembers how far it has read. A checkpoint
brings the two together: before it is complete, everything that was read until then is in the table,
and only then are the offsets committed to Kafka. So whatever is killed, nothing is lost; and what
is written again is written to the same rows, so that nothing is there twice.

It needs a Kafka broker and HBase with its Thrift server; ``make services`` starts both and prints
where they are.

    python examples/kafka_to_hbase.py --broker 127.0.0.1:9092 --hbase 127.0.0.1:9090

makes a topic and a table, writes 5000 changes to the topic, runs the job until it has read them
all, and compares the table with what plain Python makes of the same changes. Prints

    5000 changes of 500 orders
    the table has the right cells for 409 orders, and none for 91 cancelled ones
"""

import argparse
import json
import random
import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.common import SimpleStringSchema, WatermarkStrategy
from holdfast.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.hbase import (
    HBaseOptions,
    HBaseTableSchema,
    HBaseUpsertSinkFunction,
    HBaseWriteOptions,
)
from holdfast.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from holdfast.datastream.state import ValueStateDescriptor

CHANGES = 5000
ORDERS = 500
PARTITIONS = 3
STATUSES = ["created", "paid", "shipped", "delivered", "cancelled"]

#: (order, (status, amount, changes))
OrderRow = tuple[str, tuple[str, float, int]]

SCHEMA = (
    HBaseTableSchema()
    .set_row_key("order", str)
    .add_column("info", "status", str)
    .add_column("info", "amount", float)
    .add_column("info", "changes", int)
)


@dataclass(frozen=True)
class Places:
    """Where everything is."""

    broker: str
    topic: str
    hbase: HBaseOptions


class LatestOrder(KeyedProcessFunction):
    """The row of an order with each of its changes; cancelled ones are to be deleted."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.changes = runtime_context.get_state(ValueStateDescriptor("changes", int))

    def process_element(self, value: dict[str, Any], ctx: Any) -> Iterator[tuple[bool, OrderRow]]:
        changes = (self.changes.value() or 0) + 1
        self.changes.update(changes)
        row = (value["order"], (value["status"], value["amount"], changes))
        yield value["status"] != "cancelled", row


def make_job(env: StreamExecutionEnvironment, places: Places) -> None:
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(places.broker)
        .set_topics(places.topic)
        .set_group_id("kafka-to-hbase")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    options = HBaseWriteOptions.builder().set_buffer_flush_max_rows(500).build()
    changes = env.from_source(source, WatermarkStrategy.no_watermarks(), "changes of orders")
    orders = changes.map(json.loads).key_by(lambda change: change["order"]).process(LatestOrder())
    orders.add_sink(HBaseUpsertSinkFunction(places.hbase, SCHEMA, options)).name("orders")


def some_changes(count: int, seed: int = 1) -> list[dict[str, Any]]:
    """Changes of orders, in any order of statuses."""
    choose = random.Random(seed)
    return [
        {
            "order": f"o-{choose.randrange(ORDERS)}",
            "status": choose.choice(STATUSES),
            "amount": choose.randrange(100, 10_000) / 100,
        }
        for _ in range(count)
    ]


def prepare(places: Places, changes: list[dict[str, Any]]) -> None:
    """Make the topic and the table; all changes of an order go to one partition."""
    import happybase
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    settings: dict[str, Any] = {"bootstrap.servers": places.broker}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(places.topic, PARTITIONS, 1)])[places.topic].result(60)
    # idempotence also keeps the order when a request is tried again, as on topics that are new
    producer = Producer({**settings, "enable.idempotence": True})
    for change in changes:
        producer.produce(places.topic, json.dumps(change), key=change["order"])
        producer.poll(0)
    if producer.flush(60):
        raise RuntimeError(f"{places.broker} does not take the changes")
    connection = happybase.Connection(places.hbase.host, places.hbase.port)
    connection.create_table(places.hbase.table_name, {"info": {"max_versions": 1}})
    connection.close()


def verify(places: Places, changes: list[dict[str, Any]]) -> tuple[int, int]:
    """Compare the table with the changes; how many orders are there, and how many are not."""
    import happybase

    seen: dict[str, list[dict[str, Any]]] = {}
    for change in changes:
        seen.setdefault(change["order"], []).append(change)
    expected = {
        order: (history[-1]["amount"], len(history), history[-1]["status"])
        for order, history in seen.items()
        if history[-1]["status"] != "cancelled"
    }
    connection = happybase.Connection(places.hbase.host, places.hbase.port)
    found = {
        order.decode(): tuple(_decoded(name, data) for name, data in sorted(cells.items()))
        for order, cells in connection.table(places.hbase.table_name).scan()
    }
    connection.close()
    for order in found.keys() | seen.keys():
        assert found.get(order) == expected.get(order), (order, found.get(order), seen.get(order))
    return len(expected), len(seen) - len(expected)


def _decoded(name: bytes, data: bytes) -> Any:
    decode = {b"info:amount": ">d", b"info:changes": ">q"}
    return struct.unpack(decode[name], data)[0] if name in decode else data.decode()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Kafka to HBase")
    parser.add_argument("--broker", default="127.0.0.1:9092", help="of Kafka")
    parser.add_argument("--hbase", default="127.0.0.1:9090", help="its Thrift server")
    parser.add_argument("--changes", type=int, default=CHANGES)
    options = parser.parse_args(arguments)
    host, port = options.hbase.rsplit(":", 1)
    name = f"orders-{uuid.uuid4().hex[:8]}"
    places = Places(options.broker, name, HBaseOptions(name, host, int(port)))
    changes = some_changes(options.changes)
    prepare(places, changes)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    make_job(env, places)
    env.execute("Kafka to HBase")
    there, gone = verify(places, changes)
    print(f"{len(changes)} changes of {there + gone} orders")
    print(f"the table has the right cells for {there} orders, and none for {gone} cancelled ones")


if __name__ == "__main__":
    main()
