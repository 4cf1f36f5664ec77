"""What a new Spark session needs: Java, settings that Spark can read, a master that answers.

Spark itself reports what is missing with stack traces, some of them after a minute.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Mapping
from typing import Final

from holdfast.errors import ConfigurationError, JobExecutionError

_MASTERS: Final = re.compile(
    r"yarn|k8s://.+|spark://.+|local"
    r"|local\[(\d+|\*)(\s*,\s*\d+)?\]|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
)
_STANDALONE: Final = "spark://"
#: how long to wait for the answer of a master, in seconds
_PATIENCE: Final = 5.0


#: settings that Spark's launcher reads before it can report an error
_SIZES: Final = (
    *("spark.driver.memory", "spark.driver.memoryOverhead", "spark.driver.maxResultSize"),
    *("spark.executor.memory", "spark.executor.memoryOverhead", "spark.executor.pyspark.memory"),
    "spark.memory.offHeap.size",
)
_COUNTS: Final = (
    *("spark.driver.cores", "spark.executor.cores", "spark.executor.instances"),
    *("spark.cores.max", "spark.task.cpus"),
)
_SIZE: Final = re.compile(r"\d+([bkmgtp]|[kmgtp]b)?", re.IGNORECASE)


def check_resources(settings: Mapping[str, str]) -> None:
    """Check the settings for memory and cores.

    Raises:
        ConfigurationError: if Spark could not read one of them.
    """
    for keys, form, what in (
        (_SIZES, _SIZE, "is not a size of memory; use a number and a unit, such as 512m or 4g"),
        (_COUNTS, re.compile(r"\d+"), "is not a number; use one such as 2"),
    ):
        for key in keys:
            value = settings.get(key, "0")
            if not form.fullmatch(value.strip()):
                raise ConfigurationError(f"{key}: '{value}' {what}")


def check_java() -> None:
    """Find Java as Spark's scripts do.

    Raises:
        JobExecutionError: if there is none.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")
    if found is not None:
        return
    where = f"JAVA_HOME is '{home}', which has no bin/java" if home else "there is none on the PATH"
    raise JobExecutionError(
        f"Spark needs Java 17 or newer, and {where}; install Java, and set JAVA_HOME to its "
        "directory or put it on the PATH"
    )


def check_master(master: str) -> None:
    """Check the address of a master, and whether a standalone master answers there.

    Raises:
        ConfigurationError: if it is not an address of a master.
        JobExecutionError: if no standalone master answers.
    """
    if not _MASTERS.fullmatch(master.strip()):
        message = (
            f"spark.master: '{master}' is not a master of Spark; use local[4], "
            "spark://host:7077, yarn or k8s://https://host:443"
        )
        raise ConfigurationError(message)
    if not master.startswith(_STANDALONE):
        return
    problems = []
    for place in master.removeprefix(_STANDALONE).split(","):
        problem = _no_answer(place)
        if problem is None:
            return
        problems.append(f"{place}: {problem}")
    raise JobExecutionError(
        f"Spark's master '{master}' cannot be reached ({'; '.join(problems)}); check the address, "
        "and that the master runs and accepts connections from this machine"
    )


def _no_answer(place: str) -> str | None:
    """Return why nothing answers at an address, ``host:port``; None if something does."""
    host, _, port = place.strip().rpartition(":")
    if not host or not port.isdecimal():
        return "expected HOST:PORT"
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PATIENCE).close()
    except (OSError, OverflowError) as error:
        return getattr(error, "strerror", None) or str(error)
    return None
