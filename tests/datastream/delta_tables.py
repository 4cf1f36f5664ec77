"""Helpers of the tests of Delta tables: what is in them, read without Holdfast."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder


def rows(uri: str, **options: Any) -> list[dict[str, Any]]:
    """The rows of a table, read with DataFusion."""
    return query(DeltaTable(uri, **options), "SELECT * FROM the_table")


def s3_options(settings: Mapping[str, str]) -> dict[str, str]:
    """The options with which ``deltalake`` reads the tests' object store."""
    return {
        "AWS_ENDPOINT_URL": re.sub("^(?!http)", "http://", settings["fs.s3a.endpoint"]),
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


def query(table: DeltaTable, text: str) -> list[dict[str, Any]]:
    """The result of a query of ``the_table``."""
    # NB: not `to_pyarrow_table`, whose threads abort one process in thirty when it ends
    result = QueryBuilder().register("the_table", table).execute(text)
    found: list[dict[str, Any]] = pa.table(result).to_pylist()
    return found


def column(uri: str, name: str) -> list[Any]:
    return sorted(row[name] for row in rows(uri))


def data_files(uri: str) -> set[str]:
    """The data files below a table, whether it refers to them or not."""
    return {
        str(path.relative_to(uri))
        for path in Path(uri).rglob("*.parquet")
        if "_delta_log" not in path.parts
    }


def referred(uri: str) -> set[str]:
    """The data files of all versions of a table."""
    last = DeltaTable(uri).version()
    return {
        path.removeprefix(f"{uri}/").removeprefix(f"file://{uri}/")
        for version in range(last + 1)
        for path in DeltaTable(uri, version=version).file_uris()
    }


def hidden(uri: str) -> list[str]:
    """What a sink has not cleaned up."""
    return [str(path) for path in Path(uri, "_holdfast").rglob("*") if path.is_file()]
