"""Reads what DeltaSink and IcebergSink write with the packages of Delta and Iceberg for Spark.

    make test-readers

The packages lag behind Spark's releases, so they have an environment of their own, with the newest
PySpark that both have a package for. It is made in build/spark_readers, with the jars in the cache
of the tests; then the tests that need it run. The extensions of DuckDB lag behind as well, and are
in the same environment; so is what Holdfast needs, for a DataFrameSink that writes Delta.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from services.artifacts import Artifact, fetched  # noqa: E402
from services.delta import DELTA, PYSPARK  # noqa: E402

PLACE: Final = ROOT / "build" / "spark_readers"
PACKAGES: Final = (
    *DELTA,
    Artifact("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0"),
)


#: the newest that has extensions as packages; pytz is for times with a zone
DUCKDB: Final = (
    *("duckdb==1.5.5", "pytz"),
    *(f"duckdb-extension-{name}==1.5.5" for name in ("httpfs", "avro", "delta", "iceberg")),
)


def interpreter() -> Path:
    """Return the Python of the environment, which need not be there."""
    return PLACE / "env" / "bin" / "python"


def packages() -> list[Path]:
    """Return the jars of the packages.

    Raises:
        UnavailableError: when they cannot be had.
    """
    return fetched("spark_readers", PACKAGES, transitive=False)


def main() -> int:
    """Make the environment, and run the tests."""
    # NB: pip comes last; without it, the environment was interrupted while it was made
    if not interpreter().with_name("pip").exists():
        print(f"making {PLACE.relative_to(ROOT)}", flush=True)
        venv.create(PLACE / "env", with_pip=True, clear=True)
    install = ["-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    wanted = (f"pyspark=={PYSPARK}", *DUCKDB, str(ROOT))
    subprocess.run([interpreter(), *install, *wanted], check=True)
    packages()
    tests = [sys.executable, "-m", "pytest", "-q", "-rs", "tests/spark/test_other_readers.py"]
    return subprocess.run([*tests, *sys.argv[1:]], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
