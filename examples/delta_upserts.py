"""A Delta table that always has one row per order, however often the job fails.

Changes of orders come in: created, paid, shipped, delivered, and some are cancelled. The sink is
told the key of the table, so a change replaces the row of its order, and a cancelled order is
removed. All changes of a checkpoint appear in the table in one version, when the checkpoint is
complete. Halfway, a function raises once. The job goes back to its last checkpoint and computes
some changes again, and yet:

    6000 changes of 500 orders were written, with one failure in between
    the table has one row for each of 400 orders, and none for 100 cancelled ones

``--table PATH`` writes to a table of yours, also one that begins with ``s3a://``. For changes from
a topic, replace the source by a ``KafkaSource``.

It needs ``pip install 'holdfast[delta]'``.
"""

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from holdfast.common import Configuration, RestartStrategies, WatermarkStrategy
from holdfast.datastream import MapFunction, StreamExecutionEnvironment
from holdfast.datastream.connectors.delta import DeltaSink
from holdfast.datastream.connectors.number_seq import NumberSequenceSource

CHANGES = 6000
ORDERS = 500
STATUSES = ["created", "paid", "shipped", "delivered"]
CANCELLED = "cancelled"


@dataclass
class Order:
    """The columns of the table."""

    order_id: str
    status: str
    changes: int


def change(number: int) -> Order:
    """Return a change: each order has twelve, and the last of every fifth order cancels it."""
    order, changes = number % ORDERS, number // ORDERS + 1
    is_last = changes == CHANGES // ORDERS
    status = CANCELLED if is_last and order % 5 == 0 else STATUSES[changes % len(STATUSES)]
    return Order(f"order-{order:03d}", status, changes)


class ChangeAndFail(MapFunction):
    """Makes a change of a number; raises at one of them, once."""

    def __init__(self, marker: Path, fail_at: int) -> None:
        self.marker = marker
        self.fail_at = fail_at

    def map(self, value: int) -> Order:
        if value == self.fail_at and not self.marker.exists():
            self.marker.touch()
            msg = f"simulated failure at change {value}"
            raise RuntimeError(msg)
        return change(value)


def is_cancelled(order: Order) -> bool:
    """Return whether the row of the order is to be removed."""
    return order.status == CANCELLED


def run(table: str, folder: Path) -> None:
    """Write all changes to the table, with a failure in the middle."""
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration({"holdfast.epoch.max-records": "500"})
    )
    env.set_parallelism(2)
    env.enable_checkpointing(1000)
    env.get_checkpoint_config().set_checkpoint_storage_dir(f"{folder}/checkpoints")
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 100))
    # NB: one subtask, so that the changes of an order come in their order
    numbers = env.from_source(
        NumberSequenceSource(0, CHANGES - 1), WatermarkStrategy.no_watermarks(), "numbers"
    ).set_parallelism(1)
    changes = numbers.map(ChangeAndFail(folder / "failed", CHANGES * 3 // 4)).set_parallelism(1)
    sink = DeltaSink.for_table(table, Order).upsert_by("order_id", is_deletion=is_cancelled).build()
    changes.sink_to(sink).uid("orders")
    env.execute("orders")


def expected() -> dict[str, tuple[str, int]]:
    """Return the table as plain Python makes it of the same changes."""
    orders: dict[str, tuple[str, int]] = {}
    for number in range(CHANGES):
        order = change(number)
        orders[order.order_id] = (order.status, order.changes)
        if is_cancelled(order):
            del orders[order.order_id]
    return orders


def main(table: str | None) -> None:
    """Run the job, and compare the table."""
    with tempfile.TemporaryDirectory() as folder:
        table = table or f"{folder}/orders"
        run(table, Path(folder))
        assert (Path(folder) / "failed").exists()
        query = QueryBuilder().register("orders", DeltaTable(table))
        rows = pa.table(query.execute("SELECT * FROM orders")).to_pylist()
        found = {row["order_id"]: (row["status"], row["changes"]) for row in rows}
        if len(found) != len(rows) or found != expected():
            raise SystemExit(f"the table has {len(rows)} rows, and they are not the right ones")
        print(f"{CHANGES} changes of {ORDERS} orders were written, with one failure in between")
        print(
            f"the table has one row for each of {len(rows)} orders, and none for "
            f"{ORDERS - len(rows)} cancelled ones"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="One row per order in a Delta table.")
    parser.add_argument("--table", help="the path or address of a new table; a temporary if not")
    main(parser.parse_args().table)
