"""Helpers of the tests of Iceberg tables: what is in them, read without Holdfast."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

NAMESPACE = "shop"
TABLE = "shop.orders"
CATALOG = "test"


def properties(folder: Path, **more: str) -> dict[str, str]:
    """A catalog in a file, and a warehouse below a folder."""
    uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}/warehouse"
    return {"type": "sql", "uri": uri, "warehouse": warehouse, **more}


def catalog(found: Mapping[str, str]) -> Catalog:
    return load_catalog(CATALOG, **found)


def load(found: Mapping[str, str], name: str = TABLE) -> Table:
    return catalog(found).load_table(name)


def rows(found: Mapping[str, str], name: str = TABLE) -> list[dict[str, Any]]:
    """The rows of a table, read with pyiceberg."""
    records: list[dict[str, Any]] = load(found, name).scan().to_arrow().to_pylist()
    return records


def column(found: Mapping[str, str], name: str) -> list[Any]:
    return sorted(row[name] for row in rows(found))


def data_files(table: Table) -> set[str]:
    """The data files below a local table, whether it refers to them or not."""
    base = Path(table.location().removeprefix("file://"))
    return {f"file://{path}" for path in base.rglob("*.parquet")}


def referred(table: Table) -> set[str]:
    """The data files of all snapshots of a table."""
    return {
        task.file.file_path
        for snapshot in table.snapshots()
        for task in table.scan(snapshot_id=snapshot.snapshot_id).plan_files()
    }


def hidden(table: Table) -> list[str]:
    """What a sink has not cleaned up."""
    base = Path(table.location().removeprefix("file://"), "data", "_holdfast")
    return [str(path) for path in base.rglob("*") if path.is_file()]


def transactions(table: Table) -> list[str | None]:
    """The transactions in the history of a table, from the oldest; None for those of others."""
    return [
        None if entry.summary is None else entry.summary.get("holdfast.transaction")
        for entry in table.snapshots()
    ]
