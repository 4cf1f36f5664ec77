"""Reads tables with DuckDB's own extensions; runs in the environment of scripts/spark_readers.py.

    python duckdb_reader.py tables.json    # {name: [format, path]}

Prints, as JSON, the version of DuckDB and the rows of each table. The extensions are those that
DuckDB has signed, which packages of PyPI bring along; one loads only in the DuckDB of its version.
"""

from __future__ import annotations

import importlib.resources
import json
import sys
from pathlib import Path
from typing import Any

from spark_reader import plain

EXTENSIONS = ("httpfs", "avro", "delta", "iceberg")
SCANS = {"delta": "delta_scan('file://{}')", "iceberg": "iceberg_scan('{}')"}


def main() -> None:
    """Read the tables."""
    import duckdb

    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    connection.execute("SET TimeZone = 'UTC'")
    for name in EXTENSIONS:
        folder = importlib.resources.files(f"duckdb_extension_{name}") / "extensions"
        connection.execute(f"LOAD '{folder}/v{duckdb.__version__}/{name}.duckdb_extension'")
    found: dict[str, Any] = {"duckdb": duckdb.__version__, "tables": {}}
    for name, (kind, path) in json.loads(Path(sys.argv[1]).read_text()).items():
        table = connection.execute(f"SELECT * FROM {SCANS[kind].format(path)}")
        columns = [column[0] for column in table.description]
        rows = [plain(dict(zip(columns, row, strict=True))) for row in table.fetchall()]
        found["tables"][name] = rows
    print(json.dumps(found))


if __name__ == "__main__":
    main()
