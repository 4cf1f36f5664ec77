"""The Spark session of a job: the one that is there, or a local one with quiet logs.

Python workers must run the driver's interpreter and find this package; that is set up here, for an
adopted session too. The user is not asked for environment variables.
"""

from __future__ import annotations

import logging
import os
import sys
import weakref
import zipfile
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

import holdfast
from holdfast.common.leftovers import OwnDirectory
from holdfast.common.private import user_directory
from holdfast.spark.jvm import death_named

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_LOCAL_ATTEMPTS = 4
_shipped: weakref.WeakSet[SparkContext] = weakref.WeakSet()


def get_session(app_name: str, settings: dict[str, str] | None = None) -> SparkSession:
    """The active session, or a new local one; workers are set up in both."""
    _quieten_bridge()
    session = _existing() or _make_local(app_name, settings or {})
    prepare_workers(session)
    return session


def is_local(session: SparkSession) -> bool:
    """Whether all workers are on the driver's machine."""
    return (session.sparkContext.master or "").startswith("local")


def default_parallelism(session: SparkSession | None = None) -> int:
    """The number of cores that the session has, or that a local one would have."""
    session = session or _existing()
    if session is not None:
        return session.sparkContext.defaultParallelism
    return os.cpu_count() or 1


def _quieten_bridge() -> None:
    """Py4J tells of every call in the log of a program that logs at INFO; unless it is asked to."""
    bridge = logging.getLogger("py4j")
    if bridge.level == logging.NOTSET:
        bridge.setLevel(logging.WARNING)


def _existing() -> SparkSession | None:
    """The session of this thread, or the one that the program made in another thread."""
    with death_named():
        known = SparkSession.getActiveSession() or SparkSession._instantiatedSession
        stopped = known is not None and known.sparkContext._jsc is None
        return None if stopped else known


def _make_local(app_name: str, settings: dict[str, str]) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    quiet = f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()} -Dlog4j2.disableJmx=true"
    # blocks are large and short-lived: the default collector would let the heap grow to its limit
    steady = "-XX:+UseParallelGC -XX:-UseAdaptiveSizePolicy"
    builder = (
        SparkSession.builder.master(f"local[*,{_LOCAL_ATTEMPTS}]")
        .appName(app_name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", f"{quiet} {steady}")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.host", "127.0.0.1")
        # shuffle files of a local session never cross a network
        .config("spark.shuffle.compress", "false")
        # sums that nobody looks at, unless a part of a shuffle that was compressed is broken
        .config("spark.shuffle.checksum.enabled", "false")
        # every epoch is a job: keep the history of a few of them
        .config("spark.ui.retainedJobs", "100")
        .config("spark.ui.retainedStages", "100")
        .config("spark.ui.retainedTasks", "1000")
        .config("spark.sql.ui.retainedExecutions", "20")
    )
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def prepare_workers(session: SparkSession) -> None:
    """Let the workers have the driver's interpreter, and find this package."""
    context = session.sparkContext
    if _uses_default_python(context):
        context.pythonExec = sys.executable
    package_root = str(Path(holdfast.__file__).resolve().parent.parent)
    known = context.environment.get("PYTHONPATH", "").split(os.pathsep)
    if package_root not in known:
        path = os.pathsep.join(part for part in (package_root, *known) if part)
        context.environment["PYTHONPATH"] = path
    if not is_local(session) and context not in _shipped:
        _shipped.add(context)
        context.addPyFile(_zip_package(context, package_root))


def _uses_default_python(context: SparkContext) -> bool:
    """Whether nobody has chosen the workers' interpreter; it must be the driver's then."""
    chosen = context.getConf().get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    return chosen is None or context.pythonExec == "python3"


def _zip_package(context: SparkContext, package_root: str) -> str:
    """This package as a zip file that executors can import from.

    The driver serves it for as long as the context is in use.
    """
    root = Path(package_root)
    directory = OwnDirectory(user_directory(), "package")
    weakref.finalize(context, directory.remove)
    target = directory.path / "holdfast.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for file in sorted((root / "holdfast").rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(root))
    return str(target)
