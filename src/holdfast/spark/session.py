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

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

import holdfast
from holdfast.common.leftovers import OwnDirectory
from holdfast.common.private import user_directory
from holdfast.errors import JobDefinitionError, JobExecutionError
from holdfast.spark.jvm import death_named, is_of_bridge

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_MASTER = "spark.master"
#: the variable in which spark-submit tells a program where its JVM is
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
_REMOTE = "spark.remote"
_API_MODE = "spark.api.mode"
_LOCAL_ATTEMPTS = 4
_LOOPBACK = "127.0.0.1"
#: settings of a session whose executors are on the driver's machine
_ON_ONE_MACHINE = {
    "spark.driver.host": _LOOPBACK,
    # elsewhere it is not known yet when the daemon starts, which comes before the files of a job
    "spark.python.daemon.module": "holdfast.spark.daemon",
    # shuffle files never cross a network
    "spark.shuffle.compress": "false",
    # sums that nobody looks at, unless a part of a shuffle that was compressed is broken
    "spark.shuffle.checksum.enabled": "false",
}
#: slots of a local session: so many for each core, and so many besides, for small jobs
_SLOTS_PER_CORE = 2
_SLOTS_BESIDES = 8
_shipped: weakref.WeakSet[SparkContext] = weakref.WeakSet()


def get_session(
    app_name: str, settings: dict[str, str] | None = None, slots: int = 0
) -> SparkSession:
    """The active session, or a new local one; workers are set up in both.

    ``slots``: how many task slots a new one has for subtasks that stay in them.
    """
    _quieten_bridge()
    session = _existing() or _make_session(app_name, settings or {}, slots)
    prepare_workers(session)
    return session


def is_local(session: SparkSession) -> bool:
    """Whether all workers are on the driver's machine."""
    return (session.sparkContext.master or "").startswith("local")


def has_executors(session: SparkSession) -> bool:
    """Whether tasks run in other JVMs than the driver's; these come after the session's start."""
    return not is_local(session) or (session.sparkContext.master or "").startswith("local-cluster")


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


def check_classic(session: SparkSession) -> None:
    """Refuse a session of Spark Connect, whose driver is elsewhere.

    Raises:
        JobDefinitionError: when it is one.
    """
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise _no_connect("the session is one of Spark Connect")


def _no_connect(found: str) -> JobDefinitionError:
    return JobDefinitionError(
        f"{found}, and Holdfast runs in the process of Spark's driver: make a classic session, "
        "without SparkSession.builder.remote(), SPARK_REMOTE and 'spark.api.mode'='connect'"
    )


def _refuse_connect(settings: dict[str, str]) -> None:
    """Refuse to make a session that would be one of Spark Connect.

    Raises:
        JobDefinitionError: when it would.
    """
    variables = os.environ
    if settings.get(_REMOTE) or variables.get("SPARK_REMOTE"):
        raise _no_connect(f"'{_REMOTE}' or SPARK_REMOTE asks for a session of Spark Connect")
    if settings.get(_API_MODE, variables.get("SPARK_API_MODE", "")).lower() == "connect":
        raise _no_connect(f"'{_API_MODE}' or SPARK_API_MODE asks for a session of Spark Connect")


def _existing() -> SparkSession | None:
    """The session of this thread, or the one that the program made in another thread.

    Raises:
        JobDefinitionError: when the program uses Spark Connect.
    """
    if is_remote():
        raise _no_connect("this program uses Spark Connect")
    with death_named():
        known = SparkSession.getActiveSession() or SparkSession._instantiatedSession
        stopped = known is not None and known.sparkContext._jsc is None
        return None if stopped else known


def local_settings(cores: int, slots: int) -> dict[str, str]:
    """Settings of a local session with that many cores, and slots for subtasks that stay in them.

    There is room for some more jobs like that, and Spark's own have as many slots as ever. More
    would be too many: Spark gives each task that runs in Python a process of its own, and fills all
    slots if there are tasks enough. Partitions are as many as without these slots.
    """
    total = max(_SLOTS_PER_CORE * cores + _SLOTS_BESIDES, cores + slots)
    return {
        _MASTER: f"local[{total},{_LOCAL_ATTEMPTS}]",
        "spark.default.parallelism": str(cores),
    }


def _make_session(app_name: str, settings: dict[str, str], slots: int) -> SparkSession:
    _refuse_connect(settings)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    quiet = f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()} -Dlog4j2.disableJmx=true"
    # blocks are large and short-lived: the default collector would let the heap grow to its limit
    steady = "-XX:+UseParallelGC -XX:-UseAdaptiveSizePolicy"
    defaults = {
        _MASTER: f"local[*,{_LOCAL_ATTEMPTS}]",
        "spark.app.name": app_name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"{quiet} {steady}",
        "spark.driver.memory": "2g",
        "spark.sql.session.timeZone": "UTC",
        # every epoch is a job: keep the history of a few of them
        "spark.ui.retainedJobs": "100",
        "spark.ui.retainedStages": "100",
        "spark.ui.retainedTasks": "1000",
        "spark.sql.ui.retainedExecutions": "20",
    }
    settings = _submitted() | settings
    if slots and _MASTER not in settings:
        settings = local_settings(os.cpu_count() or 1, slots) | settings
    if settings.get(_MASTER, "local").startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
        settings = _ON_ONE_MACHINE | settings
    builder = SparkSession.builder
    for key, value in (defaults | settings).items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        if not (is_of_bridge(error) or isinstance(error, PySparkRuntimeError)):
            raise
        java = getattr(error, "java_exception", None)
        cause = f"{error} See the lines above" if java is None else java.toString()
        where = settings.get(_MASTER, "local")
        told = " ".join(cause.split())
        raise JobExecutionError(f"Spark could not start on '{where}': {told}") from error


def _submitted() -> dict[str, str]:
    """Return the settings that ``spark-submit`` was given, if it has started this program."""
    if _SUBMITTED not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    given = dict(SparkConf().getAll())
    # NB: what spark-submit says when nobody has said anything
    if given.get(_MASTER) == "local[*]":
        del given[_MASTER]
    return given


def prepare_workers(session: SparkSession) -> None:
    """Let the workers have the driver's interpreter, and find this package.

    Raises:
        JobDefinitionError: when it is a session of Spark Connect.
    """
    check_classic(session)
    context = session.sparkContext
    context.pythonExec = _python_of_workers(context)
    package_root = str(Path(holdfast.__file__).resolve().parent.parent)
    known = context.environment.get("PYTHONPATH", "").split(os.pathsep)
    if package_root not in known:
        path = os.pathsep.join(part for part in (package_root, *known) if part)
        context.environment["PYTHONPATH"] = path
    if not is_local(session) and context not in _shipped:
        _shipped.add(context)
        context.addPyFile(_zip_package(context, package_root))


def _python_of_workers(context: SparkContext) -> str:
    """The workers' interpreter: the driver's, unless somebody has chosen another one."""
    # NB: PySpark itself reads the setting only in programs that spark-submit has started
    setting = context.getConf().get("spark.pyspark.python")
    if setting:
        return setting
    chosen = os.environ.get("PYSPARK_PYTHON") is not None and context.pythonExec != "python3"
    return context.pythonExec if chosen else sys.executable


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
