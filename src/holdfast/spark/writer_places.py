"""Whether a ``DataFrameSink`` can write to its path, and how often: found out before any record.

Spark writes rows, and Holdfast moves files to their place, with a client of its own
(`holdfast.spark.published_rows`). So both must get there. Only Spark must get to a Delta table.
"""

from __future__ import annotations

import uuid
from typing import Any

from pyspark.sql import SparkSession

from holdfast.datastream.connectors.dataframe import DataFrameSink
from holdfast.datastream.connectors.tables.formats import DELTA_LOG
from holdfast.errors import JobDefinitionError
from holdfast.filesystem import FileSystemError, cause_of, file_system_of, join
from holdfast.filesystem.probe import probe
from holdfast.tracebacks import without_java_stack


def at_least_once(session: SparkSession, name: str, sink: DataFrameSink) -> str:
    """Return why a sink may write rows twice in a job with checkpoints; empty if it does not.

    Raises:
        JobDefinitionError: when Spark or Holdfast cannot write to its path.
    """
    if sink.at_least_once or sink.is_delta:
        return sink.at_least_once
    address = qualified(session, name, sink)
    try:
        _try_to_write(address)
    except ValueError as error:
        return _only_spark(sink, error)
    except FileSystemError as error:
        if _lacks_package(error):
            return _only_spark(sink, error)
        raise JobDefinitionError(
            f"operator '{name}': cannot write to '{sink.path}': {cause_of(error)}; let the job's "
            "user write there, and check its fs.* settings. If only Spark can get there, name a "
            "table (table=...) instead of the path: rows are written at least once then"
        ) from error
    return ""


def check_delta(session: SparkSession, name: str, sink: DataFrameSink) -> None:
    """Check that there is a Delta table at the path of a sink, or nothing.

    Raises:
        JobDefinitionError: when there is something else, or Spark cannot look.
    """
    try:
        system, path = _hadoop(session, sink)
        if not system.exists(path):
            return
        names = [str(status.getPath().getName()) for status in system.listStatus(path)]
    except Exception as error:
        raise _unusable(name, sink, error) from error
    others = [each for each in names if not each.startswith(".")]
    if others and DELTA_LOG not in others:
        raise JobDefinitionError(
            f"operator '{name}': '{sink.path}' is not a Delta table, and there is '{others[0]}' in "
            "it; name another directory, or convert it (CONVERT TO DELTA)"
        )


def qualified(session: SparkSession, name: str, sink: DataFrameSink) -> str:
    """Return the path with its scheme: that of Hadoop's default file system, if it has none.

    Raises:
        JobDefinitionError: when Spark has no file system for it.
    """
    try:
        system, path = _hadoop(session, sink)
        return str(system.makeQualified(path).toString())
    except Exception as error:
        raise _unusable(name, sink, error) from error


def _hadoop(session: SparkSession, sink: DataFrameSink) -> tuple[Any, Any]:
    """Return Spark's file system for a path, and the path there."""
    jvm = session._jvm
    assert jvm is not None
    path = jvm.org.apache.hadoop.fs.Path(sink.path)
    return path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf()), path


def _unusable(name: str, sink: DataFrameSink, error: Exception) -> JobDefinitionError:
    # NB: the message of py4j begins with the name of a method, and goes on with a stack
    reason = without_java_stack(str(getattr(error, "java_exception", error))).splitlines()[0]
    return JobDefinitionError(
        f"operator '{name}': Spark cannot write to '{sink.path}': {reason[:1000]}; check the "
        "path, and that Spark has the package for its file system"
    )


def _try_to_write(address: str) -> None:
    system, path = file_system_of(address)
    was_there = system.exists(path)
    probe(system, join(path, f".holdfast-{uuid.uuid4().hex}"))
    if not was_there:
        system.delete_if_empty(path)


def _only_spark(sink: DataFrameSink, error: Exception) -> str:
    return f"only Spark, and not Holdfast, can access '{sink.path}': {error}"


def _lacks_package(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ImportError):
            return True
        error = error.__cause__
    return False
