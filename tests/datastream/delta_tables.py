"""Helpers of the tests of Delta tables: what is in them, read without Holdfast."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from holdfast.filesystem import configured
from tests.datastream.places import files_below


def load(uri: str, **given: Any) -> DeltaTable:
    """A table, on this machine, in the tests' object store, or on HDFS."""
    options = _s3_options() if uri.startswith("s3a://") else {}
    return DeltaTable(uri.replace("s3a://", "s3://", 1), storage_options=options, **given)


def rows(uri: str) -> list[dict[str, Any]]:
    """The rows of a table, read with DataFusion."""
    return query(load(uri), "SELECT * FROM the_table")


def _s3_options() -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": re.sub("^(?!http)", "http://", configured()["fs.s3a.endpoint"]),
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
        path
        for path in files_below(uri)
        if path.endswith(".parquet") and not path.startswith("_delta_log/")
    }


def referred(uri: str) -> set[str]:
    """The data files of all versions of a table."""
    last = load(uri).version()
    base = uri.replace("s3a://", "s3://", 1)
    return {
        path.removeprefix("file://").removeprefix(f"{base}/")
        for version in range(last + 1)
        for path in load(uri, version=version).file_uris()
    }


def hidden(uri: str) -> list[str]:
    """What a sink has not cleaned up."""
    return files_below(f"{uri}/_holdfast")
