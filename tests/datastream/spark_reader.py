"""Reads tables with Spark's own packages; runs in the environment of scripts/spark_readers.py.

    python spark_reader.py tables.json    # {name: [format, path]}

Prints, as JSON, the version of Spark, and for each table its type and its rows. It imports nothing
of Holdfast: the tables are read by Spark alone.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

EXTENSIONS = (
    "io.delta.sql.DeltaSparkSessionExtension,"
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
)


def plain(value: Any) -> Any:
    """Return a value of a row as JSON can have it; times are those of UTC."""
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    if isinstance(value, bytes | bytearray):
        return value.hex()
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def main() -> None:
    """Read the tables."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.sql.extensions", EXTENSIONS)
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .config("spark.jars", os.environ["SPARK_READER_JARS"])
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        # the tables are small
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .getOrCreate()
    )
    found: dict[str, Any] = {"spark": session.version, "tables": {}}
    for name, (kind, path) in json.loads(Path(sys.argv[1]).read_text()).items():
        table = session.read.format(kind).load(path)
        rows = [plain(row) for row in table.collect()]
        found["tables"][name] = {"type": table.schema.simpleString(), "rows": rows}
    print(json.dumps(found))
    session.stop()


if __name__ == "__main__":
    main()
