"""The Spark session of a job: the existing one, or a new local one with quiet logs.

Python workers must run the driver's interpreter and find this package. This is set up here, also
for an existing session, so that users need not set environment variables.
"""

from __future__ import annotations

import logging
import os
import sys
import weakref
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

import holdfast
from holdfast.common.leftovers import OwnDirectory
from holdfast.common.private import user_directory
from holdfast.errors import JobDefinitionError, JobExecutionError
from holdfast.spark.jvm import death_named, is_of_bridge, with_root
from holdfast.spark.prerequisites import check_java, check_master, check_resources
from holdfast.spark.shipping import on_this_machine, zip_modules

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_MASTER = "spark.master"
#: the variable in which spark-submit passes the port of its JVM to a program
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
_REMOTE = "spark.remote"
_API_MODE = "spark.api.mode"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOCAL_ATTEMPTS = 4
_LOOPBACK = "127.0.0.1"
#: settings of a session whose executors are on the driver's machine
_ON_ONE_MACHINE = {
    "spark.driver.host": _LOOPBACK,
    # on a cluster the daemon starts before it receives the files of a job
    "spark.python.daemon.module": "holdfast.spark.resident.daemon",
    # shuffle files never cross a network
    "spark.shuffle.compress": "false",
    # checksums that are only used to diagnose corrupted compressed shuffle data
    "spark.shuffle.checksum.enabled": "false",
}
#: slots of a local session: a number per core, and some more for small jobs
_SLOTS_PER_CORE = 2
_SLOTS_BESIDES = 8
_shipped: weakref.WeakSet[SparkContext] = weakref.WeakSet()


def get_session(
    app_name: str, settings: dict[str, str] | None = None, slots: int = 0
) -> SparkSession:
    """Return the active session, or a new local one, with workers set up.

    ``slots``: how many task slots of a new session are for resident subtasks.
    """
    _quieten_bridge()
    session = _existing() or _make_session(app_name, settings or {}, slots)
    prepare_workers(session)
    return session


def is_local(session: SparkSession) -> bool:
    """Return whether all workers are on the driver's machine."""
    return on_this_machine(session.sparkContext)


def settings_of(session: SparkSession) -> dict[str, str]:
    """Return the configuration of a session; Spark has redacted secrets in it."""
    # NB: one call of the JVM; getConf() makes two for each setting
    lines = session.sparkContext._conf.toDebugString().splitlines()
    pairs = (line.partition("=") for line in lines)
    return {key: value for key, equals, value in pairs if equals and key.startswith("spark.")}


def page_of(session: SparkSession) -> str | None:
    """Return the address of Spark's own web UI; None if it is turned off."""
    return session.sparkContext.uiWebUrl


def has_executors(session: SparkSession) -> bool:
    """Return whether tasks run in executors, which register after the session has started."""
    return not is_local(session) or (session.sparkContext.master or "").startswith("local-cluster")


def default_parallelism(session: SparkSession | None = None) -> int:
    """Return the number of cores of the session, or of this machine if there is none."""
    session = session or _existing()
    if session is not None:
        return session.sparkContext.defaultParallelism
    return os.cpu_count() or 1


def _quieten_bridge() -> None:
    """Keep Py4J from logging every call at INFO, unless its level is set."""
    bridge = logging.getLogger("py4j")
    if bridge.level == logging.NOTSET:
        bridge.setLevel(logging.WARNING)


def check_classic(session: SparkSession) -> None:
    """Reject a session of Spark Connect, whose driver is in another process.

    Raises:
        JobDefinitionError: if it is one.
    """
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise _no_connect("the session is one of Spark Connect")


def _no_connect(found: str) -> JobDefinitionError:
    return JobDefinitionError(
        f"{found}, and Holdfast runs in the process of Spark's driver: create a classic session, "
        "without SparkSession.builder.remote(), SPARK_REMOTE and 'spark.api.mode'='connect'"
    )


def _refuse_connect(settings: dict[str, str]) -> None:
    """Reject settings that would create a session of Spark Connect.

    Raises:
        JobDefinitionError: if they would.
    """
    variables = os.environ
    if settings.get(_REMOTE) or variables.get("SPARK_REMOTE"):
        raise _no_connect(f"'{_REMOTE}' or SPARK_REMOTE requests a session of Spark Connect")
    if settings.get(_API_MODE, variables.get("SPARK_API_MODE", "")).lower() == "connect":
        raise _no_connect(f"'{_API_MODE}' or SPARK_API_MODE requests a session of Spark Connect")


def _existing() -> SparkSession | None:
    """Return the session of this thread, or of the program's other threads; None if there is none.

    Raises:
        JobDefinitionError: if the program uses Spark Connect.
    """
    if is_remote():
        raise _no_connect("this program uses Spark Connect")
    with death_named():
        known = SparkSession.getActiveSession() or SparkSession._instantiatedSession
        stopped = known is not None and known.sparkContext._jsc is None
        return None if stopped else known


def local_settings(cores: int, slots: int) -> dict[str, str]:
    """Return the settings of a local session with that many cores, and slots for resident subtasks.

    There is room for some more jobs like that, and Spark's own jobs have their usual slots. More
    slots would be too many: Spark starts a process for each Python task, and fills all slots if
    there are enough tasks. The number of partitions does not depend on these slots.
    """
    total = max(_SLOTS_PER_CORE * cores + _SLOTS_BESIDES, cores + slots)
    return {
        _MASTER: f"local[{total},{_LOCAL_ATTEMPTS}]",
        "spark.default.parallelism": str(cores),
    }


def _make_session(app_name: str, settings: dict[str, str], slots: int) -> SparkSession:
    _refuse_connect(settings)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = _chosen(settings, slots)
    if _SUBMITTED not in os.environ:
        check_java()
    check_resources(settings)
    check_master(settings.get(_MASTER, "local"))
    builder = SparkSession.builder
    for key, value in (_defaults(app_name) | settings).items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        if not (is_of_bridge(error) or isinstance(error, PySparkRuntimeError)):
            raise
        java = getattr(error, "java_exception", None)
        cause = f"{error} See the lines above" if java is None else with_root(java)
        where = settings.get(_MASTER, "local")
        told = " ".join(cause.split())
        raise JobExecutionError(f"Spark could not start on '{where}': {told}") from error


def _defaults(app_name: str) -> dict[str, str]:
    """Return the settings of a session for which nothing else was chosen."""
    # blocks are large and short-lived: the default collector would let the heap grow to its limit;
    # without a size, the young generation would stay at 11 MB in a container with 2 GB of memory
    steady = "-XX:+UseParallelGC -XX:-UseAdaptiveSizePolicy -XX:NewSize=128m"
    return {
        _MASTER: f"local[*,{_LOCAL_ATTEMPTS}]",
        "spark.app.name": app_name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        _JAVA_OPTIONS: f"{_quiet()} {steady}",
        "spark.driver.memory": "2g",
        "spark.sql.session.timeZone": "UTC",
        # every epoch is a job: keep the history of a few of them
        "spark.ui.retainedJobs": "100",
        "spark.ui.retainedStages": "100",
        "spark.ui.retainedTasks": "1000",
        "spark.sql.ui.retainedExecutions": "20",
    }


def _chosen(settings: dict[str, str], slots: int) -> dict[str, str]:
    """Return the settings of ``spark-submit``, of the program, and for what it runs on."""
    settings = _submitted() | settings
    if _JAVA_OPTIONS in settings:
        # NB: if the log is configured twice, the JVM uses the last setting
        settings[_JAVA_OPTIONS] = f"{_quiet()} {settings[_JAVA_OPTIONS]}"
    if slots and _MASTER not in settings:
        settings = local_settings(os.cpu_count() or 1, slots) | settings
    if settings.get(_MASTER, "local").startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
        settings = _ON_ONE_MACHINE | settings
    return settings


def _quiet() -> str:
    return f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()} -Dlog4j2.disableJmx=true"


def _submitted() -> dict[str, str]:
    """Return the settings of ``spark-submit``, if it has started this program."""
    if _SUBMITTED not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    given = dict(SparkConf().getAll())
    # NB: the default of spark-submit
    if given.get(_MASTER) == "local[*]":
        del given[_MASTER]
    return given


def prepare_workers(session: SparkSession) -> None:
    """Configure workers to use the driver's interpreter and to find this package.

    Raises:
        JobDefinitionError: if it is a session of Spark Connect.
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
    """Return the workers' interpreter: the driver's, unless another one is set."""
    # NB: PySpark itself reads the setting only in programs started by spark-submit
    setting = context.getConf().get("spark.pyspark.python")
    if setting:
        return setting
    chosen = os.environ.get("PYSPARK_PYTHON") is not None and context.pythonExec != "python3"
    return context.pythonExec if chosen else sys.executable


def _zip_package(context: SparkContext, package_root: str) -> str:
    """Return a zip file of this package that executors can import from.

    The driver serves it for as long as the context is in use.
    """
    root = Path(package_root)
    directory = OwnDirectory(user_directory(), "package")
    weakref.finalize(context, directory.remove)
    return zip_modules(root / "holdfast", root, directory.path / "holdfast.zip")
