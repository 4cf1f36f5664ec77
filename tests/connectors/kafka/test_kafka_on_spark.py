"""Kafka with Spark's workers: the example, and a source function in a process of its own."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from examples import kafka_to_delta, kafka_to_iceberg, kafka_word_count
from holdfast.common import SimpleStringSchema
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.kafka import FlinkKafkaConsumer
from tests.kafka import Kafka

pytestmark = pytest.mark.spark


def test_the_example(kafka: Kafka, spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    kafka_word_count.main(kafka.address)
    assert capsys.readouterr().out.splitlines()[-4:] == [
        "gannet: 1000",
        "kelp: 3000",
        "limpet: 2000",
        "read 3000 lines; the group 'word-count' has committed 3000 of 3000",
    ]


@pytest.mark.parametrize("example", [kafka_to_delta, kafka_to_iceberg])
def test_statuses_of_orders_as_a_table(
    kafka: Kafka, spark: Any, capsys: pytest.CaptureFixture[str], example: Any
) -> None:
    example.main(["--broker", kafka.address])
    read, rows, versions = capsys.readouterr().out.splitlines()[-3:]
    assert read == "5000 statuses of 500 orders were read, with one failure in between"
    assert rows == (
        "the table has the right row for each of 400 orders, and none for 100 cancelled ones"
    )
    assert versions.startswith("one row per order in each of its ")


class UpTo(SimpleStringSchema):
    def is_end_of_stream(self, next_element: str) -> bool:
        return next_element == "end"


def test_a_source_function(kafka: Kafka, spark: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It begins without state, and says so in the log of the driver."""
    topic = kafka.topic(2)
    for partition in range(2):
        kafka.produce(topic, [*map(str, range(100)), "end"], partition)
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    env.enable_checkpointing(200)
    properties = {"bootstrap.servers": kafka.address, "group.id": topic}
    with pytest.deprecated_call():
        source = FlinkKafkaConsumer([topic], UpTo(), properties).set_start_from_earliest()
    with caplog.at_level(logging.INFO, "holdfast"):
        found = list(env.add_source(source, "topic").execute_and_collect())
    assert sorted(found, key=int) == sorted([*map(str, range(100))] * 2, key=int)
    lines = [record.getMessage() for record in caplog.records]
    for subtask in range(2):
        said = f"Consumer subtask {subtask} has no restore state."
        assert lines.count(f"[Source: topic #{subtask}] {said}") == 1
