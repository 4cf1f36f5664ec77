"""The order system with Kafka in, and Kafka and HBase out, with crashes on the way."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from examples.orders.__main__ import parse, settings_of
from examples.orders.hbase import read_tables
from examples.orders.job import prepare
from examples.orders.kafka import produce, read_topic
from examples.orders.verify import table, verify_tables, verify_topics
from holdfast.testing import LocalExecutor
from tests.examples.orders.running import SMALL, STOCK, settings

if TYPE_CHECKING:
    from tests.hbase import Tables
    from tests.kafka import Kafka

pytestmark = pytest.mark.spark

#: in seconds
LONGEST = 240


def test_orders_go_from_kafka_to_kafka_and_hbase(
    tmp_path: Path, kafka: Kafka, hbase: Tables
) -> None:
    chosen = replace(
        settings(tmp_path),
        broker=kafka.address,
        topic="shop",
        from_kafka=True,
        to_kafka=True,
        hbase=hbase.server.address,
    )
    produce(SMALL, kafka.address, "shop")
    with LocalExecutor(prepare(chosen), workers=2, quota=300) as run:
        epochs = 0
        while not run.finished:
            run.epoch(checkpoint=epochs % 3 == 0)
            epochs += 1
            if epochs in (2, 4):
                assert not run.finished
                assert run.recover() is not None
    read = partial(read_topic, kafka.address)
    deadline = time.monotonic() + LONGEST
    checks = verify_topics(SMALL, "shop", read, initial_stock=STOCK)
    # what is committed can be read soon, but not at once
    while not all(check.passed for check in checks) and time.monotonic() < deadline:
        checks = verify_topics(SMALL, "shop", read, initial_stock=STOCK)
    tables = read_tables(hbase.server.address)
    checks += verify_tables(SMALL, tables, initial_stock=STOCK)
    assert len(checks) == 9
    assert all(check.passed for check in checks), table(checks)


def test_the_flags_say_where_events_come_from_and_go_to(tmp_path: Path) -> None:
    line = "--source kafka --broker a:1 --topic shop --to-kafka --to-hbase b:2"
    chosen = settings_of(parse(line.split()), tmp_path)
    assert (chosen.broker, chosen.topic, chosen.from_kafka) == ("a:1", "shop", True)
    assert (chosen.to_kafka, chosen.hbase) == (True, "b:2")


@pytest.mark.parametrize("line", ["--source kafka", "--to-kafka", "--produce --events 9"])
def test_kafka_needs_a_broker(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(line.split())
    assert "need --broker, the address of one" in capsys.readouterr().err
