"""Tables of HBase that show every order and every product as they are now."""

from collections.abc import Iterator
from typing import Any

from examples.orders.events import STEPS, OrderStatus, StockLevel
from examples.orders.pipeline import Outputs
from examples.orders.reference import Row
from holdfast.datastream.connectors.hbase import (
    HBaseOptions,
    HBaseTableSchema,
    HBaseUpsertSinkFunction,
)

__all__ = ["attach_tables", "read_tables"]

ORDERS = HBaseTableSchema().set_row_key("order_id", str)
for _column in ("user_id", "status"):
    ORDERS.add_column("order", _column, str)
for _step in STEPS:
    ORDERS.add_column("times", _step, int)

STOCK = (
    HBaseTableSchema()
    .set_row_key("product", str)
    .add_column("stock", "changes", int)
    .add_column("stock", "stock", int)
)
TABLES = {"orders": ORDERS, "stock": STOCK}


def attach_tables(outputs: Outputs, address: str) -> None:
    """Write statuses and stock to the tables ``orders`` and ``stock``, made if they are not there.

    The streams are keyed by what is the row key, so the rows are as the last record says.
    """
    _make_tables(address)
    for name, rows in (
        ("orders", outputs.statuses.map(_order_row)),
        ("stock", outputs.stock.map(_stock_row)),
    ):
        sink = HBaseUpsertSinkFunction(_options(address, name), TABLES[name])
        rows.add_sink(sink).uid(f"{name}-hbase").name(f"{name} to HBase")


def read_tables(address: str) -> dict[str, list[Row]]:
    """The rows of both tables."""
    found: dict[str, list[Row]] = {}
    connection = _connect(address)
    for name, schema in TABLES.items():
        key = schema.get_row_key_name()
        found[name] = [
            {key: row.decode(), **dict(_values(cells))}
            for row, cells in connection.table(name).scan()
        ]
    connection.close()
    return found


def _order_row(status: OrderStatus) -> tuple[bool, Any]:
    times = {step: getattr(status, step) for step in STEPS}
    order = (status.order_id, (status.user_id, status.status), times)
    return True, order


def _stock_row(level: StockLevel) -> tuple[bool, Any]:
    return True, (level.product, (level.number, level.stock))


def _values(cells: dict[bytes, bytes]) -> Iterator[tuple[str, Any]]:
    for column, data in cells.items():
        family, _, qualifier = column.decode().partition(":")
        yield qualifier, data.decode() if family == "order" else int.from_bytes(data, signed=True)


def _make_tables(address: str) -> None:
    connection = _connect(address)
    existing = {name.decode() for name in connection.tables()}
    for name in TABLES.keys() - existing:
        families = {family: {"max_versions": 1} for family in TABLES[name].get_family_names()}
        connection.create_table(name, families)
    connection.close()


def _options(address: str, table: str) -> HBaseOptions:
    host, _, port = address.rpartition(":")
    return HBaseOptions.builder().set_table_name(table).set_thrift_server(host, int(port)).build()


def _connect(address: str) -> Any:
    import happybase

    options = _options(address, "any")
    return happybase.Connection(options.host, options.port)
