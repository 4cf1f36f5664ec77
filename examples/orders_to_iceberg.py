"""An Iceberg table that always has one row per order, however often the job fails.

Statuses of orders come in: new, paid, packed, sent, and some orders are returned. The sink is told
the key of the table, so a status replaces the row of its order, and a returned order is removed.
All changes of a checkpoint appear in the table at once, when the checkpoint is complete. Halfway, a
function raises once. The job goes back to its last checkpoint and computes some statuses again, and
yet:

    4000 statuses of 400 orders were written, with one failure in between
    the table has one row for each of 300 orders, and none for 100 returned ones
    3 countries, read again from the table: CH 100, DE 100, FR 100

Then another job reads the table and counts the orders of each country.

``--catalog KEY=VALUE ...`` uses a catalog of yours, with properties of pyiceberg: for example
``--catalog type=rest uri=http://localhost:8181``. The namespace ``shop`` is created if it does not
exist, and the table ``shop.orders`` must not.

It needs ``pip install 'holdfast[iceberg]'``.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog import load_catalog

from holdfast.common import Configuration, RestartStrategies, Types, WatermarkStrategy
from holdfast.datastream import MapFunction, StreamExecutionEnvironment
from holdfast.datastream.connectors.iceberg import IcebergSink, IcebergSource
from holdfast.datastream.connectors.number_seq import NumberSequenceSource

CHANGES = 4000
ORDERS = 400
STATUSES = ["new", "paid", "packed", "sent"]
RETURNED = "returned"
COUNTRIES = ["AT", "CH", "DE", "FR"]
TABLE = "shop.orders"


@dataclass
class Order:
    """The columns of the table."""

    order_id: int
    country: str
    status: str
    changes: int


def change(number: int) -> Order:
    """Return a status: each order has ten, and the last one of an Austrian order returns it."""
    order, changes = number % ORDERS, number // ORDERS + 1
    country = COUNTRIES[order % len(COUNTRIES)]
    is_last = changes == CHANGES // ORDERS
    status = RETURNED if is_last and country == "AT" else STATUSES[changes % len(STATUSES)]
    return Order(order, country, status, changes)


def is_returned(order: Order) -> bool:
    """Return whether the row of the order is to be removed."""
    return order.status == RETURNED


class ChangeAndFail(MapFunction):
    """Makes a status of a number; raises at one of them, once."""

    def __init__(self, marker: Path, fail_at: int) -> None:
        self.marker = marker
        self.fail_at = fail_at

    def map(self, value: int) -> Order:
        if value == self.fail_at and not self.marker.exists():
            self.marker.touch()
            msg = f"simulated failure at change {value}"
            raise RuntimeError(msg)
        return change(value)


def write(properties: dict[str, str], folder: Path) -> None:
    """Write all statuses to the table, with a failure in the middle."""
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration({"holdfast.epoch.max-records": "500"})
    )
    env.set_parallelism(2)
    env.enable_checkpointing(1000)
    env.get_checkpoint_config().set_checkpoint_storage_dir(f"{folder}/checkpoints")
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 100))
    # NB: one subtask, so that the statuses of an order come in their order
    numbers = env.from_source(
        NumberSequenceSource(0, CHANGES - 1), WatermarkStrategy.no_watermarks(), "numbers"
    ).set_parallelism(1)
    statuses = numbers.map(ChangeAndFail(folder / "failed", CHANGES * 3 // 4)).set_parallelism(1)
    sink = (
        IcebergSink.builder()
        .set_catalog("shop", properties)
        .set_table(TABLE)
        .set_schema(Order)
        .create_if_absent()
        .partition_by("country")
        .upsert_by("order_id", is_deletion=is_returned)
        .build()
    )
    statuses.sink_to(sink).uid("orders")
    env.execute("orders to Iceberg")


def count(properties: dict[str, str]) -> list[tuple[str, int]]:
    """Read the table again, and count the orders of each country."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    builder = IcebergSource.builder().set_catalog("shop", properties).set_table(TABLE)
    source = builder.set_row_type(Order).build()
    orders = env.from_source(source, WatermarkStrategy.no_watermarks(), "orders")
    pairs = orders.map(
        lambda order: (order.country, 1), Types.TUPLE([Types.STRING(), Types.LONG()])
    )
    counts = pairs.key_by(lambda pair: pair[0]).sum(1)
    with counts.execute_and_collect("orders by country") as results:
        return sorted(dict(results).items())


def expected() -> dict[int, tuple[str, int]]:
    """Return the table as plain Python makes it of the same statuses."""
    orders: dict[int, tuple[str, int]] = {}
    for number in range(CHANGES):
        order = change(number)
        orders[order.order_id] = (order.status, order.changes)
        if is_returned(order):
            del orders[order.order_id]
    return orders


def main(given: Sequence[str]) -> None:
    """Run the jobs, and compare the table."""
    with tempfile.TemporaryDirectory() as folder:
        local = [
            "type=sql",
            f"uri=sqlite:///{folder}/catalog.db",
            f"warehouse=file://{folder}/warehouse",
        ]
        pairs = (entry.partition("=") for entry in given or local)
        properties = {key: value for key, _, value in pairs}
        catalog = load_catalog("shop", **properties)
        catalog.create_namespace_if_not_exists("shop")
        write(properties, Path(folder))
        assert (Path(folder) / "failed").exists()
        rows = catalog.load_table(TABLE).scan().to_arrow().to_pylist()
        found = {row["order_id"]: (row["status"], row["changes"]) for row in rows}
        if len(found) != len(rows) or found != expected():
            raise SystemExit(f"the table has {len(rows)} rows, and they are not the right ones")
        print(f"{CHANGES} statuses of {ORDERS} orders were written, with one failure in between")
        print(
            f"the table has one row for each of {len(rows)} orders, and none for "
            f"{ORDERS - len(rows)} returned ones"
        )
        counts = count(properties)
        shown = ", ".join(f"{country} {orders}" for country, orders in counts)
        print(f"{len(counts)} countries, read again from the table: {shown}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="One row per order in an Iceberg table.")
    parser.add_argument("--catalog", nargs="*", default=[], metavar="KEY=VALUE")
    main(parser.parse_args().catalog)
