"""Spark that starts quickly: its JVMs live for seconds in tests, and spent most of them on classes.

They compile with the fast compiler alone, and map the classes of Spark from an archive of the JVM
instead of reading and verifying thousands of them. Both come to the drivers that tests start, in
whatever process, by the environment; for executors there are `executor_options`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from services.artifacts import cache_folder, java, locked, spark_jars

ROOT = Path(__file__).parents[1]
#: read by Spark's launcher: options of a driver's JVM, and of the launcher's own
DRIVER, LAUNCHER = "SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"
COMPILER = "-XX:TieredStopAtLevel=1"
#: an archive of other classes is not used, and nothing is said of it: who reads a job's output
#: would not know what to make of that
SILENT = "-Xlog:disable"


def start_quickly() -> None:
    """Let every driver start quickly from now on; the first time ever that takes half a minute."""
    os.environ[LAUNCHER] = COMPILER
    os.environ[DRIVER] = " ".join([COMPILER, *_archive_options()])


def executor_options() -> str:
    """Options of the JVM of an executor that starts quickly."""
    return f"{os.environ.get(DRIVER, COMPILER)} -XX:+UseSerialGC"


def _archive_options() -> list[str]:
    """The options of a JVM that uses the archive, which is made if it is missing."""
    archive = _archive()
    with locked(cache_folder() / "classes.lock"):
        if not archive.exists():
            _make(archive)
    return [f"-XX:SharedArchiveFile={archive}", SILENT] if archive.exists() else []


def _archive() -> Path:
    """Another one for each Spark and each Java: the JVM would take no other."""
    made_of = [(path, path.stat().st_mtime_ns) for path in (_java(), spark_jars())]
    digest = hashlib.sha256(repr(made_of).encode()).hexdigest()[:12]
    return cache_folder() / "classes" / f"spark-{digest}.jsa"


def _java() -> Path:
    return Path(shutil.which(java()) or sys.executable).resolve()


def _make(archive: Path) -> None:
    """Write down the classes that a job has loaded; if that fails, there is no archive."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        draft = Path(folder, "draft")
        options = f"{COMPILER} -XX:ArchiveClassesAtExit={draft} {SILENT}"
        job = [sys.executable, "-m", "tests.recovery.verifying", folder, "--numbers", "100"]
        # NB: the JVM, which outlives the program, has its output: the end of that is its end
        subprocess.run(
            [*job, "--spark", "spark.master=local[2]"],
            cwd=ROOT,
            env={**os.environ, DRIVER: options},
            capture_output=True,
            check=False,
        )
        if draft.exists():
            draft.rename(archive)
