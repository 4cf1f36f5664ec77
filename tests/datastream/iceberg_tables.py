"""Helpers of the tests of Iceberg tables: what is in them, read without Holdfast."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record

from holdfast.datastream.connectors.iceberg.catalog import file_io_properties
from holdfast.filesystem import configured
from tests.datastream.places import files_below

NAMESPACE = "shop"
TABLE = "shop.orders"
CATALOG = "test"


def properties(folder: Path, **more: str) -> dict[str, str]:
    """A catalog in a file, and a warehouse below a folder."""
    uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}/warehouse"
    return {"type": "sql", "uri": uri, "warehouse": warehouse, **more}


def catalog_for(place: str, folder: Path) -> dict[str, str]:
    """A catalog in a folder of this machine, with a namespace, and a warehouse at any place."""
    found = properties(folder)
    if not place.startswith("/"):
        found["warehouse"] = f"{place.replace('s3a://', 's3://', 1)}/warehouse"
        found |= file_io_properties(configured(), found["warehouse"])
    catalog(found).create_namespace(NAMESPACE)
    return found


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
    """The data files below a table, whether it refers to them or not."""
    base = table.location()
    return {f"{base}/{path}" for path in files_below(base) if path.endswith(".parquet")}


def referred(table: Table) -> set[str]:
    """The data files of all snapshots of a table."""
    return {
        task.file.file_path
        for snapshot in table.snapshots()
        for task in table.scan(snapshot_id=snapshot.snapshot_id).plan_files()
    }


def hidden(table: Table) -> list[str]:
    """What a sink has not cleaned up."""
    return files_below(f"{table.location()}/data/_holdfast")


def transactions(table: Table) -> list[str | None]:
    """The transactions in the history of a table, from the oldest; None for those of others."""
    return [
        None if entry.summary is None else entry.summary.get("holdfast.transaction")
        for entry in table.snapshots()
    ]


class _DeletesWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _AddDeletes(_FastAppendFiles):
    """Adds a file of positions, as engines that merge on read do; pyiceberg only reads them."""

    deletes: DataFile

    def _manifests(self) -> list[ManifestFile]:
        metadata = self._transaction.table_metadata
        writer = _DeletesWriter(
            *(metadata.spec(), metadata.schema(), self.new_manifest_output()),
            *(self._snapshot_id, "deflate"),  # type: ignore[arg-type]
        )
        added = ManifestEntryStatus.ADDED
        with writer:
            writer.add(
                ManifestEntry.from_args(
                    status=added, snapshot_id=self._snapshot_id, data_file=self.deletes
                )
            )
        return [writer.to_manifest_file(), *self._existing_manifests()]


def delete_by_position(table: Table, positions: list[int]) -> None:
    """Delete rows of the only file of a table, without changing the file."""
    (task,) = table.scan().plan_files()
    path = f"{table.location()}/data/deletes-{len(table.snapshots())}.parquet"
    ids = {name: {b"PARQUET:field_id": number} for name, number in _DELETE_IDS.items()}
    schema = pa.schema(
        [
            pa.field("file_path", pa.string(), False, ids["file_path"]),
            pa.field("pos", pa.int64(), False, ids["pos"]),
        ]
    )
    paths = [task.file.file_path] * len(positions)
    pq.write_table(
        pa.table({"file_path": paths, "pos": positions}, schema), path.removeprefix("file://")
    )
    transaction = table.transaction()
    update = _AddDeletes(Operation.DELETE, transaction, table.io)
    update.deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(positions),
        file_size_in_bytes=Path(path.removeprefix("file://")).stat().st_size,
        spec_id=0,
    )
    update.commit()
    transaction.commit_transaction()


#: the columns of a file of positions, by the specification
_DELETE_IDS = {"file_path": "2147483546", "pos": "2147483545"}
